#include "api/leases_internal.h"

#include <stdio.h>
#include <string.h>

#include "api/environments.h"
#include "api/jobs.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/tenant.h"

static const char not_found[] = "Environment lease not found";

/* --- reads -------------------------------------------------------------------------------- */

/* A lease of a company that the actor is not of is as good as none. */
int lease_find(struct call *c, struct envlease_row *l)
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

	if (lease_find(c, &l))
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

/* --- acquire ------------------------------------------------------------------------------ */

const char *lease_body_text(const struct call *c, const char *name)
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
	const char *asked = lease_body_text(c, "companyId");
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
bool lease_nothing_made(const char *provider)
{
	return strcmp(provider, "local") == 0 || strcmp(provider, "ssh") == 0;
}

int h_lease_acquire(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	_cleanup_envlease_ struct envlease_row l = {0};
	char company[UUID_LEN + 1];
	struct lease_new n = {.company_id = company,
			      .policy = lease_body_text(c, "leasePolicy"),
			      .workspace_id = lease_body_text(c, "executionWorkspaceId"),
			      .issue_id = lease_body_text(c, "issueId"),
			      .run_id = lease_body_text(c, "runId"),
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
	if (lease_nothing_made(n.provider) && strcmp(n.policy, "ephemeral") != 0)
		return reply_errorf(c, 422, "Leases of %s environment are ephemeral.",
				    strcmp(n.provider, "ssh") == 0 ? "an SSH" : "the local");
	if (lease_company(c, row.id, company) || lease_capacity(c))
		return 0;
	if (lease_begin(c->api, &n, &l, &e) < 0)
		return reply_failed(c, &e);
	c->api->n.leases_acquired++;
	if (l.status == EL_ACTIVE) {
		lease_log(c, "environment.lease_acquired", &l);
		view_lease(c, &l);
		return reply_out(c, 201);
	}
	struct lease_wait w = {.action = "environment.lease_acquired", .status = 201, .made = true};

	memcpy(w.id, l.id, sizeof(w.id));
	return lease_later(c, &w, json_pack("{s:s,s:s}", "op", "acquire", "leaseId", l.id));
}
