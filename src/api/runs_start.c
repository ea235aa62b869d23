/* runs_start.c: a run is asked for: judged, written down, and given to a job. */
#include "api/runs_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/environments.h"
#include "api/envwrite.h"
#include "api/jobs.h"
#include "api/runvars.h"
#include "api/runwish.h"
#include "api/sweeper.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "engine/preset.h"
#include "store/run.h"
#include "store/tenant.h"
#include "store/vault.h"

/* What a run cannot give is refused, never left out. NULL: nothing. */
static const char *beyond_runs(const struct call *c, const struct environment_row *env)
{
	if (strcmp(env->status, "active") != 0)
		return "The environment is not active.";
	if (strcmp(env->driver, "local") == 0) {
		/* B-09: commands of whoever manages environments would run as the daemon's user. */
		if (!c->api->cfg.local_runs)
			return "Runs in a local environment have no isolation; the daemon allows them with --local-runs only.";
		if (json_is_true(json_object_get(c->body, "review")))
			return "A local environment works in the workspace itself, so nothing can wait for a review.";
		if (runwish_in_place(c->body))
			return "A local environment works in the workspace itself: nothing is copied, so strict, onConflict, exclude, git and syncOut mean nothing there.";
		return NULL;
	}
	return strcmp(env->driver, "sandbox") == 0 || strcmp(env->driver, "ssh") == 0
		   ? NULL
		   : "Runs through the API need an environment of driver \"sandbox\" with provider \"native\", an SSH or a local one.";
}

/* A process that stays for the next turn stays in a lease that the next turn can take. true: answered. */
static bool warm_for_nobody(struct call *c, const struct environment_row *env)
{
	json_t *config = json_loads(env->config, 0, NULL);
	const char *mode = json_string_value(json_object_get(config, "runnerLifecycleMode"));
	bool no = mode && strcmp(mode, "warm") == 0 &&
		  !json_is_true(json_object_get(config, "reuseLease"));

	json_decref(config);
	if (no)
		(void)reply_coded(
		    c, 422, "runner_warm_lifecycle_requires_reusable_provider_lease",
		    "The environment has runnerLifecycleMode \"warm\" without reuseLease: set reuseLease, or another mode.",
		    NULL);
	return no;
}

/* Of an SSH environment: its private key. true: answered. */
static bool key_missing(struct call *c, const struct envrun_row *r,
			const struct environment_row *env)
{
	json_t *config = json_loads(env->config, 0, NULL);
	const char *id = strcmp(env->driver, "ssh") == 0 ? envkeys_ref(config) : NULL;
	struct err e = ERR_INIT;
	int k =
	    id ? binding_exists(c->api->db, r->company_id, id, env->id, "privateKeySecretRef", &e)
	       : 1;

	json_decref(config);
	if (k == 0)
		(void)reply_coded(
		    c, 422, "secret_binding_missing",
		    "The private key of the environment is a secret that is not bound for this company.",
		    json_pack("{s:s}", "configPath", "privateKeySecretRef"));
	else if (k < 0)
		(void)reply_failed(c, &e);
	return k <= 0;
}

/* A preset that is not here is told at once; what it needs of the environment the job finds out. true: answered. */
static bool preset_missing(struct call *c, const struct environment_row *env)
{
	const char *name = json_string_value(json_object_get(c->body, "preset"));
	_cleanup_preset_ struct preset a = {0};
	struct err e = ERR_INIT;

	if (!name)
		return false;
	if (strcmp(env->driver, "local") == 0)
		(void)reply_error(
		    c, 422, "A local environment runs what is on this host as it is: no preset.");
	else if (strcmp(env->driver, "ssh") == 0)
		(void)reply_error(c, 422, "Presets are not there for SSH environments yet.");
	else if (preset_load(name, &a, &e) < 0)
		(void)(e.code == ERR_NOT_FOUND
			   ? reply_error(c, 422, "There is no preset of that name here")
			   : reply_failed(c, &e));
	else
		return false;
	return true;
}

/* Found before it is queued, and again before anything is opened; values are not looked at here. true: answered. */
static bool vars_missing(struct call *c, const struct envrun_row *r,
			 const struct environment_row *env)
{
	const struct runvars_use use = {.company_id = r->company_id, .environment_id = env->id};
	json_t *vars = json_loads(env->env_vars, 0, NULL), *details;
	struct err e = ERR_INIT;
	const char *name = "";
	int k = runvars_bound(c->api->db, &use, vars, &name, &e);

	if (k == 0) {
		details = json_pack("{s:s}", "variable", name);
		(void)reply_coded(
		    c, 422, "secret_binding_missing",
		    "A variable of the environment names a secret that is not bound for this company.",
		    details);
	} else if (k < 0) {
		(void)reply_failed(c, &e);
	}
	json_decref(vars);
	return k <= 0 || key_missing(c, r, env);
}

static json_t *make_request(const struct call *c, const struct envrun_row *r,
			    const struct api_root *root, const struct environment_row *env)
{
	json_t *config = json_loads(env->config, 0, NULL),
	       *vars = json_loads(env->env_vars, 0, NULL), *j;
	char actor[UUID_LEN + 8];

	actor_text(&c->actor, actor, sizeof(actor));
	j = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:b,s:o,s:o,s:O?}", "op", "run",
		      "runId", r->id, "companyId", r->company_id, "environmentId", env->id, "actor",
		      actor, "driver", env->driver, "root", root->path, "path", r->path, "command",
		      r->command, "timeoutSeconds", (json_int_t)r->timeout_s, "review",
		      (int)r->review, "config", config ? config : json_object(), "envVars",
		      vars ? vars : json_object(), "preset", json_object_get(c->body, "preset"));
	if (j && runwish_put(j, c->body) < 0) {
		json_decref(j);
		return NULL; /* which no job is begun with */
	}
	return j;
}

/* The job writes its row itself. One that could not be started leaves it queued, and the daemon's. */
static void run_done(struct api *a, void *arg, json_t *answer)
{
	char *id = arg;
	_cleanup_envrun_ struct envrun_row r = {0};
	struct err e = ERR_INIT;

	if (!json_is_true(json_object_get(answer, "ok")) && envrun_get(a->db, id, &r, &e) > 0 &&
	    r.status == ER_QUEUED) {
		r.status = a->stopping ? ER_CANCELLED : ER_FAILED;
		(void)snprintf(r.reason, sizeof(r.reason), "%s",
			       a->stopping ? "daemon_stopped" : "not_started");
		(void)envrun_end(a->db, &r, ER_QUEUED, &e);
	} else if (!a->stopping && r.status == ER_RUNNING) {
		sweeper_hurry(a);
	}
	if (e.code != ERR_NONE)
		(void)fprintf(stderr, "airlockd: run %s: %s\n", id, e.text);
	free(id);
}

static int run_company(struct call *c, const char *env_id, char out[UUID_LEN + 1])
{
	const char *asked = json_string_value(json_object_get(c->body, "companyId"));
	struct err e = ERR_INIT;
	bool there = false;

	if (!asked) {
		if (env_company(c, env_id, out))
			return 1;
		return out[0]
			   ? 0
			   : (reply_error(c, 422,
					  "A run needs a companyId: there are several companies."),
			      1);
	}
	if (!uuid_parse(asked, strlen(asked), out) ||
	    company_exists(c->api->db, out, &there, &e) < 0)
		return reply_failed(c, &e), 1;
	return there ? 0 : (reply_error(c, 404, "Company not found"), 1);
}

/* Where it works: one answer for whatever is not a workspace of that company. */
static const struct api_root *run_place(struct call *c, const struct envrun_row *r)
{
	const struct api_root *root = runs_root(&c->api->cfg, r->company_id, r->root);
	_cleanup_free_ char *real = NULL;

	if (root && (!r->path[0] || path_is_member(r->path, strlen(r->path))) &&
	    runs_resolve(root->path, r->path, c->api->st.dir, &real) == 0)
		return root;
	(void)reply_error(c, 404, "There is no such workspace for runs of this company");
	return NULL;
}

static int begin(struct call *c, struct envrun_row *r, const struct environment_row *env,
		 const struct api_root *root)
{
	struct err e = ERR_INIT;
	char *id;
	int k;

	r->owner = c->api->st.self;
	(void)snprintf(r->user_id, sizeof(r->user_id), "%s", c->actor.user_id);
	k = id_new(r->id);
	if (k < 0)
		return reply_failed(c, (err_sys(&e, -k, "make an id"), &e));
	id = strdup(r->id);
	if (!id || envrun_add(c->api->db, r, &e) < 0) {
		free(id);
		return id ? reply_failed(c, &e) : reply_error(c, 503, "Out of memory, try again");
	}
	if (jobs_start(c->api, c->actor.user_id, make_request(c, r, root, env), run_done, id, &e) <
	    0) {
		free(id);
		r->status = ER_FAILED;
		(void)snprintf(r->reason, sizeof(r->reason), "not_started");
		(void)envrun_end(c->api->db, r, ER_QUEUED, NULL);
		if (e.code == ERR_INVALID)
			return reply_error(
			    c, 422,
			    "The environment has too much in its config and envVars for a run");
		return e.code == ERR_LIMIT ? reply_error(c, 503, "Too many runs wait, try again")
					   : reply_failed(c, &e);
	}
	run_log(c, "environment.run_started", r);
	run_view(c, r);
	return reply_out(c, 202);
}

int h_run_start(struct call *c)
{
	_cleanup_environment_ struct environment_row env;
	const char *root_name = json_string_value(json_object_get(c->body, "workspaceRoot")),
		   *path = json_string_value(json_object_get(c->body, "workspacePath"));
	struct envrun_row r = {
	    .command = (char *)(uintptr_t)json_string_value(json_object_get(c->body, "command")),
	    .review = json_is_true(json_object_get(c->body, "review")),
	    .timeout_s = json_integer_value(json_object_get(c->body, "timeoutSeconds"))};
	const struct api_root *root;
	const char *no;

	if (env_find(c, &env))
		return 0;
	no = beyond_runs(c, &env);
	if (no)
		return reply_error(c, strcmp(env.status, "active") != 0 ? 409 : 422, no);
	if (run_company(c, env.id, r.company_id))
		return 0;
	memcpy(r.environment_id, env.id, sizeof(r.environment_id));
	(void)snprintf(r.root, sizeof(r.root), "%s", root_name);
	(void)snprintf(r.path, sizeof(r.path), "%s", path ? path : "");
	if (!r.timeout_s)
		r.timeout_s = API_RUN_SECONDS;
	root = run_place(c, &r);
	if (!root || warm_for_nobody(c, &env) || preset_missing(c, &env) ||
	    vars_missing(c, &r, &env))
		return 0;
	if (jobs_runs_full(c->api, c->actor.user_id))
		return reply_errorf(
		    c, 503, "%d runs wait for their turn, or half as many of yours; try again",
		    API_RUNS_WAITING_MAX);
	return begin(c, &r, &env, root);
}
