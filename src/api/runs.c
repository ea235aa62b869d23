#include "api/runs_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/environments.h"
#include "api/jobs.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "store/run.h"

static const char not_found[] = "Run not found";

/* --- views -------------------------------------------------------------------------------- */

void run_view(struct call *c, const struct envrun_row *r)
{
	struct buf *b = &c->out;

	view_text(b, "{\"id\":", r->id);
	view_text(b, ",\"companyId\":", r->company_id);
	view_text_or_null(b, ",\"environmentId\":", r->environment_id);
	view_text(b, ",\"workspaceRoot\":", r->root);
	view_text(b, ",\"workspacePath\":", r->path);
	view_text(b, ",\"command\":", r->command);
	(void)buf_putf(b, ",\"review\":%s,\"timeoutSeconds\":%lld", r->review ? "true" : "false",
		       (long long)r->timeout_s);
	view_text(b, ",\"status\":", envrun_status_name(r->status));
	if (r->exit_status < 0)
		(void)buf_puts(b, ",\"exitStatus\":null");
	else
		(void)buf_putf(b, ",\"exitStatus\":%d", r->exit_status);
	view_text_or_null(b, ",\"reason\":", r->reason);
	(void)buf_putf(b, ",\"workKept\":%s", r->kept ? "true" : "false");
	view_time(b, ",\"createdAt\":", r->created_ns);
	view_time(b, ",\"startedAt\":", r->started_ns);
	view_time(b, ",\"endedAt\":", r->ended_ns);
	(void)buf_putc(b, '}');
}

/* A run of a company that the actor is not of is as good as none. */
int run_find_call(struct call *c, struct envrun_row *ret)
{
	char id[ID_LEN + 1] = "";
	struct err e = ERR_INIT;
	int r = 0;

	*ret = (struct envrun_row){0};
	if (c->param[0].n == ID_LEN) {
		memcpy(id, c->param[0].p, ID_LEN);
		if (id_is_prefix(id))
			r = envrun_get(c->api->db, id, ret, &e);
	}
	if (r > 0 && (actor_is_admin(&c->actor) || actor_in_company(&c->actor, ret->company_id)))
		return 0;
	(void)(r < 0 ? reply_failed(c, &e) : reply_error(c, 404, not_found));
	return 1;
}

static int put_one(void *arg, const struct envrun_row *r)
{
	struct call *c = arg;

	(void)buf_putc(&c->out, c->out.len ? ',' : '[');
	run_view(c, r);
	return c->out.err;
}

int h_run_list(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	struct envrun_filter f = {.user_id = actor_is_admin(&c->actor) ? NULL : c->actor.user_id};
	struct err e = ERR_INIT;

	if (!call_page(c, &f.limit, &f.offset) || env_find(c, &row))
		return 0;
	f.environment_id = row.id;
	if (envrun_each(c->api->db, &f, put_one, c, &e) < 0 && !c->out.err)
		return reply_failed(c, &e);
	(void)buf_puts(&c->out, c->out.len ? "]" : "[]");
	return reply_out(c, 200);
}

int h_run_get(struct call *c)
{
	_cleanup_envrun_ struct envrun_row r;

	if (run_find_call(c, &r))
		return 0;
	run_view(c, &r);
	return reply_out(c, 200);
}

int h_run_report(struct call *c)
{
	_cleanup_envrun_ struct envrun_row r;
	_cleanup_free_ char *text = NULL;
	struct err e = ERR_INIT;

	if (run_find_call(c, &r))
		return 0;
	if (report_get(c->api->st.store, r.id, &text, &e) < 0 && e.code != ERR_NOT_FOUND)
		return reply_failed(c, &e);
	if (!text)
		return reply_error(
		    c, 404, "There is no report of this run yet, or it was pruned (airlock prune)");
	(void)buf_puts(&c->out, text);
	return reply_out(c, 200);
}

int h_workspace_roots(struct call *c)
{
	const struct api_config *cfg = &c->api->cfg;
	json_t *all = json_array();

	for (size_t i = 0; i < cfg->roots_len; i++)
		(void)json_array_append_new(
		    all, json_pack("{s:s,s:s?,s:s}", "name", cfg->roots[i].name, "companyId",
				   cfg->roots[i].company[0] ? cfg->roots[i].company : NULL, "path",
				   cfg->roots[i].path));
	return reply_json(c, 200, all);
}

/* --- cancel ------------------------------------------------------------------------------- */

void run_log(struct call *c, const char *action, const struct envrun_row *r)
{
	api_activity(c, r->company_id, action, "run", r->id,
		     json_pack("{s:s,s:s,s:s,s:s,s:b}", "environmentId", r->environment_id,
			       "workspaceRoot", r->root, "workspacePath", r->path, "status",
			       envrun_status_name(r->status), "review", r->review));
}

/* One that is open: 1 told, 0 it was not open any more (r is as it was), negative. */
static int cancel(struct call *c, struct envrun_row *r, struct err *e)
{
	struct envrun_row now = {0};
	int k = 0;

	if (r->status == ER_QUEUED) {
		r->status = ER_CANCELLED;
		(void)snprintf(r->reason, sizeof(r->reason), "cancelled");
		/* Its job finds that it is queued no more. */
		k = envrun_end(c->api->db, r, ER_QUEUED, e);
		if (k == 0 && envrun_get(c->api->db, r->id, &now, e) > 0) {
			/* Its job took it between the two statements: what goes on is told to stop. */
			envrun_row_done(r);
			*r = now;
		}
	}
	if (k == 0 && r->status == ER_RUNNING) {
		k = proc_signal(&r->owner, SIGTERM);
		/* Of one that is not there any more the sweep writes the end. */
		if (k < 0 && k != -ESRCH)
			return err_sys(e, -k, "stop run %s", r->id);
		k = 1;
	}
	if (k > 0)
		run_log(c, "environment.run_cancelled", r);
	return k;
}

int h_run_cancel(struct call *c)
{
	_cleanup_envrun_ struct envrun_row r;
	struct err e = ERR_INIT;
	int k;

	if (run_find_call(c, &r))
		return 0;
	k = cancel(c, &r, &e);
	jobs_pump(c->api); /* one that waited waits no more */
	if (k < 0)
		return reply_failed(c, &e);
	if (k == 0)
		return reply_errorf(c, 409, "A run that is %s cannot be cancelled.",
				    envrun_status_name(r.status));
	return h_run_get(c);
}

struct open_runs {
	char (*id)[ID_LEN + 1]; /* owned */
	size_t n;
};

static int collect(void *arg, const struct envrun_row *r)
{
	struct open_runs *o = arg;
	void *more = realloc(o->id, (o->n + 1) * sizeof(*o->id));

	if (!more)
		return -ENOMEM;
	o->id = more;
	memcpy(o->id[o->n++], r->id, ID_LEN + 1);
	return 0;
}

int runs_cancel_all(struct call *c, const char *environment_id, struct err *e)
{
	const struct envrun_filter f = {
	    .environment_id = environment_id, .open = true, .limit = API_LIST_MAX};
	struct open_runs o = {0};
	/* Collected first: what is read when another process writes could not be followed by a write of ours. */
	int r = envrun_each(c->api->db, &f, collect, &o, e);

	for (size_t i = 0; r >= 0 && i < o.n; i++) {
		_cleanup_envrun_ struct envrun_row row = {0};

		r = envrun_get(c->api->db, o.id[i], &row, e);
		if (r > 0)
			r = cancel(c, &row, e);
	}
	jobs_pump(c->api);
	free(o.id);
	return r < 0 ? r : 0;
}
