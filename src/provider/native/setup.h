/*
 * setup.h: inside airlock-launch, from a judged plan to a running guest.
 *
 * launch (outside): launch.c reads the plan, makes the namespaces, writes the id maps, hears that the storage is
 * there, waits. child (inside, pid 1): child.c lets image.c, build.c and workspace.c build the tree, then
 * gives everything up and becomes the guest. What fails is told in a struct failure over a socket
 * pair, and by launch to airlock, which finds words for it (step.h).
 * names.c makes what image.c and build.c mount on, for this start or to be kept (skeleton.c).
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_SETUP_H
#define AIRLOCK_PROVIDER_NATIVE_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "provider/native/skeleton.h"
#include "provider/native/step.h"
#include "provider/plan.h"

/* Guest, gateway, binds. */
#define TREES_MAX (2 + PLAN_BINDS_MAX)
/* Lease, home, tmp, upper; system image; layers; guest, gateway; binds. */
#define PLACES_MAX (5 + PLAN_LAYERS_MAX + 2 + PLAN_BINDS_MAX)

/* What is to be mounted, held by descriptor until the new root exists. */
struct tree {
	const char *dst; /* of the plan, or a literal; relative to the new root */
	int fd;		 /* owned */
	bool dir;
};

struct image {
	struct tree ro[TREES_MAX];
	size_t ro_len;
	int layers[PLAN_LAYERS_MAX]; /* owned, as all that follow */
	int lease;		     /* upper and work, below one mount as overlay demands */
	int system;		     /* of an imported image; -1: the host's programs */
	int home, tmp, upper_ro, aside;
	int root; /* the new one */
	dev_t root_dev;
	ino_t root_ino;
};

void image_init(struct image *im);
/*
 * The new root and the host's part of it: nothing that the plan names on the host, so it needs no storage yet. Ids are
 * mapped already: a file without an owner cannot be made. Leaves the current directory at the new root.
 */
int image_base(struct image *im, const struct plan *p, const struct skeleton *kept,
	       struct failure *f);
/*
 * Adds what the plan names, and makes the tree the root. The old one lies over the current directory still, and nothing
 * but that leads to it.
 */
int image_build(struct image *im, const struct plan *p, struct failure *f);
/* Fails unless the old root is gone. Changes the current directory to "/". Needs no rights. */
int image_prove(const struct image *im, struct failure *f);
/* Binds programs, libraries and what root has of the host's /etc. The current directory is root, here and below. */
int image_system(int root, struct failure *f);
/* A link `name` below root that has the target of the one at `at` in dirfd. */
int image_link(int root, const char *name, int dirfd, const char *at, struct failure *f);
/* The same from an imported image, once its descriptor is there. Over the old root's /usr, for image_stage to cover. */
int image_imported(const struct image *im, struct failure *f);
/* /etc's own files: generated, never the host's. */
int image_etc(int root, const struct plan *p, struct failure *f);
/* The device nodes, once what must not hold devices has been told so. */
int image_dev(struct failure *f);
/* Makes the workspace, aside. Changes the current directory. */
int image_stage(struct image *im, const struct plan *p, struct failure *f);
/* Moves it to its place. */
int image_workspace(const struct image *im, const struct plan *p, struct failure *f);
/* Adds one tree; takes the descriptor. */
int image_add(struct image *im, const char *dst, int fd, bool dir, struct failure *f);
/* Makes the mount point (and its parents) for a tree below rootfd. 0 or negative errno. */
int image_point(int rootfd, const char *dst, bool dir);

/* What the plan names on the host, in a fixed order; owned. */
struct places {
	int fd[PLACES_MAX];
	bool dir[PLACES_MAX];
	size_t len;
};

void places_init(struct places *w);
void places_done(struct places *w);
/*
 * Opens everything that the plan names. Safe because: called with no more rights over files than the
 * invoking user's, on paths that plan_check has judged, following no link for what the user named.
 * Must run in a mount namespace in which the caller may copy mounts. Allocates nothing.
 */
int places_open(struct places *w, const struct plan *p, struct failure *f);
/* From launch to the child, in one message; it is also the word that the storage is there. 0 or negative errno. */
int places_send(int sock, const struct places *w);
/* w is empty afterwards if the message had no descriptors. -EPIPE: launch is gone. */
int places_recv(int sock, struct places *w);
/* Gives the descriptors to the image. */
int places_take(struct image *im, struct places *w, const struct plan *p, struct failure *f);

struct child {
	const struct plan *plan;
	const struct skeleton *kept;
	struct image *image;
	int sync; /* to launch: waits for id maps, then for storage; reports a failure */
	int peer; /* launch's end of that: closed at once */
	int guest_sock;
	void *stack_beside; /* top of a stack for beside.h */
	bool beside;	    /* a second task helps (beside.h) */
	bool opens; /* what the plan names, with ids it has only before it takes the mapped ones */
};

/*
 * Body of pid 1 of the sandbox, c a struct child. Never returns. Runs in launch's memory on a stack of its own
 * until it becomes the guest, as after vfork. Meanwhile launch touches nothing of c, allocates nothing, and makes no
 * call that is expected to fail: heap and errno are the child's.
 */
int child_main(void *c);

#endif
