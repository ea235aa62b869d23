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
/* The row of a job that failed: if it is still the daemon's, it is nobody's now, and the sweep's. */
void lease_forsake(struct api *a, const char *id);
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

/*
 * Moves of a row, each by compare and swap against what was read: 0, or negative (ERR_CONFLICT: somebody else was first, or
 * the table forbids it), and then l is as it was.
 */
/* Moved on; nobody works on it any more. */
int lease_step(struct db *db, struct envlease_row *l, enum envlease_status to, enum lease_cause why,
	       struct err *e);
/* Moved on and this process's own. */
int lease_seize(struct job_ctx *x, struct envlease_row *l, enum envlease_status to,
		enum lease_cause why, struct err *e);
/* This process's own, and nobody's. */
int lease_own(struct job_ctx *x, struct envlease_row *l, struct err *e);
int lease_let_go(struct db *db, struct envlease_row *l, struct err *e);
/*
 * The row of a request, read, judged and made this process's own: ERR_CONFLICT when somebody who lives works on it, or when
 * it cannot make that move any more. With MOVED_ACQUIRED the row is the daemon's, and only then is it taken from it.
 */
struct lease_want {
	enum envlease_status to;
	enum lease_cause why;
};
int lease_take(struct job_ctx *x, const char *id, const struct lease_want *want,
	       struct envlease_row *l, struct err *e);
/* The last step of an acquisition: active, unless nobody waits for it any more. ERR_CANCELLED, ... */
int lease_hand_over(struct job_ctx *x, struct envlease_row *l, struct err *e);
/* Ends what runs, with proof; storage_too: removes it. The row is not written. */
int lease_stop(struct job_ctx *x, struct envlease_row *l, bool storage_too, struct err *e);
/* The configuration that a lease was made with (owned). */
json_t *lease_config(const struct envlease_row *l);
/* The moment at which it is acquired: its time begins then. */
void lease_begun(struct envlease_row *l);
/* From a row in work to a running sandbox and an active row; if that fails, to neither. */
int lease_make(struct job_ctx *x, struct envlease_row *l, struct err *e);
/* Ends and removes; the row becomes expired, or stays pending_cleanup with one attempt more. */
int lease_tear_down(struct job_ctx *x, struct envlease_row *l, const char *reason, struct err *e);

/* Ends a probe's lease: released, with proof, or pending_cleanup. */
void lease_probe_end(struct job_ctx *x, struct envlease_row *l, bool ok);

#endif
