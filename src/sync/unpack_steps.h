/*
 * unpack_steps.h: one intent of the journal carried out, now or again after a kill. Part of door 1.
 */
#ifndef AIRLOCK_SYNC_UNPACK_STEPS_H
#define AIRLOCK_SYNC_UNPACK_STEPS_H

#include "sync/unpack_server.h"

/* Outcomes of a step beside negative errno. */
enum {
	DONE = 0,
	NOTHING, /* it was done before, or there is nothing left to do it to */
	RACED,	 /* the host changed the path meanwhile: it stays as it is */
};

/* One intent in the forward or the backward pass; what did not happen is reported and its bytes are kept. */
int step_carry_out(struct unpack *u, const struct intent *in, bool forward, struct err *e);

/* Parts of it that a tree is made of when it cannot be put as a whole (unpack_graft.c). */
/* The directory that holds path, made where the host deleted it. */
int step_parent(struct unpack *u, const char *path, const char **ret_base);
int step_mkdir(struct unpack *u, const struct intent *in);
int step_finish_dir(struct unpack *u, const struct intent *in);
/*
 * A recovery can wait where a publish goes on without the path and says so: the journal stays, and with it the
 * promise; of what a recovery could not do nobody reads. True where r is an error that may pass: e is set.
 */
bool step_waits(const struct unpack *u, const char *path, int r, struct err *e);
/* Reports a path whose step ended with r (RACED or negative errno); detail: what was kept of it. */
int step_lost(struct unpack *u, const char *path, int r, const char *detail, struct err *e);

/*
 * A recovery that was given no run directory moves nothing: what lost and what went stays in the staging place, by
 * this rule, until one comes that has a place.
 */
#define STEP_NO_RUN "no_run_directory"
#define STEP_NO_RUN_TEXT "the directory of its run is not known here"
/* "<staging place>/<its contents, as trash_wait leaves them>/name" */
void step_where(const struct unpack *u, const char *name, char *out, size_t n);

/*
 * Mode of an entry that was staged here. Where the file system keeps none (vfat, drvfs), or says that it is somebody
 * else's (root_squash), what it has is all that it can have: no failure. 0 or negative errno.
 */
int step_chmod(int dir, const char *name, mode_t mode);
/* A stable word for an errno of the host's. */
const char *step_fail_rule(int err);

/* What is staged for path is not what was staged: it stays where it is, and that is told. */
int step_refuse(struct unpack *u, const char *path, const char *rule, struct err *e);

/*
 * unpack_graft.c. Reports the entries of every tree in the journal as expected. For the time while the disk is awaited:
 * many files cost more to report than to rename. 0 or negative errno.
 */
int tree_foretell(struct unpack *u, uint64_t end, struct err *e);
/* A staged tree becomes the directory of in->path. 0 or negative errno. */
int tree_graft(struct unpack *u, const struct intent *in, struct err *e);

#endif
