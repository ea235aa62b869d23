/*
 * journal.h: the intents of one publish, durable before the first of them is carried out.
 *
 * One file in the staging directory. Records are appended, then a commit record, then one fsync.
 * A reader accepts a record only with its checksum; the file is *committed* only if the commit
 * record is there and counts what precedes it. A torn or uncommitted journal means that nothing
 * was carried out: everything staged may be thrown away. A committed one is carried out again
 * from the start; every intent says enough to see whether it was done before.
 *
 * The writer trusts nobody; readers check paths again, since a journal lies in the workspace.
 */
#ifndef AIRLOCK_SYNC_JOURNAL_H
#define AIRLOCK_SYNC_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"

#define INTENT_HASH 32
/* What a recovery must know of the publish that it finishes. */
#define INTENT_KEEP_TRASH 1u  /* nobody else has what is replaced or deleted */
#define INTENT_MASS_DELETE 2u /* what is deleted must be in the trash */

enum intent_op {
	/* First: nothing more. Last before the commit: path is the run's directory, mode INTENT_KEEP_* */
	IN_HEADER = 1,
	IN_PUT,	   /* staged `id` becomes path; old.ino 0: path must be absent */
	IN_MKDIR,  /* path becomes a directory with `mode` (0700 until the end) */
	IN_MODE,   /* permission bits of path */
	IN_DELETE, /* path goes to trash `id` */
	IN_CLEAR,  /* as IN_DELETE, but before the puts: something else takes the path */
	IN_RMDIR,  /* path goes if empty */
	IN_COMMIT, /* size: number of records before this one */
	IN_TREE,   /* a staged tree becomes the new directory `path` */
};

/* Identity of what an intent expects at its path. */
struct intent_old {
	uint64_t ino, size; /* ino 0: absent */
	int64_t mtime_ns, ctime_ns;
	/* Of a file with several names; of a directory that goes with what is in it; else zeros. */
	uint8_t hash[INTENT_HASH];
};

struct intent {
	uint8_t op;
	uint8_t action; /* enum unpack_action to report when it is done */
	uint32_t mode;
	uint64_t id;	  /* staged content or trash number */
	uint64_t new_ino; /* IN_PUT: of the staged content */
	uint64_t size;
	struct intent_old old;
	uint32_t path_len;
	char path[PATH_MEMBER_MAX + 1];
};

struct journal {
	int fd; /* borrowed */
	struct buf out;
	uint64_t count, written;
};

/* What a reader of many records has of the file: one read for hundreds. Zeroed is empty; one per pass. */
struct journal_cache {
	char *buf; /* owned */
	uint64_t at;
	size_t len;
};

/* No allocation; fd must be empty and at its start. */
void journal_init(struct journal *j, int fd);
void journal_done(struct journal *j);
/* 0 or negative errno. */
int journal_add(struct journal *j, const struct intent *in);
/* Everything so far into the file, not yet a promise; *ret_end: where the next record will start. */
int journal_flush(struct journal *j, uint64_t *ret_end);
/* Commit record, then fsync: after success the intents are a promise. */
int journal_commit(struct journal *j);
/* Whether fd holds a committed journal. 1 yes (*ret_end: where its commit record starts), 0 no, errno. */
int journal_committed(int fd, uint64_t *ret_end);
/* Next record at *pos (start: 0), before `end`. 1, 0 at the end, -EBADMSG, errno. k may be NULL. */
int journal_next(int fd, struct journal_cache *k, uint64_t *pos, uint64_t end, struct intent *ret);
/* The record that ends at *pos (start: end). 1, 0 at the start, -EBADMSG, errno. */
int journal_prev(int fd, struct journal_cache *k, uint64_t *pos, struct intent *ret);
void journal_cache_done(struct journal_cache *k);
#define _cleanup_journal_cache_ __attribute__((cleanup(journal_cache_done)))

#endif
