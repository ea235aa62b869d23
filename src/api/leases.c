#include "api/leases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/envconfig.h"
#include "api/environments.h"
#include "api/jobs.h"
#include "api/sweeper.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/tenant.h"

static const char not_found[] = "Environment lease not found";

/* --- reads -------------------------------------------------------------------------------- */

/* A lease of a company that the actor is not of is as good as none. */
static int find(struct call *c, struct envlease_row *l)
{
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;
	int r = 0;

	*l = (struct envlease_row){0};
	if (call_uuid(c, 0, id))
		r = envlease_get(c->api->db, id, l, &e);
	if (r > 0 && (actor_is_admin(&c->actor) || actor_in_company(&c->actor, l->company_id)))
		return 0;
	(void)(r < 0 ? reply_failed(c, &e) : reply_error(c, 404, not_found));
	return 1;
}

int h_lease_get(struct call *c)
{
	_cleanup_envlease_ struct envlease_row l;

	if (find(c, &l))
		return 0;
	view_lease(c, &l);
	return reply_out(c, 200);
}

static int put_one(void *arg, const struct envlease_row *l)
{
	struct call *c = arg;

	(void)buf_putc(&c->out, c->out.len ? ',' : '[');
	view_lease(c, l);
	return c->out.err;
}

int h_env_leases(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	struct envlease_filter f = {.status = call_query(c, "status")};
	struct err e = ERR_INIT;

	if (!call_page(c, &f.limit, &f.offset) || env_find(c, &row))
		return 0;
	f.environment_id = row.id;
	f.user_id = actor_is_admin(&c->actor) ? NULL : c->actor.user_id;
	if (envlease_each(c->api->db, &f, put_one, c, &e) < 0 && !c->out.err)
		return reply_failed(c, &e);
	(void)buf_puts(&c->out, c->out.len ? "]" : "[]");
	return reply_out(c, 200);
}

/* --- rows --------------------------------------------------------------------------------- */

static void copy_id(char out[UUID_LEN + 1], const char *id)
{
	(void)snprintf(out, UUID_LEN + 1, "%s", id ? id : "");
}

int lease_begin(struct api *a, const struct lease_new *n, struct envlease_row *l, struct err *e)
{
	json_t *config = json_loads(n->config, 0, NULL);
	int r = uuid_new(l->id);

	if (r == 0)
		r = id_new(l->provider_lease_id);
	if (r < 0) {
		json_decref(config);
		return err_sys(e, -r, "make an id");
	}
	copy_id(l->company_id, n->company_id);
	copy_id(l->environment_id, n->environment_id);
	copy_id(l->workspace_id, n->workspace_id);
	copy_id(l->issue_id, n->issue_id);
	copy_id(l->run_id, n->run_id);
	(void)snprintf(l->policy, sizeof(l->policy), "%s", n->policy);
	(void)snprintf(l->provider, sizeof(l->provider), "%s", n->provider);
	l->acquired_ns = l->used_ns = clock_real_ns();
	l->expires_ns = n->ttl_s ? l->acquired_ns + n->ttl_s * NS_PER_S : 0;
	l->owner = a->st.self;
	if (strcmp(n->provider, "local") == 0) {
		/* Nothing is made, so nothing can be left behind. */
		l->status = EL_ACTIVE;
		l->owner = (struct proc_id){0};
		l->provider_lease_id[0] = '\0';
		l->metadata = strdup("{\"driver\":\"local\"}");
		json_decref(config);
	} else {
		bool ssh = strcmp(n->provider, "ssh") == 0;
		json_t *m =
		    json_pack("{s:s,s:o}", "driver", ssh ? "ssh" : "sandbox", "config", config);

		if (ssh)
			l->provider_lease_id[0] =
			    '\0'; /* where it is, is known when that was reached */
		else
			(void)json_object_set_new(m, "sandboxLeaseAcquisition",
						  json_pack("{s:s}", "outcome", "created"));
		l->status = EL_PENDING;
		(void)snprintf(l->reason, sizeof(l->reason), "%s", ENVLEASE_ACQUIRING);
		(void)snprintf(l->cleanup, sizeof(l->cleanup), "pending");
		l->metadata = m ? json_dumps(m, JSON_COMPACT) : NULL;
		json_decref(m);
	}
	if (!l->metadata)
		return err_set(e, ERR_NOMEM, "lease: out of memory");
	return envlease_add(a->db, l, e);
}

void lease_forsake(struct api *a, const char *id)
{
	_cleanup_envlease_ struct envlease_row l;
	struct err e = ERR_INIT;
	int r = envlease_get(a->db, id, &l, &e);

	/* A dead job's own needs nothing: the sweep sees that its owner does not live. */
	if (r > 0 && l.owner.pid == a->st.self.pid && l.owner.start == a->st.self.start)
		r = lease_let_go(a->db, &l, &e);
	if (r < 0)
		(void)fprintf(stderr, "airlockd: lease %s: %s\n", id, e.text);
}

/* --- jobs of calls ------------------------------------------------------------------------ */

/* What a call waits for, and what happens then. Freed by its end. */
struct wait {
	struct call *call;
	char id[UUID_LEN + 1];
	const char *action; /* of the activity log; NULL: none */
	unsigned status;
	bool made; /* the row was made for this: what fails leaves it to the sweep */
	void (*next)(struct call *c, int64_t n);
};

static void log_lease(struct call *c, const char *action, const struct envlease_row *l)
{
	api_activity(c, l->company_id, action, "environment_lease", l->id,
		     json_pack("{s:s?,s:s,s:s,s:s?,s:s?,s:s,s:s?,s:s?}", "environmentId",
			       l->environment_id[0] ? l->environment_id : NULL, "leasePolicy",
			       l->policy, "provider", l->provider, "executionWorkspaceId",
			       l->workspace_id[0] ? l->workspace_id : NULL, "issueId",
			       l->issue_id[0] ? l->issue_id : NULL, "status",
			       envlease_status_name(l->status), "cleanupStatus",
			       l->cleanup[0] ? l->cleanup : NULL, "failureReason",
			       l->reason[0] ? l->reason : NULL));
}

static void answer_lease(struct call *c, const struct wait *w, json_t *answer)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	const char *why = json_string_value(json_object_get(answer, "error"));
	bool ok = json_is_true(json_object_get(answer, "ok"));

	/* Killed between its last write and its answer: the row says what it came to. */
	if (!answer && w->made) {
		ok = envlease_get(c->api->db, w->id, &l, &e) > 0 && l.status == EL_ACTIVE &&
		     !l.owner.pid;
		envlease_row_done(&l);
	}
	if (!ok) {
		if (w->made)
			lease_forsake(c->api, w->id);
		sweeper_hurry(c->api);
		(void)fprintf(stderr, "airlockd: lease %s: %s\n", w->id,
			      why ? why : "the job gave no answer");
		if (json_is_true(json_object_get(answer, "gone"))) {
			(void)reply_coded(
			    c, 409, "lease_not_found",
			    "The sandbox of this lease and what it kept are gone; acquire another lease.",
			    NULL);
			return;
		}
		(void)(json_is_true(json_object_get(answer, "conflict"))
			   ? reply_error(c, 409, "The lease is in use or was changed meanwhile.")
			   : reply_coded(
				 c, 502, "lease_acquire_failed",
				 "The provider could not do this; the daemon's log says why",
				 NULL));
		return;
	}
	if (envlease_get(c->api->db, w->id, &l, &e) <= 0) {
		(void)reply_failed(c, &e);
		return;
	}
	if (w->action)
		log_lease(c, w->action, &l);
	view_lease(c, &l);
	(void)reply_out(c, w->status);
}

static void lease_done(struct api *a, void *arg, json_t *answer)
{
	struct wait *w = arg;
	struct call *c = w->call;

	(void)a;
	if (w->next) {
		w->next(c, json_integer_value(json_object_get(answer, "destroyed")));
	} else {
		answer_lease(c, w, answer);
		call_finish(c);
	}
	free(w);
}

static int later(struct call *c, const struct wait *what, json_t *request)
{
	struct wait *w = malloc(sizeof(*w));
	struct err e = ERR_INIT;
	int r;

	if (!w) {
		json_decref(request);
		return reply_error(c, 503, "Out of memory, try again");
	}
	*w = *what;
	w->call = c;
	r = jobs_start(c->api, c->actor.user_id, request, lease_done, w, &e);
	if (r == 0)
		return API_LATER;
	free(w);
	if (what->made)
		lease_forsake(c->api, what->id);
	sweeper_hurry(c->api);
	return e.code == ERR_LIMIT
		   ? reply_error(c, 503, "Too many sandboxes are being made or ended, try again")
		   : reply_failed(c, &e);
}

/* --- acquire ------------------------------------------------------------------------------ */

static const char *body_text(const struct call *c, const char *name)
{
	return json_string_value(json_object_get(c->body, name));
}

int lease_capacity(struct call *c)
{
	int64_t n[EL_STATUS_COUNT];
	struct err e = ERR_INIT;

	/* Before there is a row. */
	if (jobs_full(c->api, c->actor.user_id))
		return (void)reply_errorf(
			   c, 503,
			   "%d sandboxes wait to be made or ended, or half as many of yours; try again",
			   API_JOBS_WAITING_MAX),
		       1;
	if (envlease_counts(c->api->db, n, &e) < 0)
		return (void)reply_failed(c, &e), 1;
	/* Those that are stopped and kept too: their storage is there, and resuming them asks for no place. */
	if (n[EL_ACTIVE] + n[EL_RETAINED] + n[EL_PENDING] + n[EL_RELEASED] < API_LEASES_MAX)
		return 0;
	return (void)reply_errorf(
		   c, 409,
		   "%d leases are active, kept for later or to be cleaned up; destroy some first",
		   API_LEASES_MAX),
	       1;
}

static int lease_company(struct call *c, const char *env_id, char out[UUID_LEN + 1])
{
	const char *asked = body_text(c, "companyId");
	struct err e = ERR_INIT;
	bool there = false;

	if (!asked) {
		if (env_company(c, env_id, out))
			return 1;
		return out[0] ? 0
			      : ((void)reply_error(
				     c, 422,
				     "A lease needs a companyId: there are several companies."),
				 1);
	}
	if (!uuid_parse(asked, strlen(asked), out) ||
	    company_exists(c->api->db, out, &there, &e) < 0)
		return (void)reply_failed(c, &e), 1;
	return there ? 0 : ((void)reply_error(c, 404, "Company not found"), 1);
}

/* Nothing stands behind such a lease: it is over when its row is. */
static bool nothing_made(const char *provider)
{
	return strcmp(provider, "local") == 0 || strcmp(provider, "ssh") == 0;
}

int h_lease_acquire(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	_cleanup_envlease_ struct envlease_row l = {0};
	char company[UUID_LEN + 1];
	struct lease_new n = {.company_id = company,
			      .policy = body_text(c, "leasePolicy"),
			      .workspace_id = body_text(c, "executionWorkspaceId"),
			      .issue_id = body_text(c, "issueId"),
			      .run_id = body_text(c, "runId"),
			      .ttl_s = json_integer_value(json_object_get(c->body, "ttlSeconds"))};
	struct err e = ERR_INIT;

	if (env_find(c, &row))
		return 0;
	if (strcmp(row.status, "active") != 0)
		return reply_errorf(c, 409, "Environment \"%s\" is not active.", row.name);
	if (strcmp(row.driver, "plugin") == 0)
		return reply_errorf(c, 422, "This daemon makes no leases for driver \"%s\" yet.",
				    row.driver);
	n.environment_id = row.id;
	n.config = row.config;
	n.provider = strcmp(row.driver, "sandbox") == 0 ? "native" : row.driver;
	if (!n.policy)
		n.policy = "ephemeral";
	if (nothing_made(n.provider) && strcmp(n.policy, "ephemeral") != 0)
		return reply_errorf(c, 422, "Leases of %s environment are ephemeral.",
				    strcmp(n.provider, "ssh") == 0 ? "an SSH" : "the local");
	if (lease_company(c, row.id, company) || lease_capacity(c))
		return 0;
	if (lease_begin(c->api, &n, &l, &e) < 0)
		return reply_failed(c, &e);
	c->api->n.leases_acquired++;
	if (l.status == EL_ACTIVE) {
		log_lease(c, "environment.lease_acquired", &l);
		view_lease(c, &l);
		return reply_out(c, 201);
	}
	struct wait w = {.action = "environment.lease_acquired", .status = 201, .made = true};

	memcpy(w.id, l.id, sizeof(w.id));
	return later(c, &w, json_pack("{s:s,s:s}", "op", "acquire", "leaseId", l.id));
}

/* --- resume, release, destroy ------------------------------------------------------------- */

static int row_release(struct call *c, struct envlease_row *l, enum envlease_status to,
		       enum lease_cause why)
{
	struct err e = ERR_INIT;
	int r;

	l->released_ns = clock_real_ns();
	(void)snprintf(l->cleanup, sizeof(l->cleanup), "success");
	r = lease_step(c->api->db, l, to, why, &e);
	if (r == -EBUSY)
		return reply_error(c, 409, "The lease is in use or was changed meanwhile.");
	if (r < 0)
		return reply_failed(c, &e);
	log_lease(c, "environment.lease_released", l);
	view_lease(c, l);
	return reply_out(c, 200);
}

static int refuse_state(struct call *c, const struct envlease_row *l, const char *verb)
{
	return reply_errorf(c, 409, "A lease that is %s cannot be %s.",
			    envlease_status_name(l->status), verb);
}

static bool same_bounds(const json_t *a, const json_t *b)
{
	static const char *const numbers[] = {"memoryBytes", "pids", "cpuMillis"};
	const char *x = json_string_value(json_object_get(a, "network")),
		   *y = json_string_value(json_object_get(b, "network"));
	bool same = strcmp(x ? x : "none", y ? y : "none") == 0;

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		same &= json_integer_value(json_object_get(a, numbers[i])) ==
			json_integer_value(json_object_get(b, numbers[i]));
	return same;
}

/*
 * A sandbox that starts again gets what it was made with, also its image. Network and limits of an environment are its operator's
 * word for what runs there from now on: where they differ it does not start.
 */
static int resumable(struct call *c, const struct envlease_row *l)
{
	_cleanup_environment_ struct environment_row row = {0};
	struct err e = ERR_INIT;
	json_t *made, *now;
	bool same;
	int r = l->environment_id[0] ? environment_get(c->api->db, l->environment_id, &row, &e) : 0;

	if (r < 0)
		return (void)reply_failed(c, &e), 1;
	if (r == 0)
		return (void)reply_error(c, 409, "The environment of this lease is gone."), 1;
	if (strcmp(row.status, "active") != 0)
		return (void)reply_errorf(c, 409, "Environment \"%s\" is not active.", row.name), 1;
	if (l->expires_ns && l->expires_ns <= clock_real_ns())
		return (void)reply_error(c, 409, "The lease's time is over: it is being ended."), 1;
	made = lease_config(l);
	now = json_loads(row.config, 0, NULL);
	same = same_bounds(made, now);
	json_decref(made);
	json_decref(now);
	if (!same)
		(void)reply_coded(
		    c, 409, "lease_fingerprint_mismatch",
		    "Network or limits of the environment were changed since this lease was "
		    "acquired: destroy it, and acquire another.",
		    NULL);
	return !same;
}

int h_lease_resume(struct call *c)
{
	_cleanup_envlease_ struct envlease_row l;
	struct wait w = {.action = "environment.lease_resumed", .status = 200};

	if (find(c, &l))
		return 0;
	if (strcmp(l.policy, "reuse_by_environment") != 0)
		return reply_error(c, 409, "Only a reusable lease can be resumed.");
	if (!lease_may_move(l.status, EL_ACTIVE, MOVED_RESUMED))
		return refuse_state(c, &l, "resumed");
	if (resumable(c, &l))
		return 0;
	memcpy(w.id, l.id, sizeof(w.id));
	return later(c, &w, json_pack("{s:s,s:s}", "op", "resume", "leaseId", l.id));
}

int h_lease_release(struct call *c)
{
	_cleanup_envlease_ struct envlease_row l;
	const char *result = body_text(c, "result"), *how = body_text(c, "disposition");
	enum envlease_status to = EL_RELEASED;
	enum lease_cause why = MOVED_RELEASED;
	struct wait w = {.action = "environment.lease_released", .status = 200};
	bool reusable;

	if (find(c, &l))
		return 0;
	if (result && (strcmp(result, "failed") == 0 || strcmp(result, "timed_out") == 0)) {
		to = EL_FAILED;
		why = MOVED_RUN_FAILED;
	} else if (result && strcmp(result, "cancelled") == 0) {
		to = EL_EXPIRED;
		why = MOVED_RUN_CANCELLED;
	}
	if (l.status != EL_ACTIVE)
		return refuse_state(c, &l, "released");
	reusable = strcmp(l.policy, "reuse_by_environment") == 0;
	/* Staying warm is earned by a turn that succeeded, and only a lease that can be used again stays. */
	if (how && strcmp(how, "keep_running") == 0 && (!reusable || to != EL_RELEASED))
		return reply_error(
		    c, 409,
		    "Cannot keep this lease running: it is not reusable, or its run did not succeed.");
	c->api->n.leases_released++;
	if (nothing_made(l.provider))
		return row_release(c, &l, to, why);
	memcpy(w.id, l.id, sizeof(w.id));
	return later(c, &w,
		     json_pack("{s:s,s:s,s:s,s:i,s:s}", "op", "release", "leaseId", l.id, "status",
			       envlease_status_name(to), "cause", (int)why, "disposition",
			       how ? how : "legacy_default"));
}

int h_lease_destroy(struct call *c)
{
	_cleanup_envlease_ struct envlease_row l;
	struct wait w = {.action = "environment.lease_released", .status = 200};

	if (find(c, &l))
		return 0;
	if (nothing_made(l.provider) && l.status != EL_PENDING)
		return l.status == EL_ACTIVE ? row_release(c, &l, EL_RELEASED, MOVED_RELEASED)
					     : refuse_state(c, &l, "destroyed");
	if (l.status != EL_PENDING && !lease_may_move(l.status, EL_PENDING, MOVED_DELETE_CLAIMED))
		return refuse_state(c, &l, "destroyed");
	c->api->n.leases_released++;
	memcpy(w.id, l.id, sizeof(w.id));
	return later(c, &w,
		     json_pack("{s:s,s:s,s:[s]}", "op", "destroy", "reason", "lease_destroyed",
			       "leaseIds", l.id));
}

/* --- deletion of an environment ----------------------------------------------------------- */

struct claim {
	struct call *c;
	json_t *ids;
};

/* Not one that a run holds: it stays as it is and goes on blocking. */
static int collect(void *arg, const struct envlease_row *l)
{
	struct claim *k = arg;
	bool held = l->status == EL_ACTIVE && l->run_id[0];

	if (!held && lease_may_move(l->status, EL_PENDING, MOVED_DELETE_CLAIMED))
		(void)json_array_append_new(k->ids, json_string(l->id));
	return 0;
}

int lease_destroy_reusable(struct call *c, const char *env_id,
			   void (*next)(struct call *c, int64_t n))
{
	struct envlease_filter f = {.environment_id = env_id, .reusable = true, .limit = -1};
	struct claim k = {c, json_array()};
	struct wait w = {.next = next};
	struct err e = ERR_INIT;

	if (envlease_each(c->api->db, &f, collect, &k, &e) < 0) {
		json_decref(k.ids);
		return reply_failed(c, &e);
	}
	return later(c, &w,
		     json_pack("{s:s,s:s,s:o}", "op", "destroy", "reason", "environment_deleted",
			       "leaseIds", k.ids));
}
