/*
 * sweep_elsewhere.h: what a sweep does about other machines: which it tries, and whose keys that takes. Internal to sweep*.c.
 */
#ifndef AIRLOCK_ENGINE_SWEEP_ELSEWHERE_H
#define AIRLOCK_ENGINE_SWEEP_ELSEWHERE_H

#include <stdbool.h>

#include "engine/leasespec.h"
#include "engine/state.h"
#include "store/lease.h"

/* The newest run of a lease, for messages; "" none. */
void sweep_newest_run(struct state *st, const struct lease_row *l, char out[ID_LEN + 1]);
/* Whether what a dead owner left in the lease is work, which stays for who recovers it. */
bool sweep_keeps(const struct lease_row *l, const struct lease_spec *s);
/*
 * A machine that cannot be reached must not keep every command waiting, nor other leases from being swept: it is
 * tried now and then, by whoever comes by.
 */
bool sweep_away(struct state *st, const struct lease_row *l);
/* Before the try: a sweep that is killed in it is one as well. */
void sweep_note_try(struct state *st, const struct lease_row *l);
/* Its key is a secret that another process has (airlockd): whoever cannot go there leaves the turn to who can. */
bool sweep_lacks_key(const struct state *st, const struct lease_spec *s);

#endif
