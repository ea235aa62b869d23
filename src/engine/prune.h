/*
 * prune.h: gives back what the state directory holds and nobody needs.
 *
 * trash/: all of it, however long it takes. workspaces/<key>: copies that no lease uses and no process holds, not used
 * since before_ns; the next run copies anew. roots/: what no sandbox uses and none did since before_ns, or for 7 days; the next start
 * makes what it needs (provider/native/kept.h). Runs: rows, logs and records of sandboxes that are gone and whose last command ended
 * before before_ns. A run that keeps what may be nowhere else (keepsake.h) stays unless `yes`; one whose results
 * wait for a decision stays always. Sandboxes are never touched, nor what `airlock unpack` keeps (unpacks.h).
 *
 * Whatever goes is renamed first, into trash/ or, in roots/, to a name that is no root's: killed in between, the next call finds it.
 */
#ifndef AIRLOCK_ENGINE_PRUNE_H
#define AIRLOCK_ENGINE_PRUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "engine/state.h"

struct prune_opts {
	int64_t before_ns;
	bool dry_run; /* same result, nothing is changed */
	bool yes;
};

struct prune_kind {
	uint64_t count, bytes; /* gone; bytes as the disk counts them */
	uint64_t used;	       /* in use, so they stay; not known for trash */
};

struct prune_kept {
	char run[ID_LEN + 1];
	bool waiting; /* results wait; else they may be the only copies */
	uint64_t files, bytes;
};

struct prune_result {
	struct prune_kind trash, workspaces, roots, runs;
	struct prune_kept *kept; /* owned */
	size_t kept_n;
	uint64_t failed; /* objects that could not be removed */
};

/* 0, or the first failure; the others are done nevertheless, and the result is valid. */
int prune(struct state *st, const struct prune_opts *o, struct prune_result *ret, struct err *e);
void prune_result_done(struct prune_result *r);
#define _cleanup_prune_ __attribute__((cleanup(prune_result_done)))

#endif
