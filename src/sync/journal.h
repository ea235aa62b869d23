/*
 * journal.h: the intents of one publish, durable before the first of them is carried out.
 *
 * One file in the staging directory. Records are appended, then a commit record, then one fsync.
 * The file is *committed* only if the commit record is there, counts what precedes it and seals its
 * order. A torn or uncommitted journal means that nothing was carried out: everything staged may be
 * thrown away. A committed one is carried out again from the start; every intent says enough to see
 * whether it was done before.
 *
 * A journal lies in the workspace, where a checkout, a clone or another program can put a file of any
 * bytes (a planted journal). So each record has a MAC with a key that is this journal's alone
 * (unpack_key.h), and the commit record one over all of them: without the key nobody makes a record, and
 * with records that were seen elsewhere nobody makes another journal of them. Readers check paths again.
 */
#ifndef AIRLOCK_SYNC_JOURNAL_H
#define AIRLOCK_SYNC_JOURNAL_H

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"

#define INTENT_HASH 32
#define JOURNAL_KEY 32
/* What a recovery must know of the publish that it finishes. */
#define INTENT_KEEP_TRASH 1u  /* nobody else has what is replaced or deleted */
#define INTENT_MASS_DELETE 2u /* what is deleted must be in the trash */

enum intent_op {
	/*
	 * First: the workspace, path where it was, new_ino and id its inode and device. Last before the
	 * commit: path is the run's directory, mode INTENT_KEEP_*
	 */
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
	uint64_t new_ino; /* IN_PUT, IN_TREE: of what is staged */
	uint64_t size;
	struct intent_old old;
	uint32_t path_len;
	char path[PATH_MEMBER_MAX + 1];
};

struct journal {
	int fd;		    /* borrowed */
	const uint8_t *key; /* borrowed, JOURNAL_KEY bytes */
	struct buf out;
	uint64_t count, written;
	crypto_generichash_state seal; /* of all records so far */
};

/* What a reader has of the file: one read for hundreds of records. Zeroed but for the key; one per pass. */
struct journal_cache {
	const uint8_t *key; /* borrowed, JOURNAL_KEY bytes */
	char *buf;	    /* owned */
	uint64_t at;
	size_t len;
};

/* No allocation; fd must be empty and at its start. */
void journal_init(struct journal *j, int fd, const uint8_t key[JOURNAL_KEY]);
void journal_done(struct journal *j);
/* 0 or negative errno. */
int journal_add(struct journal *j, const struct intent *in);
/* Everything so far into the file, not yet a promise; *ret_end: where the next record will start. */
int journal_flush(struct journal *j, uint64_t *ret_end);
/* Commit record, then fsync: after success the intents are a promise. */
int journal_commit(struct journal *j);
/*
 * Whether fd holds a committed journal of this key. 1 yes (*ret_end: where its commit record starts), 0 it is
 * committed for nobody, -EKEYREJECTED: it has the shape of a committed one, but not with this key (planted,
 * changed, another user's, an older version's), errno.
 */
int journal_committed(int fd, const uint8_t key[JOURNAL_KEY], uint64_t *ret_end);
/* Next record at *pos (start: 0), before `end`. 1, 0 at the end, -EBADMSG (its MAC too), errno. */
int journal_next(int fd, struct journal_cache *k, uint64_t *pos, uint64_t end, struct intent *ret);
/* The record that ends at *pos (start: end). 1, 0 at the start, -EBADMSG, errno. */
int journal_prev(int fd, struct journal_cache *k, uint64_t *pos, struct intent *ret);
void journal_cache_done(struct journal_cache *k);
#define _cleanup_journal_cache_ __attribute__((cleanup(journal_cache_done)))

#endif
