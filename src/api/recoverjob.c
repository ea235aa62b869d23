/*
 * recoverjob.c: brings back the work that a run of the API left behind, in a job: what `airlock recover` does, with the keys
 * that only the daemon can open.
 *
 * Policy: as of results (changesetjob.c): writes only through door 1, below the root that the run's own row names, which must be
 * the directory that the daemon resolves for the run now. The key of an SSH environment is opened for this and written down.
 */
#include <stdio.h>
#include <string.h>

#include "api/changesets.h"
#include "api/runhost.h"
#include "api/runs.h"
#include "api/runwish.h"
#include "api/sshenv.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "engine/recover.h"
#include "store/lease.h"
#include "store/run.h"
#include "wire/jsonmember.h"

static void to_log(void *arg, bool loud, const char *text)
{
	(void)loud;
	(void)fprintf(stderr, "airlockd: recover %s: %s\n", (const char *)arg, text);
}

/* Its lease, whose workspace is still the run's. */
static int lease_of(struct job_ctx *x, const json_t *j, struct lease_row *l, struct err *e)
{
	_cleanup_free_ char *real = NULL;
	struct run_row run = {0};
	int r = run_get(x->st->store, json_member_text(j, "runId"), &run, e);

	if (r == 0)
		r = lease_get(x->st->store, run.lease_id, l, e);
	run_row_done(&run);
	if (r == 0 && (runs_resolve(json_member_text(j, "root"), json_member_text(j, "path"),
				    x->st->dir, &real) < 0 ||
		       strcmp(real, l->workspace) != 0))
		r = err_set(e, ERR_NOT_FOUND, "its workspace is not what it was");
	return r;
}

/* Nothing of it waits any more: somebody brought it back at a shell, or a recovery was cut behind that. */
static bool waits_no_more(struct job_ctx *x, const struct lease_row *was)
{
	struct lease_row now = {0};
	struct err e = ERR_INIT;
	bool over = was->id[0] && lease_get(x->st->store, was->id, &now, &e) == 0 &&
		    (now.state == LEASE_RELEASED || now.state == LEASE_CLEANUP);

	lease_row_done(&now);
	return over;
}

json_t *job_recover(struct job_ctx *x, const json_t *request)
{
	const char *id = json_member_text(request, "runId");
	const struct run_ui ui = {
	    .in = -1, .out = -1, .err = -1, .note = to_log, .arg = (void *)(uintptr_t)id};
	_cleanup_free_ char *run_dir = NULL;
	struct lease_row l = {0};
	struct transfer t = {0};
	_cleanup_strv_ char **exclude = NULL;
	struct recover_opts o = {.no_strict = json_is_true(json_object_get(request, "noStrict"))};
	struct sshenv_keys keys = {0};
	struct err e = ERR_INIT;
	json_t *answer;
	int r = runhost_prepare(&e);

	if (r == 0)
		r = runwish_texts(json_object_get(request, "exclude"), &exclude, &e);
	o.exclude = exclude;

	if (r == 0)
		r = lease_of(x, request, &l, &e);
	if (r == 0) {
		sshenv_keys_of(&keys, x, &l);
		r = recover_run(x->st, id, &o, &ui, &t, &run_dir, &e);
		x->st->identities = NULL;
		sshenv_keys_done(&keys);
	}
	if (r >= 0)
		r = envrun_recovered(x->db, id, &e);
	else if (waits_no_more(x, &l))
		(void)envrun_recovered(x->db, id, NULL); /* the answer stays what it is */
	answer = r < 0 ? json_pack("{s:b,s:i,s:s}", "ok", 0, "code", (int)e.code, "error", e.text)
		       : json_pack("{s:b,s:b}", "ok", 1, "done", 1);
	transfer_done(&t);
	lease_row_done(&l);
	return answer;
}
