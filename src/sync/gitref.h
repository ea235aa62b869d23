/*
 * gitref.h: one ref of a host repository set, by compare-and-swap, and by nobody who is left alone.
 *
 * git that outlives a killed airlock would still move a branch, after its lock of the index was swept or after the user
 * dropped the commits. So it gets the change as a transaction whose last word, the commit, is said by a living airlock only:
 * git that finds the end of its input instead takes nothing over and lets go of its locks.
 */
#ifndef AIRLOCK_SYNC_GITREF_H
#define AIRLOCK_SYNC_GITREF_H

#include "sync/git.h"

/*
 * name becomes `to`, an object id, with `message` in its log. old NULL: whatever it is; "": it must not exist. extra_env:
 * as of git_run. 1 done, 0 it is not as expected (or locked), negative errno.
 */
int gitref_set(const struct git_repo *g, const char *name, const char *to, const char *old,
	       const char *message, const char *const *extra_env, struct err *e);

#endif
