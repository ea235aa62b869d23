/*
 * changeset.h: what a run with --review brought back, from the end of the run to the decision.
 *
 * runs/<id>/pending/ is the set (sync/pending.h), runs/<id>/commits.bundle the commits, runs/<id>/review.json what
 * an apply must know of the run: base, root, branch. The base that the set is measured against is pinned for the
 * run until the set is ended. Nothing here runs out by itself: an undecided set is work.
 *
 * A set has parts: 0 is the workspace, each mapping (maps.h) has one of its own, below runs/<id>/maps/<n>/, with its own
 * root. Paths of a part are relative to its root.
 *
 * An apply is one publish like that of a run: same helper, same journal, same lock on the workspace. Order: files,
 * commits, then the list is replaced by what is left. Killed in between, the next apply does again what was done,
 * which changes nothing, and goes on. One run's set is decided by one process at a time (a lock on its directory).
 */
#ifndef AIRLOCK_ENGINE_CHANGESET_H
#define AIRLOCK_ENGINE_CHANGESET_H

#include "base/limits.h"
#include "engine/leasespec.h"
#include "engine/maps.h"
#include "engine/transfer.h"
#include "store/run.h"
#include "sync/review.h"

#define CHANGESET_KEEP_NS \
	(30 * 86400 * NS_PER_S)		      /* conflict copies and trash of runs that are over */
#define CHANGESET_EXPIRE_EACH_S 86400	      /* how often they are looked for, after a run */
#define CHANGESET_EXPIRE_NS (200 * NS_PER_MS) /* and for how long */

#define CHANGESET_PARTS_MAX (1 + MAPS_MAX)

/* One run and what is known of its set. */
struct changeset {
	struct run_row run;
	struct lease_spec spec; /* of the review, else of the lease */
	char *run_dir;		/* owned */
	bool review;		/* it was a review */
	bool files, commits;	/* wait; files: of any part */
	uint64_t stamp;		/* changes with what waits */
	char decided[16];	/* "", "applied", "discarded" */
	struct err broken;	/* why spec could not be read; the set can only be discarded */
};

void changeset_done(struct changeset *c);
#define _cleanup_changeset_ __attribute__((cleanup(changeset_done)))

/*
 * Whoever fetches the results of a run again, or decides about them, holds this meanwhile: the lock of the run's
 * directory, a descriptor; errno. ui may be NULL.
 */
int changeset_lock(const char *run_dir, const struct run_ui *ui, struct err *e);
/*
 * Before the results of a review run are fetched: pins the base, clears what an attempt that was cut left. A set that waits goes on
 * doing so until its successor is whole (sync/pending.h).
 */
int changeset_begin(struct state *st, const char *run_id, const struct lease_spec *s,
		    struct err *e);
/* After they were fetched: a set without anything in it is ended. */
void changeset_settle(struct state *st, const char *run_id);

/* word as run_find takes it. */
int changeset_find(struct state *st, const char *word, struct changeset *ret, struct err *e);
/* The same for a row; the row moves into ret. */
int changeset_of(struct state *st, struct run_row *row, struct changeset *ret, struct err *e);

/* Where a part lies. */
struct changeset_part {
	struct map map;		/* of a mapping */
	const char *root;	/* borrowed from c, or of `map`: its paths are relative to it */
	const char *src;	/* borrowed: what the caller named; of a single file the file */
	char dir[2 * PATH_MAX]; /* of the run: pending/, conflicts/, changes.jsonl */
};

size_t changeset_parts(const struct changeset *c);
void changeset_part(const struct changeset *c, size_t part, struct changeset_part *ret);
/* -ENOENT: no files of this part wait. The bare one is for runs that are over. */
int changeset_open(const struct changeset *c, size_t part, bool bare, struct review **ret,
		   struct err *e);
/* What the commits that wait bring, as printable lines (sync/quarantine_show.h); heap, NULL: none, or it is not known. */
char *changeset_commit_lines(const struct changeset *c);
/*
 * The same before a patch, each a comment to git apply: that they wait and what brings them (apply, in the caller's words), and with
 * `lines` which. Nothing where none wait. Failures stick in `to`.
 */
void changeset_tell_commits(const struct changeset *c, const char *apply, bool lines,
			    struct buf *to);
/* How many paths wait in all parts; 0 also when the set cannot be read (e says why). */
uint64_t changeset_waiting(const struct changeset *c, struct err *e);

struct apply_opts {
	bool (*match)(void *arg, size_t part, const char *path); /* NULL: everything */
	bool (*touches)(void *arg, size_t part); /* with match: can it take anything of the part? */
	int (*check)(void *arg, struct err *e);	 /* after all were asked, before anything is done */
	void *arg;
	bool dry_run;
	int on_conflict; /* enum on_conflict; -1: as the run said */
};

struct apply_result {
	struct transfer t;	 /* what was done: `out` of the workspace, `maps` of the mappings */
	bool done;		 /* in any part */
	uint64_t selected, left; /* paths */
	bool commits_wait;
};

/*
 * 0 also with conflicts and refusals (in t); done false: there was nothing to do. -EBADMSG: the set is
 * damaged or a root is another one, nothing was written there; else negative errno. Parts go one after the other, the
 * workspace first: what comes after one that failed goes on waiting.
 */
int changeset_apply(struct state *st, const char *word, const struct apply_opts *o,
		    const struct run_ui *ui, struct apply_result *ret, struct err *e);
/* A conflict in which the sandbox's version took the path: it is over. */
bool changeset_taken(const struct unpack_change *c);
/* Something of it is there to apply or to drop. */
bool changeset_waits(const struct changeset *c);
/*
 * Drops what waits, if it still is what `asked` saw (else ERR_CONFLICT), and what a killed apply staged. Where one had
 * begun to publish, that is finished and nothing is dropped (ERR_CONFLICT). 1, 0 nothing did (any more), negative errno.
 */
int changeset_discard(struct state *st, const struct changeset *asked, struct err *e);
/* Within the library: the set is decided, its directories go. decided may be NULL. The caller holds the lock. */
int changeset_end(struct state *st, const char *run_id, const char *decided, struct err *e);
/* For `rm`: gives the pin back. */
void changeset_forget(struct state *st, const char *run_id);
/*
 * Drops conflict copies and trash of runs that ended long ago and got none since (an apply, a recovery), for
 * CHANGESET_EXPIRE_NS at most.
 */
void changeset_expire(struct state *st);

#endif
