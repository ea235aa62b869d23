/*
 * leases.h: leases of the API (api.md 2.3, 7): acquire, resume, release, destroy, sweep.
 *
 * The daemon judges and writes the first row; a job does what touches a sandbox and moves the row on, each time by
 * compare and swap and only along the transition table (store/leasemove.h).
 */
#ifndef AIRLOCK_API_LEASES_H
#define AIRLOCK_API_LEASES_H

#include "api/api.h"
#include "store/envlease.h"
#include "store/leasemove.h"

/* Claims every reusable lease of an environment, ends them in a job; then next(c, how many). API_LATER or answered. */
int lease_destroy_reusable(struct call *c, const char *env_id,
			   void (*next)(struct call *c, int64_t n));
/* The rows of the sweep's job and of a probe's lease. */
struct lease_new {
	const char *company_id, *environment_id, *policy, *provider;
	const char *workspace_id, *issue_id, *run_id; /* NULL: none */
	const char *config;			      /* as stored; becomes part of metadata */
	int64_t ttl_s;				      /* 0: none */
};
/* Whether another sandbox may be made now: asked before lease_begin. 0, 1 answered. */
int lease_capacity(struct call *c);
/* Fills and adds a row in work (pending_cleanup, ENVLEASE_ACQUIRING), owned by the caller's process. */
int lease_begin(struct api *a, const struct lease_new *n, struct envlease_row *l, struct err *e);

/* Job side. Each gets its request and gives its answer (owned). */
struct job_ctx {
	struct state *st;
	struct db *db;
};
json_t *job_acquire(struct job_ctx *x, const json_t *request);
json_t *job_resume(struct job_ctx *x, const json_t *request);
json_t *job_release(struct job_ctx *x, const json_t *request);
json_t *job_destroy(struct job_ctx *x, const json_t *request);
json_t *job_sweep(struct job_ctx *x, const json_t *request);
json_t *job_probe(struct job_ctx *x, const json_t *request);
json_t *job_probe_draft(struct job_ctx *x, const json_t *request);
/* {ok: false, error}: what a person may read. */
json_t *job_failed(const struct err *e);

/* Moves a row that this process owns; -EBUSY when somebody else was first or the table forbids it. */
int lease_step(struct db *db, struct envlease_row *l, enum envlease_status to, enum lease_cause why,
	       struct err *e);
/* Makes the row this process's own, if nobody lives who has it. 1, or 0: somebody has it. */
int lease_own(struct job_ctx *x, struct envlease_row *l, struct err *e);
/* The configuration that a lease was made with (owned). */
json_t *lease_config(const struct envlease_row *l);
/* From a row in work to a running sandbox and an active row. */
int lease_make(struct job_ctx *x, struct envlease_row *l, struct err *e);
/* Ends and removes; the row becomes expired, or stays pending_cleanup with one attempt more. */
int lease_tear_down(struct job_ctx *x, struct envlease_row *l, const char *reason, struct err *e);

/* Ends a probe's lease: released, with proof, or pending_cleanup. */
void lease_probe_end(struct job_ctx *x, struct envlease_row *l, bool ok);

#endif
