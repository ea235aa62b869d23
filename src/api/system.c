/* system.c: health, metrics, the document of the API, who one is, sessions, companies, activity. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "api/api.h"
#include "api/jobs.h"
#include "api/server.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/activity.h"
#include "store/environment.h"
#include "store/envlease.h"
#include "store/tenant.h"

#define SESSION_NS (INT64_C(12) * 3600 * NS_PER_S)

int h_health(struct call *c)
{
	return reply_json(c, 200,
			  json_pack("{s:s,s:s}", "status", "ok", "version", AIRLOCK_VERSION));
}

int h_ready(struct call *c)
{
	struct err e = ERR_INIT;
	int v;

	if (c->api->stopping || !c->api->ready || db_version(c->api->db, &v, &e) < 0)
		return reply_json(c, 503, json_pack("{s:s}", "status", "unavailable"));
	return reply_json(c, 200, json_pack("{s:s}", "status", "ready"));
}

int h_openapi(struct call *c)
{
	(void)buf_put(&c->out, c->api->openapi, c->api->openapi_len);
	return reply_out(c, 200);
}

int h_agent_access(struct call *c)
{
	(void)buf_puts(&c->out, c->api->access_map);
	return reply_out(c, 200);
}

/* --- metrics ------------------------------------------------------------------------------ */

static void counter(struct buf *b, const char *name, const char *help, uint64_t v)
{
	(void)buf_putf(b, "# HELP airlockd_%s %s\n# TYPE airlockd_%s counter\nairlockd_%s %llu\n",
		       name, help, name, name, (unsigned long long)v);
}

static void gauge(struct buf *b, const char *name, const char *help, int64_t v)
{
	(void)buf_putf(b, "# HELP airlockd_%s %s\n# TYPE airlockd_%s gauge\nairlockd_%s %lld\n",
		       name, help, name, name, (long long)v);
}

static int64_t resident_bytes(void)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/statm", "re");
	long size, rss = 0;

	if (f && fscanf(f, "%ld %ld", &size, &rss) != 2)
		rss = 0;
	return (int64_t)rss * sysconf(_SC_PAGESIZE);
}

int h_metrics(struct call *c)
{
	const struct api_counters *n = &c->api->n;
	int64_t envs = 0, leases[EL_STATUS_COUNT];
	struct buf *b = &c->out;
	struct err e = ERR_INIT;

	if (environment_count(c->api->db, &envs, &e) < 0 ||
	    envlease_counts(c->api->db, leases, &e) < 0)
		return reply_failed(c, &e);
	counter(b, "requests_total", "Requests answered.", n->requests);
	(void)buf_puts(b, "# HELP airlockd_responses_total Answers by class of status.\n"
			  "# TYPE airlockd_responses_total counter\n");
	for (unsigned i = 2; i < 6; i++)
		(void)buf_putf(b, "airlockd_responses_total{class=\"%uxx\"} %llu\n", i,
			       (unsigned long long)n->by_class[i]);
	counter(b, "denied_total", "Requests that a guard refused.", n->denied);
	counter(b, "unauthenticated_total", "Requests with credentials that prove nothing.",
		n->unauthenticated);
	(void)buf_putf(b,
		       "# HELP airlockd_runs Runs through the API that go on.\n"
		       "# TYPE airlockd_runs gauge\nairlockd_runs %zu\n",
		       jobs_runs(c->api));
	counter(b, "peer_looks_total",
		"Looks at the processes of this machine for who is behind a connection.",
		c->api->judge.looks);
	counter(b, "connections_total", "Connections accepted.", n->connections_seen);
	counter(b, "connections_cut_total", "Connections cut off because a request took too long.",
		n->cut_off);
	(void)buf_putf(
	    b,
	    "# HELP airlockd_busy_seconds_total Time in handlers.\n"
	    "# TYPE airlockd_busy_seconds_total counter\nairlockd_busy_seconds_total %.6f\n",
	    (double)n->busy_ns / 1e9);
	counter(b, "jobs_total", "Jobs started.", n->jobs_started);
	counter(b, "jobs_failed_total", "Jobs that gave no answer.", n->jobs_failed);
	counter(b, "leases_acquired_total", "Leases acquired.", n->leases_acquired);
	counter(b, "leases_released_total", "Leases released or destroyed.", n->leases_released);
	counter(b, "sweeps_total", "Sweeps of leases.", n->sweeps);
	gauge(b, "jobs_running", "Jobs that run.", (int64_t)jobs_running(c->api));
	gauge(b, "jobs_waiting", "Jobs that wait for their turn.", (int64_t)jobs_waiting(c->api));
	gauge(b, "requests_active", "Requests under way.", (int64_t)server_active(c->api));
	gauge(b, "streams", "Clients that watch the event stream.", (int64_t)c->api->streams);
	gauge(b, "environments", "Environments stored.", envs);
	(void)buf_puts(b, "# HELP airlockd_leases Leases stored, by status.\n"
			  "# TYPE airlockd_leases gauge\n");
	for (int i = 0; i < EL_STATUS_COUNT; i++)
		(void)buf_putf(b, "airlockd_leases{status=\"%s\"} %lld\n",
			       envlease_status_name((enum envlease_status)i), (long long)leases[i]);
	gauge(b, "resident_bytes", "Memory of the daemon.", resident_bytes());
	gauge(b, "uptime_seconds", "Since the start.",
	      (clock_mono_ns() - c->api->started_ns) / NS_PER_S);
	if (reply_out(c, 200) == 0 && c->status == 200)
		c->type = "text/plain; version=0.0.4; charset=utf-8";
	return 0;
}

/* --- who, sessions ------------------------------------------------------------------------ */

static const char *const types[] = {"none", "board", "agent"};

static json_t *or_null(const char *text)
{
	return text[0] ? json_string(text) : json_null();
}

int h_whoami(struct call *c)
{
	const struct actor *a = &c->actor;
	json_t *companies = json_array();

	for (size_t i = 0; i < a->companies_len; i++)
		(void)json_array_append_new(companies,
					    json_pack("{s:s,s:b}", "companyId", a->companies[i].id,
						      "viewer", (int)a->companies[i].viewer));
	return reply_json(c, 200,
			  json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:b,s:o}", "type", types[a->type],
				    "source", actor_source_name(a->source), "userId",
				    or_null(a->user_id), "agentId", or_null(a->agent_id),
				    "companyId", or_null(a->company_id), "runId",
				    or_null(a->run_id), "isInstanceAdmin", (int)actor_is_admin(a),
				    "memberships", companies));
}

/* Where browsers come by TLS, the cookie never travels without it. */
static const char *secure_cookie(const struct api *a)
{
	bool by_url = a->cfg.public_url && strncasecmp(a->cfg.public_url, "https:", 6) == 0;

	return by_url || a->cfg.tls_cert ? "; Secure" : "";
}

/*
 * A session lives no longer than its key. The key may be gone by now (-ESTALE): the body of a request can come long
 * after its head, and whoever holds a stolen key decides when.
 */
static int add_below(struct db *db, struct token_row *t, struct err *e)
{
	struct token_row key = {0};
	int r = db_begin(db, e);

	if (r < 0)
		return r;
	r = token_get(db, t->parent_id, &key, e);
	if (r >= 0 && key.revoked_ns)
		r = -ESTALE;
	if (r >= 0 && key.expires_ns && key.expires_ns < t->expires_ns)
		t->expires_ns = key.expires_ns;
	if (r >= 0)
		r = token_drop_more(db, t->parent_id, API_SESSIONS_MAX - 1, e);
	if (r >= 0)
		r = token_add(db, t, e);
	return db_end(db, r, e);
}

int h_session_open(struct call *c)
{
	struct token_row t = {.expires_ns = clock_real_ns() + SESSION_NS, .label = "browser"};
	char token[TOKEN_TEXT_MAX], when[32];
	struct err e = ERR_INIT;
	int r;

	/* A session cannot make the next one: it ends when it ends. */
	if (c->actor.source != SOURCE_BOARD_KEY)
		return reply_error(c, 403, "A session is opened with a board key");
	memcpy(t.user_id, c->actor.user_id, sizeof(t.user_id));
	memcpy(t.parent_id, c->actor.token_id, sizeof(t.parent_id));
	if (token_drop_old(c->api->db, clock_real_ns(), &e) < 0 ||
	    credential_new(TOKEN_SESSION, &t, token, &e) < 0)
		return reply_failed(c, &e);
	r = add_below(c->api->db, &t, &e);
	if (r < 0)
		return r == -ESTALE ? reply_error(c, 401, "The board key is revoked")
				    : reply_failed(c, &e);
	(void)snprintf(c->cookie, sizeof(c->cookie),
		       "airlock_session=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s",
		       token, (long long)(SESSION_NS / NS_PER_S), secure_cookie(c->api));
	explicit_bzero(token, sizeof(token));
	clock_iso_ms(t.expires_ns, when, sizeof(when));
	return reply_json(c, 201, json_pack("{s:s,s:s}", "id", t.id, "expiresAt", when));
}

int h_session_close(struct call *c)
{
	struct err e = ERR_INIT;

	if (c->actor.source != SOURCE_SESSION)
		return reply_error(c, 403, "There is no session to end");
	if (token_revoke(c->api->db, c->actor.token_id, &e) < 0)
		return reply_failed(c, &e);
	(void)snprintf(c->cookie, sizeof(c->cookie),
		       "airlock_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0%s",
		       secure_cookie(c->api));
	return reply_json(c, 200, json_pack("{s:s,s:n}", "id", c->actor.token_id, "expiresAt"));
}

/* --- companies, activity ------------------------------------------------------------------ */

struct list {
	struct call *c;
	size_t n;
};

static int put_company(void *arg, const struct company_row *row)
{
	struct list *l = arg;
	struct buf *b = &l->c->out;

	if (!actor_is_admin(&l->c->actor) && !actor_in_company(&l->c->actor, row->id))
		return 0;
	(void)buf_putc(b, l->n++ ? ',' : '[');
	view_text(b, "{\"id\":", row->id);
	view_text(b, ",\"name\":", row->name);
	view_time(b, ",\"createdAt\":", row->created_ns);
	return buf_putc(b, '}') < 0 ? -E2BIG : 0;
}

int h_companies(struct call *c)
{
	struct list l = {c, 0};
	struct err e = ERR_INIT;

	if (company_each(c->api->db, put_company, &l, &e) < 0 && !c->out.err)
		return reply_failed(c, &e);
	(void)buf_puts(&c->out, l.n ? "]" : "[]");
	return reply_out(c, 200);
}

static int put_activity(void *arg, int64_t id, int64_t at_ns, const struct activity_row *a)
{
	struct list *l = arg;
	struct buf *b = &l->c->out;

	(void)buf_putc(b, l->n++ ? ',' : '[');
	(void)buf_putf(b, "{\"id\":%lld", (long long)id);
	view_text(b, ",\"actorType\":", a->actor_type);
	view_text(b, ",\"actorId\":", a->actor_id);
	view_text(b, ",\"agentId\":", a->agent_id);
	view_text(b, ",\"runId\":", a->run_id);
	view_text(b, ",\"action\":", a->action);
	view_text(b, ",\"entityType\":", a->entity_type);
	view_text(b, ",\"entityId\":", a->entity_id);
	(void)buf_putf(b, ",\"details\":%s", a->details);
	view_time(b, ",\"createdAt\":", at_ns);
	return buf_putc(b, '}') < 0 ? -E2BIG : 0;
}

int h_activity(struct call *c)
{
	char company[UUID_LEN + 1];
	struct list l = {c, 0};
	struct err e = ERR_INIT;
	int64_t limit, offset;
	bool there = false;

	if (!call_page(c, &limit, &offset))
		return 0;
	/* A company of others is as good as none. */
	if (!call_uuid(c, 0, company) ||
	    (!actor_is_admin(&c->actor) && !actor_in_company(&c->actor, company)))
		return reply_error(c, 404, "Company not found");
	if (company_exists(c->api->db, company, &there, &e) < 0)
		return reply_failed(c, &e);
	if (!there)
		return reply_error(c, 404, "Company not found");
	if (activity_each(c->api->db, company, limit, put_activity, &l, &e) < 0 && !c->out.err)
		return reply_failed(c, &e);
	(void)buf_puts(&c->out, l.n ? "]" : "[]");
	return reply_out(c, 200);
}
