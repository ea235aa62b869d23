/*
 * review.h: a change set that waits for a decision, seen from outside: what it would do to each path, and a
 * part of it for one apply.
 *
 * Policy: pending/ was written by airlock-unpack out of a sandbox's stream. Its list is checked as a whole
 * (pending.h) and each path again; contents are bytes that are looked at and never obeyed. Nothing here writes
 * to the workspace: an apply goes through airlock-unpack (unpack.h) like any result.
 *
 * The list names directories that vanished or became something else; here every path that differs from what
 * was sent in is an entry of its own, in path order. Memory does not grow with the set: lists are spooled.
 */
#ifndef AIRLOCK_SYNC_REVIEW_H
#define AIRLOCK_SYNC_REVIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "sync/chlist.h"
#include "wire/manifest.h"

struct review; /* one open change set */

enum review_status {
	REVIEW_CLEAN,	 /* the host has it as it was sent: an apply takes the sandbox's */
	REVIEW_DONE,	 /* the host is there already */
	REVIEW_MERGE,	 /* both changed, the texts merge */
	REVIEW_CONFLICT, /* both changed: an apply keeps the host's unless told otherwise */
	REVIEW_FAIL,	 /* the host cannot be looked at */
};

struct review_entry {
	struct change s;	 /* the sandbox's side; kind MK_ABSENT: deleted */
	struct manifest_entry b; /* what was sent; b.kind 0: nothing */
	enum merge_kind old_kind;
	enum review_status status;
	const char *rule; /* of a conflict or failure, stable word; else "" */
};

struct review_place {
	const char *run_dir, *root, *manifest_path;
	char *const *layers;
};

/* 0; -ENOENT: nothing waits there; else negative errno with e. */
int review_open(const struct review_place *p, struct review **ret, struct err *e);
/* As far as it is there, what was sent and the host, without a change set: for runs that are over. */
int review_open_bare(const struct review_place *p, struct review **ret, struct err *e);
/* Fills path, b and old_kind of an entry of your own; s.kind is left to you. 0 or negative errno. */
int review_sent(const struct review *r, const char *path, struct review_entry *en);
void review_free(struct review *r);
/* Paths that differ; *ret_dirs of them are directories. */
uint64_t review_count(const struct review *r, uint64_t *ret_dirs);
/* i < review_count. Fills all but status and rule. 0 or negative errno. */
int review_get(const struct review *r, uint64_t i, struct review_entry *ret);
/* The entry of one path. -ENOENT: it is not in the set. */
int review_find(const struct review *r, const char *path, struct review_entry *ret);
/* Looks at the host and fills status and rule, by the same decision as an apply. */
int review_look(struct review *r, struct review_entry *en, struct err *e);

enum review_side { REVIEW_SENT, REVIEW_SANDBOX, REVIEW_HOST };
/*
 * The bytes of one side (a link: its target), at most max. 1 filled; 0 they are larger (b is empty, *ret_size says
 * how large); -ENOENT there are none (absent, a directory, or the copy that was sent is gone); -EBADMSG what is kept
 * of the sandbox's is not what was judged, so an apply would refuse it; negative errno.
 */
int review_read(struct review *r, const struct review_entry *en, enum review_side side, size_t max,
		struct buf *b, uint64_t *ret_size);

/*
 * Writes pending/select: the entries that `match` takes, with the directories they need; NULL takes everything.
 * *ret_n: how many it took. The caller holds the run's lock.
 */
int review_select(struct review *r, bool (*match)(void *arg, const char *path), void *arg,
		  uint64_t *ret_n, struct err *e);
/*
 * Replaces the list by what is still to be decided: the entries that `left` keeps. *ret_n: how many. The whole of a
 * directory's deletion is taken when its own path is.
 */
int review_keep(struct review *r, bool (*left)(void *arg, const char *path), void *arg,
		uint64_t *ret_n, struct err *e);

#endif
