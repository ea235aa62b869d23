/*
 * native_storage.h: the sandbox's own directories below a lease.
 *
 * upper, work (overlay), home, tmp. They belong to the sandbox user and hold whatever foreign code put
 * there: odd modes, endless depth, links. Nothing here follows a link or runs up to one.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_STORAGE_H
#define AIRLOCK_PROVIDER_NATIVE_STORAGE_H

#include <sys/types.h>

#include "base/err.h"

#define STORAGE_COPIED "copied" /* without overlay: upper holds the workspace (native_copy.c) */

/* Makes what is missing, owned by uid and gid ((uid_t)-1: the caller). A used overlay `work` is
 * replaced: the kernel refuses one that a volatile mount has left behind. */
int storage_make(const char *lease_dir, uid_t uid, gid_t gid, struct err *e);
/*
 * Moves all of it to `trash` (a directory on the same file system, or NULL: it is removed on the
 * spot) and removes up to `budget` entries of what lies in trash, for half a second at most; the rest is for the
 * next call. What lies in trash and cannot be removed is no failure: it is not this lease's.
 */
int storage_destroy(const char *lease_dir, const char *trash, unsigned budget, struct err *e);
/* Removes name below dirfd, whatever it is. Stops at the budget (-EAGAIN). 0 if absent. */
int storage_remove(int dirfd, const char *name, unsigned *budget);

#endif
