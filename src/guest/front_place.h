/*
 * front_place.h: a run's directory on another machine: <root>/.airlock-runtime/runs/<lease>, mode 0700.
 *
 *   lock       of those that work in it (front_lock.h)
 *   workspace  the tree that commands work in
 *   sent       the manifest of what was sent
 *   sandbox    storage of a sandbox of this machine's (wire/remote_box.h): workspace stays as it landed then
 *   join       sockets of sessions whose connection may be cut (front_join.h)
 *   index      what it looked like when it had landed (delta.h): there only when all of it had
 *
 * A run in place has its directory for the lock alone, and holds .airlock-runtime/in-place: one works in a root at a time.
 *
 * Beside the runs, bases/: what the next runs start from (front_base.h).
 */
#ifndef AIRLOCK_GUEST_FRONT_PLACE_H
#define AIRLOCK_GUEST_FRONT_PLACE_H

#include "guest/packer.h"
#include "wire/remote.h"

struct front_place {
	int run, lock;
	int alone;	/* held as long as we work in the root itself; -1: we do not */
	uint32_t owner; /* of what lands: struct rm_open */
	int programs; /* where this program lies, held shared: no clean takes it from under a session; -1 */
	bool removed;		/* one has, before we held it */
	struct pack_place pack; /* index -1: nothing has landed yet */
};

/* Where this program lies, or an equal one that was put there since. */
int front_place_self(char *path, size_t size);
/* From then on, until this process ends, its programs stay. */
void front_place_init(struct front_place *p);
/* Makes or finds it and takes the lock; with RO_REMOVE takes it away. what (RM_WHAT_MAX + 1): the step that failed. 0, negative errno. */
int front_place_open(struct front_place *p, const struct rm_open *m, char *what);
/*
 * Removes our programs from the directory of this one, unless another session needs them, and from root the directories of runs (by
 * their names) in which nobody works and in which nothing has landed. One with a workspace is only counted: whose work it is, the
 * host knows that began it. 0, negative errno and what.
 */
int front_place_clean(struct front_place *p, const char *root, struct rm_cleaned *ret, char *what);
/* A directory of ours alone: nobody else may put things where commands work. A descriptor, negative errno; ret_made only if make. */
int front_place_own_dir(int at, const char *name, bool make, bool *ret_made);
/* The directory of a run that is there, without its lock. Negative errno. */
int front_place_find(const char *root, const char *lease);
/* In it, that of the sockets by which sessions get another connection (front_join.h). Negative errno. */
int front_place_join(int run, bool make);
/* Whether that is want of room, and whether what next runs start from was removed for some. */
bool front_place_full(int error);
bool front_place_room(struct front_place *p);
/* The workspace has landed. */
int front_place_landed(struct front_place *p);

#endif
