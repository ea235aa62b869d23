/*
 * pending.h: the file that lists a change set which waits for a decision.
 *
 * run_dir/pending/list: a magic line, then struct change records as they are in memory (paths
 * without NUL), in path order, then a record whose path_len is UINT32_MAX: its `seq` is the number of records
 * and its `hash` that of everything between magic and itself. A file that is cut or altered is refused as a
 * whole before any of it is used. Contents lie beside it, in c/ by number.
 *
 * A set is made in pending.new and takes the name of pending/ when all of it is there: what waited until then, of an
 * earlier attempt, is the only copy until the other one is whole.
 */
#ifndef AIRLOCK_SYNC_PENDING_H
#define AIRLOCK_SYNC_PENDING_H

#include <sodium.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "sync/chlist.h"

#define PENDING_DIR "pending"
#define PENDING_NEW "pending.new"
#define PENDING_LIST "pending/list"
#define PENDING_SELECT "pending/select" /* the part of the list that one apply is about */
#define PENDING_CONTENT "pending/c"

struct pending_writer {
	int fd; /* borrowed */
	struct buf out;
	uint64_t count;
	crypto_generichash_state hash;
};

/* 0 or negative errno; failures stick until pending_end, which makes the file durable. */
void pending_begin(struct pending_writer *w, int fd);
int pending_put(struct pending_writer *w, const struct change *c);
int pending_end(struct pending_writer *w);

struct pending_reader {
	int fd; /* borrowed */
	uint64_t pos, end;
	size_t at, have;
	char buf[64 << 10];
};

/* Checks the whole file and stands at its first record. 0, -EBADMSG, errno. */
int pending_open(struct pending_reader *r, int fd);
/* 1, 0 at the end, -EBADMSG, errno. */
int pending_next(struct pending_reader *r, struct change *ret);

#endif
