/*
 * kept.h: the directory of kept roots (skeleton.h), <state>/roots: who holds one, and what goes.
 *
 * A root is a directory there, named by its key. One that is under way, or on its way out, has another name, KEPT_MAKING and an id.
 * Whoever makes or uses one holds a shared flock on it; whoever removes one holds that alone, and the directory's too, so
 * that no two remove at a time. A name is looked up once more when there is a lock, for it may be another's by then. Of
 * this a sandbox sees no inode that is locked (its root lies one level below), so no lock of its own is in the way.
 * Where the file system has no flock, nothing is used and nothing removed.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_KEPT_H
#define AIRLOCK_PROVIDER_NATIVE_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#define KEPT_DIR "roots"
#define KEPT_NAME 32 /* hexadecimal digits */
#define KEPT_MAKING ".new-"
#define KEPT_UNUSED_S (7 * 86400) /* the use of a root is noted to the day */

/* Shared, and that it is used. The descriptor; -ENOENT: there is none; -EBUSY: it is being removed, or was. */
int kept_hold(int roots, const char *name);

struct kept_sweep {
	/* A root goes that nobody has used for so long; what was under way, once nobody makes it. */
	int64_t unused_s;
	unsigned entries; /* that may be removed; what is left then goes the next time */
	int64_t until_ns; /* by the monotonic clock: from then on no more than one in all */
	bool wait;	  /* for another one that removes; else it does that */
	bool dry_run;
	void (*each)(void *arg, const char *name); /* before it goes; NULL: nobody asks */
	void *arg;
	uint64_t gone, used; /* roots; set here */
};

/* 0, or the first negative errno; -EAGAIN: not all that may go is gone. */
int kept_sweep(int roots, struct kept_sweep *s);

#endif
