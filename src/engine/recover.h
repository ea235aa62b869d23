/*
 * recover.h: brings back the work of a lease whose run was cut short.
 *
 * First a publish that was cut is finished or undone; then the sandbox's storage is packed by a
 * sandbox started anew on it (no command of the run runs again), judged and published as ever; then
 * the lease is released.
 */
#ifndef AIRLOCK_ENGINE_RECOVER_H
#define AIRLOCK_ENGINE_RECOVER_H

#include "engine/state.h"
#include "engine/transfer.h"

struct recover_opts {
	bool no_strict; /* take what is allowed, though the run said --strict */
	char **exclude; /* borrowed; patterns in addition to the run's own; may be NULL */
};

/* t is filled also on -EBADMSG; transfer_done it. *ret_run_dir: heap, where losers and trash lie. */
int recover_run(struct state *st, const char *word, const struct recover_opts *o,
		const struct run_ui *ui, struct transfer *t, char **ret_run_dir, struct err *e);

#endif
