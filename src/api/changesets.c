#include "api/changesets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/jobs.h"
#include "api/runs.h"
#include "base/cleanup.h"
#include "base/path.h"

static const char no_set[] = "There is nothing of this run to show or to apply";

/* What a call waits for. */
struct wait {
	struct call *call;
	struct envrun_row run;
	const char *action; /* of the activity log; NULL: none */
	bool text;	    /* the answer is text, not JSON */
};

static void refuse(struct call *c, const struct envrun_row *run, json_t *answer)
{
	const char *why = json_string_value(json_object_get(answer, "error"));
	enum err_code code = (enum err_code)json_integer_value(json_object_get(answer, "code"));

	if (code != ERR_USAGE && code != ERR_NOT_FOUND)
		(void)fprintf(stderr, "airlockd: results of run %s: %s\n", run->id,
			      why ? why : "the job gave no answer");
	switch (code) {
	case ERR_USAGE: /* a text of ours, without anything of the host */
		(void)reply_error(c, 422, why);
		break;
	case ERR_NOT_FOUND:
		(void)reply_error(c, 404, no_set);
		break;
	case ERR_CONFLICT:
		(void)reply_error(
		    c, 409,
		    "Somebody else decides about this run, or its workspace changed; try again");
		break;
	case ERR_INVALID:
	case ERR_HOSTILE:
		(void)reply_error(
		    c, 422, "The results of this run cannot be used; the daemon's log says why");
		break;
	default:
		(void)reply_error(
		    c, 502,
		    "The results of this run could not be dealt with; the daemon's log says why");
	}
}

static void log_decision(struct call *c, const struct wait *w, json_t *answer)
{
	api_activity(c, w->run.company_id, w->action, "run", w->run.id,
		     json_pack("{s:s?,s:s,s:s,s:O?,s:O?}", "environmentId",
			       w->run.environment_id[0] ? w->run.environment_id : NULL,
			       "workspaceRoot", w->run.root, "workspacePath", w->run.path, "counts",
			       json_object_get(answer, "counts"), "left",
			       json_object_get(answer, "left")));
}

static void done(struct api *a, void *arg, json_t *answer)
{
	struct wait *w = arg;
	struct call *c = w->call;

	(void)a;
	if (!json_is_true(json_object_get(answer, "ok"))) {
		refuse(c, &w->run, answer);
	} else if (w->text) {
		(void)buf_puts(&c->out, json_string_value(json_object_get(answer, "text")));
		if (reply_out(c, 200) == 0 && c->status == 200)
			c->type = "text/plain; charset=utf-8";
	} else {
		if (w->action && json_is_true(json_object_get(answer, "done")))
			log_decision(c, w, answer);
		(void)json_object_del(answer, "ok");
		(void)json_object_set_new(answer, "runId", json_string(w->run.id));
		if (json_is_integer(json_object_get(answer, "total")))
			c->total = json_integer_value(json_object_get(answer, "total"));
		(void)reply_json(c, 200, json_incref(answer));
	}
	call_finish(c);
	envrun_row_done(&w->run);
	free(w);
}

/* The run of the path, over, with a workspace that is still one; 0, or 1: answered. */
static int find(struct call *c, bool place, struct envrun_row *run, json_t **ret)
{
	const struct api_root *root;

	if (run_find_call(c, run))
		return 1;
	if (run->status == ER_QUEUED || run->status == ER_RUNNING)
		return reply_error(c, 409, "The run is not over"), 1;
	root = runs_root(&c->api->cfg, run->company_id, run->root);
	if (place && !root)
		return reply_error(c, 404, no_set), 1;
	*ret = json_pack("{s:s,s:s,s:s}", "runId", run->id, "root", root ? root->path : "", "path",
			 run->path);
	return 0;
}

/* All but call are taken over. */
static int later(struct call *c, struct wait what, const char *op, json_t *request)
{
	struct wait *w = malloc(sizeof(*w));
	struct err e = ERR_INIT;

	if (!w || json_object_set_new(request, "op", json_string(op)) < 0) {
		json_decref(request);
		envrun_row_done(&what.run);
		free(w);
		return reply_error(c, 503, "Out of memory, try again");
	}
	*w = what;
	w->call = c;
	if (jobs_start(c->api, c->actor.user_id, request, done, w, &e) == 0)
		return API_LATER;
	envrun_row_done(&w->run);
	free(w);
	if (e.code == ERR_INVALID)
		return reply_error(c, 413, "These are too many paths at once");
	return e.code == ERR_LIMIT ? reply_error(c, 503, "Too much is under way, try again")
				   : reply_failed(c, &e);
}

/* The path that a read is about, "" all; false: answered. */
static bool prefix(struct call *c, json_t *request)
{
	const char *path = call_query(c, "path"), *b64 = call_query(c, "pathBase64");
	_cleanup_free_ char *odd = b64 ? changesets_path64(b64) : NULL;

	if ((path && path[0] && !path_is_member(path, strlen(path))) || (b64 && !odd) ||
	    (path && b64)) {
		(void)reply_error(
		    c, 400,
		    "path, or pathBase64 and then no path, is relative to the workspace, "
		    "without . and ..");
		return false;
	}
	return json_object_set_new(request, b64 ? "prefix64" : "prefix",
				   json_string(b64    ? b64
					       : path ? path
						      : "")) == 0;
}

int h_run_changes(struct call *c)
{
	struct wait w = {.call = c};
	int64_t limit, offset;
	json_t *request;

	if (!call_page(c, &limit, &offset))
		return 0;
	if (find(c, true, &w.run, &request)) {
		envrun_row_done(&w.run);
		return 0;
	}
	if (!prefix(c, request)) {
		json_decref(request);
		envrun_row_done(&w.run);
		return 0;
	}
	(void)json_object_set_new(request, "limit", json_integer(limit));
	(void)json_object_set_new(request, "offset", json_integer(offset));
	return later(c, w, "changes", request);
}

int h_run_diff(struct call *c)
{
	struct wait w = {.call = c, .text = true};
	json_t *request = NULL;

	if (find(c, true, &w.run, &request) || !prefix(c, request)) {
		json_decref(request);
		envrun_row_done(&w.run);
		return 0;
	}
	return later(c, w, "diff", request);
}

/* Each of them a member path; 0, or 1: answered. */
static int judge_paths(struct call *c)
{
	json_t *v;
	size_t i;

	json_array_foreach(json_object_get(c->body, "paths"), i, v)
	{
		if (!path_is_member(json_string_value(v), json_string_length(v)))
			return reply_errorf(
				   c, 400,
				   "paths[%zu] is relative to the workspace, without . and ..", i),
			       1;
	}
	json_array_foreach(json_object_get(c->body, "pathsBase64"), i, v)
	{
		_cleanup_free_ char *path = changesets_path64(json_string_value(v));

		if (!path)
			return reply_errorf(
				   c, 400,
				   "pathsBase64[%zu] is the base64 of a path, relative to the "
				   "workspace, without . and ..",
				   i),
			       1;
	}
	return 0;
}

int h_run_apply(struct call *c)
{
	struct wait w = {.call = c, .action = "environment.run_changes_applied"};
	json_t *request, *paths = json_object_get(c->body, "paths"),
			 *odd = json_object_get(c->body, "pathsBase64"),
			 *how = json_object_get(c->body, "onConflict"),
			 *dry = json_object_get(c->body, "dryRun");

	if (judge_paths(c) || find(c, true, &w.run, &request)) {
		envrun_row_done(&w.run);
		return 0;
	}
	(void)json_object_set(request, "paths", paths ? paths : json_null());
	(void)json_object_set(request, "pathsBase64", odd ? odd : json_null());
	(void)json_object_set(request, "onConflict", how ? how : json_null());
	(void)json_object_set(request, "dryRun", dry ? dry : json_false());
	if (json_is_true(dry))
		w.action = NULL;
	return later(c, w, "apply", request);
}

int h_run_discard(struct call *c)
{
	struct wait w = {.call = c, .action = "environment.run_changes_discarded"};
	json_t *request;

	if (find(c, false, &w.run, &request)) {
		envrun_row_done(&w.run);
		return 0;
	}
	return later(c, w, "discard", request);
}

int h_run_recover(struct call *c)
{
	struct wait w = {.call = c, .action = "environment.run_recovered"};
	json_t *request, *no_strict = json_object_get(c->body, "noStrict"),
			 *exclude = json_object_get(c->body, "exclude");

	if (find(c, true, &w.run, &request)) {
		envrun_row_done(&w.run);
		return 0;
	}
	(void)json_object_set(request, "noStrict", no_strict ? no_strict : json_false());
	(void)json_object_set(request, "exclude", exclude ? exclude : json_null());
	return later(c, w, "recover", request);
}
