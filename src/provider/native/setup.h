/*
 * setup.h: inside airlock-launch, from a judged plan to a running guest.
 *
 * launch (outside): launch.c reads the plan, makes the namespaces, writes the id maps, waits.
 * child (inside, pid 1): child.c lets image.c and workspace.c build the tree, then gives
 * everything up and becomes the guest. What fails is told in a struct failure over a socket
 * pair; steps.c turns it into words, outside, where the host's settings can be read.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_SETUP_H
#define AIRLOCK_PROVIDER_NATIVE_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "provider/plan.h"

enum step {
	STEP_NONE = 0,
	STEP_STORAGE,	 /* opening sandbox storage and layers */
	STEP_SYSTEM,	 /* copying the host's system directories */
	STEP_BIND,	 /* a bind of the user's */
	STEP_NAMESPACES, /* clone3 */
	STEP_IDMAP,	 /* uid_map, gid_map, setgroups */
	STEP_IDS,	 /* setresuid */
	STEP_ROOT,	 /* the tmpfs that becomes / */
	STEP_ETC,
	STEP_DEV,
	STEP_PROC,
	STEP_OVERLAY,
	STEP_PIVOT,
	STEP_LOOPBACK,
	STEP_HOSTNAME,
	STEP_RLIMITS,
	STEP_CAPS,
	STEP_LANDLOCK,
	STEP_SECCOMP,
	STEP_EXEC,
	STEP_COUNT
};

/* Travels from the child to launch in one message. */
struct failure {
	uint32_t step;
	int32_t sys; /* positive errno */
	char object[240];
};

/* Fills f and returns -1, so that callers can `return fail(...)`. sys is a positive errno. */
int fail(struct failure *f, enum step step, int sys, const char *object);
/* "overlay workspace", ... */
const char *step_name(enum step step);
/* What happened and the exact remedy on this host. Returns the negative errno of e. */
int step_explain(const struct failure *f, const struct plan *p, struct err *e);

#define TREES_MAX 320

/* What is to be mounted, held by descriptor until the new root exists. */
struct tree {
	char *dst; /* owned; relative to the new root */
	int fd;	   /* owned */
	bool dir;
};

struct image {
	struct tree ro[TREES_MAX]; /* system, /etc, binds, guest */
	size_t ro_len;
	struct tree dev[16];
	size_t dev_len;
	int layers[PLAN_LAYERS_MAX]; /* owned */
	int lease;		     /* upper and work, below one mount as overlay demands */
	int home, tmp, upper_ro, aside;
	char *resolv; /* owned; the host's resolver file, for net host */
	/* Symbolic links of the host's root and /etc: name relative to the root, target. */
	struct {
		char *name, *target;
	} links[128];
	size_t links_len;
};

void image_init(struct image *im);
/*
 * Opens everything that the plan names. Safe because: called with no more rights over files than the
 * invoking user's, on paths that plan_check has judged, following no link for what the user named.
 * Must run in the mount namespace that the paths are meant in.
 */
int image_collect(struct image *im, const struct plan *p, struct failure *f);
/* Builds the tree and makes it the root. Leaves the current directory at "/". */
int image_build(struct image *im, const struct plan *p, struct failure *f);
/* /etc's own files: generated, never the host's. rootfd: the new root. */
int image_etc(int rootfd, const struct plan *p, const char *resolv, struct failure *f);
/* Makes the workspace, aside: before the new root is there. Changes the current directory. */
int image_stage(struct image *im, const struct plan *p, struct failure *f);
/* Moves it to its place. */
int image_workspace(const struct image *im, const struct plan *p, int rootfd, struct failure *f);
/* Adds one tree; takes the descriptor. */
int image_add(struct image *im, const char *dst, int fd, bool dir, struct failure *f);
/* Makes the mount point (and its parents) for a tree below rootfd. 0 or negative errno. */
int image_point(int rootfd, const char *dst, bool dir);
void image_done(struct image *im);

struct child {
	const struct plan *plan;
	struct image *image;
	bool collected; /* launch has opened everything (host root) */
	int sync;	/* to launch: waits for the id maps, reports a failure */
	int guest_sock;
};

/* Body of pid 1 of the sandbox. Never returns. */
_Noreturn void child_main(struct child *c);

#endif
