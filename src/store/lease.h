/*
 * lease.h: rows of leases: places that hold, or held, a sandbox and its storage.
 *
 * A row exists before any side effect it speaks of. Whoever moves a lease out of a state
 * does so with lease_claim, which succeeds for one process only. A kept lease has no owner: any number of
 * commands use it at once, each with a run of its own, and it cannot be claimed while one of them runs. `spec` is the engine's
 * JSON: what a later process needs to attach to the sandbox or to bring its work back.
 */
#ifndef AIRLOCK_STORE_LEASE_H
#define AIRLOCK_STORE_LEASE_H

#include <limits.h>
#include <stdbool.h>

#include "base/id.h"
#include "base/limits.h"
#include "os/proc.h"
#include "store/store.h"

enum lease_state {
	LEASE_ACQUIRING, /* row written, sandbox may or may not exist */
	LEASE_ACTIVE,	 /* in use by owner */
	LEASE_KEPT,	 /* alive without an owner, from the first command on (run --keep, shell) */
	LEASE_RECOVERABLE, /* nothing running; work inside was not brought back */
	LEASE_RECOVERING,  /* owner is bringing it back */
	LEASE_CLEANUP,	   /* storage to be removed */
	LEASE_RELEASED,	   /* nothing left */
	LEASE_STATE_COUNT
};

struct lease_row {
	char id[ID_LEN + 1];
	char provider[16];
	char env[NAME_MAX_LEN + 1];
	char workspace[PATH_MAX];
	enum lease_state state;
	struct proc_id owner;	/* pid 0: none */
	struct proc_id monitor; /* the process that ends with the sandbox; pid 0: none */
	int64_t created_ns, updated_ns, expires_ns;
	bool pending; /* kept: a command ran since everything was last brought back */
	char *spec;   /* owned */
};

const char *lease_state_name(enum lease_state s);
void lease_row_done(struct lease_row *l);
int lease_add(struct db *s, const struct lease_row *l, struct err *e);
/* 0, or ERR_NOT_FOUND. */
int lease_get(struct db *s, const char *id, struct lease_row *ret, struct err *e);
/* Writes state, owner, monitor, expiry and spec of a lease that the caller owns; never `pending`. */
int lease_save(struct db *s, const struct lease_row *l, struct err *e);
/*
 * Compare and swap: if the row is still as in *l (state and owner), takes it over with
 * the new state and owner and updates *l. 1 taken, 0 somebody else was first, or it is kept and in use.
 */
int lease_claim(struct db *s, struct lease_row *l, enum lease_state to, const struct proc_id *owner,
		struct err *e);
/* A kept lease is used by a command: pending, and good for longer. 1, or 0 when it is kept no more. */
int lease_use(struct db *s, const char *id, int64_t expires_ns, struct err *e);
/*
 * All that it holds is on the host as it was at turn_ns, when this run's packer had not begun: unless another run is going on in it, or
 * has ended since then without its results.
 */
int lease_settled(struct db *s, const char *id, const char *run_id, int64_t turn_ns, struct err *e);
/* Its sandbox has ended by itself: kept becomes recoverable, whoever uses it. 1, or 0 when it was not kept. */
int lease_lost(struct db *s, const char *id, struct err *e);
/* Every lease that is not released; array on the heap, free with lease_list_free. */
int lease_list(struct db *s, struct lease_row **ret, size_t *ret_n, struct err *e);
void lease_list_free(struct lease_row *v, size_t n);
/* Removes the row with its runs, phases and reports. */
int lease_remove(struct db *s, const char *id, struct err *e);

#endif
