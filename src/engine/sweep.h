/*
 * sweep.h: what earlier processes left behind (FR-B023, B067, B128).
 *
 * A lease whose owner does not live any more is claimed, its sandbox is ended if it still
 * runs, and the lease becomes recoverable (work inside) or is cleaned up. Only rows of this state
 * directory are looked at. Each lease is claimed by one process only.
 */
#ifndef AIRLOCK_ENGINE_SWEEP_H
#define AIRLOCK_ENGINE_SWEEP_H

#include "engine/state.h"
#include "engine/ui.h"
#include "store/lease.h"

/*
 * Number of leases dealt with, or a negative errno: the leases cannot be listed. One that cannot be dealt with is a note, stays
 * as it is and holds up no other.
 */
int sweep_run(struct state *st, const struct run_ui *ui, struct err *e);
/* Whether something lives in the lease, or it waits for a sweep that could not deal with it yet. */
bool sweep_unsettled(const struct lease_row *l);
/* Whether a sweep now would go to another machine for it, and so wants the key of that. */
bool sweep_needs_key(struct state *st, const struct lease_row *l);
/* 0, or ERR_CONFLICT that names the command that runs in the lease. */
int sweep_in_use(struct state *st, const struct lease_row *l, struct err *e);
/* lease_claim where a person asked for it: whoever has it is named. 0 or negative errno. */
int sweep_claim(struct state *st, struct lease_row *l, enum lease_state to, struct err *e);
/* Ends what runs for a lease that the caller owns, and proves it. */
int sweep_end_sandbox(const struct lease_row *l, const char *run_id, struct err *e);
/*
 * Whose secrets are needed yet: names ("secret=" of provider/ssh/target.h; strv, owned) of leases whose owner is gone and that have
 * something on another machine, work to be brought back or storage to be removed.
 */
int sweep_owed(struct state *st, char ***ret, struct err *e);
/*
 * Each lease with something there, with its newest run; name NULL: it needs no secret. living: also those whose owner lives. cb: negative
 * ends it.
 */
int sweep_owed_each(struct state *st, bool living,
		    int (*cb)(void *arg, const char *name, const char *run_id), void *arg,
		    struct err *e);
/*
 * What the lease has on another machine stays there and is forgotten: for one that cannot be reached any more. An error
 * where it has nothing elsewhere.
 */
int sweep_give_up(struct state *st, const struct lease_row *l, struct err *e);
/*
 * Storage of a lease that the caller owns, to the trash and away; then the row says released. nothing_stays: on another machine no place of a mapping, and no tree for later
 * runs either.
 */
int sweep_remove_storage(struct state *st, struct lease_row *l, bool nothing_stays, struct err *e);
/* Of the directories of all runs of a lease, until run_locks_done. */
struct run_locks {
	int *fd; /* owned */
	size_t n;
	char busy[ID_LEN + 1];
};
/*
 * Against an apply, a recovery or a repair (sync/unpack_place.h) that is at the results of a run: 1 locked; 0 somebody is at
 * `busy`; negative errno.
 */
int sweep_lock_runs(struct state *st, const char *lease_id, struct run_locks *ret, struct err *e);
void run_locks_done(struct run_locks *l);
#define _cleanup_run_locks_ __attribute__((cleanup(run_locks_done)))
/*
 * Directories of all runs of a lease, with the pins of what waits in them, and a lock of the index that one left; the
 * rows stay. The caller holds their locks.
 */
int sweep_remove_runs(struct state *st, const char *lease_id, struct err *e);

#endif
