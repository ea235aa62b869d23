/*
 * indexlock.h: git's lock of an index, held by us while an index is looked at, made anew and put, and a branch moves.
 *
 * As git does it: `index.lock` beside the index, made only where there is none. Between our look at the index and our write
 * nobody else writes it: who tries is told by git that it is locked, so nothing that a person stages is lost. The index
 * is worked on in a copy (`index.airlock`) and put by one rename. Who holds the lock is waited for INDEX_LOCK_WAIT_MS.
 *
 * The file says that it is ours, on the disk before it has its name, and we hold a flock on it: what a killed one of us left is told from one that is in use and
 * from git's own, and is taken over or removed. git's own is never touched, however old.
 */
#ifndef AIRLOCK_SYNC_INDEXLOCK_H
#define AIRLOCK_SYNC_INDEXLOCK_H

#include "base/err.h"
#include "sync/git.h"

struct indexlock {
	char *index; /* owned, as all below: the file itself, where links lead */
	char *lock, *copy, *copy_lock;
	int fd;	 /* of the lock; -1: not held */
	int old; /* the index as it was when the lock was taken, -1: there was none */
};

/* 0: held until indexlock_release. ERR_CONFLICT: somebody else holds it. */
int indexlock_take(const struct git_repo *g, struct indexlock *ret, struct err *e);
/* Makes the copy anew from what the index is; GIT_INDEX_FILE for git is l->copy. */
int indexlock_copy(const struct indexlock *l, struct err *e);
/*
 * Before each git that works on the copy: it gets no time. An entry as young as its index is "racily clean", and git opens the file in the
 * work tree and hashes it through the clean filter that the repository's config names and attributes, which may be a sandbox's, choose: a
 * program. No file is as young as an index without a time, so none is opened.
 */
int indexlock_quiet(const struct indexlock *l, struct err *e);
/* The copy becomes the index, with the time that the index had. */
int indexlock_put(const struct indexlock *l, struct err *e);
/* The index becomes what it was when the lock was taken. */
int indexlock_restore(const struct indexlock *l, struct err *e);
void indexlock_release(struct indexlock *l);
/* Removes what one of us left that was killed. */
void indexlock_sweep(const struct git_repo *g);
/* The same for the repository whose work tree dir is, if it is one. Needs no git. */
void indexlock_sweep_at(const char *dir);

#endif
