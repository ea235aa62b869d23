/*
 * reach.h: whether a lease has anything on its machine, and how long who only cleans up waits for that.
 *
 * At the end of a run all is here, and a machine that is dead, or whose login hangs, must not hold it up: what is left there is a
 * sweep's. So getting there has REMOTE_REACH_MS, and twice what it took at the begin of the lease, which is kept in the lease's
 * directory: a machine that is always slow is cleaned up as well.
 */
#ifndef AIRLOCK_PROVIDER_SSH_REACH_H
#define AIRLOCK_PROVIDER_SSH_REACH_H

#include "provider/provider.h"

/*
 * The file "there" of the lease's directory, from before anything is made on that machine: without it there is nothing to forget.
 * ret_made NULL: looks alone, 1: it is there, 0: it is not. Else it is there then, and whether it was made now.
 */
int reach_mark(const struct sandbox_spec *s, bool *ret_made, struct err *e);
/* Nothing was made there, so there is nothing to forget: for who made the mark. */
void reach_unmark(const char *lease_dir);
/* In that file, which is there already. */
void reach_note(const char *lease_dir, int64_t took_ns);
/* From now on. */
int64_t reach_ns(const struct sandbox_spec *s);
int reach_failed(const char *label, int64_t ns, struct err *e);

#endif
