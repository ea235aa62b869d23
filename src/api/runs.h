/*
 * runs.h: runs through the API: a command in a sandbox with a workspace of this host, whose results come back through door 1.
 *
 * Which directories of the host may be a workspace is the operator's word alone: --workspace-root NAME=PATH, for every company
 * or for one. A caller names a root and a path below it, and never a path of the host. The path is judged twice, in the
 * daemon and again by the job that uses it: resolved beneath the root without following a link; what is not there, what is
 * a link, and a root that is another company's or nobody's have one answer. A workspace never holds or lies in the state
 * directory, so no run brings the daemon's own files into a sandbox.
 *
 * The sandbox is the native provider's with the network and the limits of the environment's configuration, and nothing that the
 * environment asks for is left out: one that asks for what a run cannot give is refused.
 *
 * A run is a job of its own (jobs.h) that outlives the daemon; its rows are in both databases under one id, so that
 * `airlock runs`, `logs`, `diff`, `apply` and `recover` know it too.
 */
#ifndef AIRLOCK_API_RUNS_H
#define AIRLOCK_API_RUNS_H

#include "api/leases.h"
#include "store/envrun.h"

/* --workspace-root: [COMPANY-ID/]NAME=PATH. 0 or ERR_USAGE. */
int runs_add_root(struct api_config *cfg, const char *text, struct err *e);
/* The root of that name that the company may use; its own comes before everybody's. NULL: none. */
const struct api_root *runs_root(const struct api_config *cfg, const char *company,
				 const char *name);
/*
 * A directory below a root: its real path (heap), or a negative errno; which one is nobody's business. state_dir: of the
 * daemon.
 */
int runs_resolve(const char *root, const char *path, const char *state_dir, char **ret);
/* A run that the actor may see, by the first parameter of the path; 0, or 1: answered 404. */
int run_find_call(struct call *c, struct envrun_row *ret);
/* Tells every open run of an environment to stop; those that wait are over with that. 0 or negative errno. */
int runs_cancel_all(struct call *c, const char *environment_id, struct err *e);

/* Job side. */
json_t *job_run(struct job_ctx *x, const json_t *request);
/* Runs whose owner died: what became of them is written down. How many. */
int64_t job_sweep_runs(struct job_ctx *x);

#endif
