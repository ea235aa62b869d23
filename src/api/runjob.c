/*
 * runjob.c: the side of a run through the API that touches the host: runs in a job, which outlives the daemon.
 *
 * Policy: the workspace is judged again here, beneath its root, and what is given to the engine is the real path that was
 * found. Network and limits are the environment's, as the daemon read them when the run was asked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/runhost.h"
#include "api/runs.h"
#include "api/runvars.h"
#include "api/runwish.h"
#include "api/sshenv.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "store/environment.h"
#include "wire/jsonmember.h"

static uint64_t number(const json_t *config, const char *name)
{
	json_int_t v = json_integer_value(json_object_get(config, name));

	return v > 0 ? (uint64_t)v : 0;
}

/* On another machine. Its directory is made, if it is not there. */
static int go_there(struct job_ctx *x, const struct runvars_use *use, const json_t *config,
		    struct runhost_want *w, struct runhost_result *ret, const char **ret_reason,
		    struct err *e)
{
	char consumer[RUN_CONSUMER_MAX];
	const struct sshenv_use u = {use->company_id, use->environment_id, consumer, use->actor,
				     NULL};
	_cleanup_sshenv_ struct sshenv s = SSHENV_INIT;
	struct sshenv_ready ready;
	int r;

	runvars_consumer(use->run_id, consumer);
	*ret_reason = "secret_unavailable";
	r = sshenv_open(&s, x, &u, config, e);
	if (r < 0)
		return r;
	*ret_reason = "connect_failed";
	r = sshenv_ready(&s, &ready, e);
	free(ready.cwd);
	if (r < 0)
		return r;
	*ret_reason = "prepare_failed";
	w->remote = s.words;
	x->st->identities = s.identities;
	r = runhost_run(x->st, w, ret, e);
	x->st->identities = NULL;
	return r;
}

static int go(struct job_ctx *x, const json_t *j, struct runhost_result *ret,
	      const char **ret_reason, struct err *e)
{
	const json_t *config = json_object_get(j, "config");
	const struct runvars_use use = {.company_id = json_member_text(j, "companyId"),
					.environment_id = json_member_text(j, "environmentId"),
					.run_id = json_member_text(j, "runId"),
					.actor = json_member_text(j, "actor")};
	_cleanup_runvars_ char **vars = NULL;
	_cleanup_strv_ char **exclude = NULL;
	_cleanup_free_ char *real = NULL;
	struct runhost_want w = {
	    .run_id = json_member_text(j, "runId"),
	    .command = json_member_text(j, "command"),
	    .preset = json_member_text(j, "preset"),
	    .timeout_ns = number(j, "timeoutSeconds") * NS_PER_S,
	    .review = json_is_true(json_object_get(j, "review")),
	    .local = strcmp(json_member_text(j, "driver"), "local") == 0,
	};
	bool ssh = strcmp(json_member_text(j, "driver"), "ssh") == 0;
	int r;

	/* The configuration of driver local is the operator's own and means nothing here. */
	if (!w.local && !ssh) {
		w.image = json_member_text(config, "image");
		w.host_network = strcmp(json_member_text(config, "network"), "host") == 0;
		w.memory = number(config, "memoryBytes");
		w.pids = number(config, "pids");
		w.cpu_milli = number(config, "cpuMillis");
	}
	*ret_reason = "prepare_failed";
	if (runs_resolve(json_member_text(j, "root"), json_member_text(j, "path"), x->st->dir,
			 &real) < 0)
		return err_set(e, ERR_NOT_FOUND, "its workspace is not what it was");
	r = runwish_get(j, &w, &exclude, e);
	if (r == 0)
		r = runvars_make(x->st, x->db, &use, json_object_get(j, "envVars"), &vars,
				 ret_reason, e);
	if (r < 0)
		return r;
	w.workspace = real;
	w.vars = vars;
	w.exclude = exclude;
	if (ssh)
		return go_there(x, &use, config, &w, ret, ret_reason, e);
	*ret_reason = "prepare_failed";
	r = runhost_run(x->st, &w, ret, e);
	if (r < 0 && w.preset[0])
		*ret_reason = "preset_failed";
	return r;
}

/*
 * It may have waited for hours: the environment is what it is now. Archiving it stops what waits, and what it gives (network,
 * limits, machine, variables) is what it gives now. What was judged for another driver when the run was asked for is not run.
 */
static int look_again(struct job_ctx *x, json_t *j, const char **ret_reason, struct err *e)
{
	_cleanup_environment_ struct environment_row env = {0};
	int r = environment_get(x->db, json_member_text(j, "environmentId"), &env, e);

	*ret_reason = "environment_not_found";
	if (r <= 0)
		return r < 0 ? r : err_set(e, ERR_NOT_FOUND, "its environment is gone");
	*ret_reason = "environment_inactive";
	if (strcmp(env.status, "active") != 0)
		return err_set(e, ERR_CONFLICT, "its environment is not active any more");
	*ret_reason = "environment_changed";
	if (strcmp(env.driver, json_member_text(j, "driver")) != 0)
		return err_set(e, ERR_CONFLICT, "its environment has another driver now");
	(void)json_object_set_new(j, "config", json_loads(env.config, 0, NULL));
	(void)json_object_set_new(j, "envVars", json_loads(env.env_vars, 0, NULL));
	return 0;
}

/* How it ended, in the words of the API. The report says the rest, to administrators. */
static void judge(const struct runhost_result *o, struct envrun_row *r)
{
	r->exit_status = o->exit_status;
	r->kept = o->kept;
	r->status = o->timed_out     ? ER_TIMED_OUT
		    : o->stopped     ? ER_CANCELLED
		    : o->failed	     ? ER_FAILED
		    : o->exit_status ? ER_FAILED
				     : ER_SUCCEEDED;
	if (o->stopped)
		(void)snprintf(r->reason, sizeof(r->reason), "cancelled");
	else if (o->failed)
		(void)snprintf(r->reason, sizeof(r->reason), "%s_failed",
			       o->phase[0] ? o->phase : "run");
}

json_t *job_run(struct job_ctx *x, const json_t *request)
{
	struct envrun_row row = {
	    .status = ER_FAILED, .exit_status = -1, .reason = "prepare_failed"};
	struct runhost_result out;
	const char *reason = "not_started";
	struct err e = ERR_INIT;
	json_t *now;
	/* Before the row is this process's: from then on it may be told to stop. */
	int r = runhost_prepare(&e);

	(void)snprintf(row.id, sizeof(row.id), "%s", json_member_text(request, "runId"));
	if (r == 0)
		r = envrun_take(x->db, row.id, &x->st->self, &e);
	if (r < 0)
		return job_failed(&e);
	if (r == 0)
		return json_pack("{s:b}", "ok", 1); /* cancelled before its turn came */
	row.reason[0] = '\0';
	now = json_copy((json_t *)(uintptr_t)request);
	r = now ? look_again(x, now, &reason, &e) : err_set(&e, ERR_NOMEM, "run: out of memory");
	if (r == 0)
		r = go(x, now, &out, &reason, &e);
	json_decref(now);
	if (r == 0) {
		judge(&out, &row);
	} else {
		(void)snprintf(row.reason, sizeof(row.reason), "%s", reason);
		(void)fprintf(stderr, "airlockd: run %s: %s\n", row.id, e.text);
	}
	r = envrun_end(x->db, &row, ER_RUNNING, &e);
	return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
}

/* --- what died ---------------------------------------------------------------------------- */

struct dead {
	char id[API_RUNS_MAX + API_RUNS_WAITING_MAX][ID_LEN + 1];
	bool began[API_RUNS_MAX + API_RUNS_WAITING_MAX];
	size_t n;
};

static int collect(void *arg, const struct envrun_row *r)
{
	struct dead *d = arg;

	if (d->n == ARRAY_LEN(d->id) || (r->owner.pid && proc_alive(&r->owner)))
		return 0;
	d->began[d->n] = r->status == ER_RUNNING;
	memcpy(d->id[d->n++], r->id, ID_LEN + 1);
	return 0;
}

static bool end_dead(struct job_ctx *x, const char *id, bool began)
{
	struct envrun_row row = {.status = ER_INTERRUPTED, .exit_status = -1};
	struct runhost_result was = {.exit_status = -1};
	struct err e = ERR_INIT;

	memcpy(row.id, id, sizeof(row.id));
	(void)snprintf(row.reason, sizeof(row.reason), "%s",
		       began ? "owner_died" : "never_started");
	/* Not over as long as its sandbox may live. */
	if (began && !runhost_look(x->st, id, &was))
		return false;
	row.exit_status = was.exit_status;
	row.kept = was.kept;
	if (was.ended)
		row.status = was.exit_status ? ER_FAILED : ER_SUCCEEDED;
	if (envrun_end(x->db, &row, began ? ER_RUNNING : ER_QUEUED, &e) <= 0)
		return false;
	(void)fprintf(stderr, "airlockd: run %s ended with the process that ran it%s%s\n", row.id,
		      row.kept ? "; its work is kept: airlock recover " : "",
		      row.kept ? row.id : "");
	return true;
}

/* Ids of runs whose rows say that work waits. */
struct waiting {
	char id[API_RECOVER_MAX][ID_LEN + 1];
	size_t n;
};

static int collect_waiting(void *arg, const struct envrun_row *r)
{
	struct waiting *w = arg;

	if (w->n < ARRAY_LEN(w->id))
		memcpy(w->id[w->n++], r->id, ID_LEN + 1);
	return 0;
}

/* Somebody brought it back, or gave it up, at a shell: the rows say so. */
static void forget_what_is_back(struct job_ctx *x)
{
	const struct envrun_filter f = {.kept = true, .limit = API_RECOVER_MAX};
	struct waiting w = {.n = 0};
	struct err e = ERR_INIT;
	int r = envrun_each(x->db, &f, collect_waiting, &w, &e);

	for (size_t i = 0; r >= 0 && i < w.n; i++)
		if (!runhost_waits(x->st, w.id[i]))
			r = envrun_recovered(x->db, w.id[i], &e);
	if (r < 0)
		(void)fprintf(stderr, "airlockd: runs: %s\n", e.text);
}

int64_t job_sweep_runs(struct job_ctx *x)
{
	const struct envrun_filter f = {.open = true, .limit = API_LIST_MAX};
	struct dead d = {.n = 0};
	struct err e = ERR_INIT;
	struct sshenv_keys keys;
	bool swept;
	int64_t n = 0;

	sshenv_keys_open(&keys, x);
	/* Keys were opened for what only this sweep can deal with. */
	swept = envrun_each(x->db, &f, collect, &d, &e) >= 0 &&
		((!d.n && !keys.n) || runhost_sweep(x->st, &e) >= 0);
	x->st->identities = NULL;
	sshenv_keys_done(&keys);
	if (!swept)
		(void)fprintf(stderr, "airlockd: runs: %s\n", e.text);
	/* What became of one that began is known only once its sandbox was looked at: the next sweep says it. */
	for (size_t i = 0; i < d.n; i++)
		if (swept || !d.began[i])
			n += end_dead(x, d.id[i], d.began[i]);
	forget_what_is_back(x);
	return n;
}
