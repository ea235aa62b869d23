/*
 * gitindex.h: the host's index follows a branch that history moved.
 *
 * Only entries of paths that differ between the two commits, and only those that still are as in
 * the old one: they become as in the new one. What the user has staged differently, unmerged or
 * removed stays (F23), as does every other entry with its flags and stat fields. The work tree is not
 * looked at by us, and the new entries have no stat fields: git compares them when asked. One thing is
 * git's own: an entry as young as the index is read again when the index is written, through the
 * filter that the user's own configuration names for it, as every git command of the user does.
 *
 * Plumbing of the hardened wrapper only (git.h), on a copy while the caller holds git's own index.lock (indexlock.h): what
 * somebody stages meanwhile is not lost, because it cannot be staged meanwhile.
 */
#ifndef AIRLOCK_SYNC_GITINDEX_H
#define AIRLOCK_SYNC_GITINDEX_H

#include "base/err.h"
#include "sync/git.h"
#include "sync/indexlock.h"

/* Ids of commits; "" is the empty tree. l: held; indexlock_restore undoes it. Failed: the index is as it was. */
int gitindex_follow(const struct git_repo *g, const struct indexlock *l, const char *from,
		    const char *to, struct err *e);

#endif
