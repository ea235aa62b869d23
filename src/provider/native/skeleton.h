/*
 * skeleton.h: the names of a sandbox's root, kept in the state directory from one start to the next.
 *
 * Two thirds of the calls that build a root make its names: directories, links, places to mount on, the small files of
 * /etc. They are the same at each start as long as the plan's places, the host's /etc and this program are, so they are
 * made once, below <state>/roots/<hash of all that they depend on>/root, and each sandbox mounts that read-only. What is
 * mounted on them is never kept. A kept root serves until the next boot, and its files' bytes are on the disk before it has its name, so
 * neither a crash nor a disk that went away leaves half of one behind (but for file systems without a log, which lose names).
 *
 * Where no root can be kept (no roots/, no space, no flock, a mount that follows no links, an imported system image, one
 * that is just being removed), the child makes the names in a tmpfs of its own, as it would without this. What does make
 * a start fail: a root that others have damaged, for its contents are never looked at (remove roots/<hash>), and the source of a bind
 * that becomes a directory, or ceases to be one, during the start.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_SKELETON_H
#define AIRLOCK_PROVIDER_NATIVE_SKELETON_H

#include <stdbool.h>

#include "provider/plan.h"

struct skeleton {
	int lock; /* shared, for the sandbox's life: what is mounted is not removed; -1: there is none */
	int tree;   /* of mounts, where launch makes the copy; -1: the child does */
	char *path; /* owned; for the child */
};

void skeleton_init(struct skeleton *k);
/* All but the lock. */
void skeleton_settle(struct skeleton *k);
/*
 * Finds or makes the root for this plan. opens: this process copies it (places_open). Before there is a child, since this
 * allocates, and calls here may fail.
 */
void skeleton_open(struct skeleton *k, const struct plan *p, bool opens);
/* In the child: a detached read-only mount, or -1. The caller's to close. */
int skeleton_tree(const struct skeleton *k);

#endif
