/*
 * unpack_writer.h: the threads of airlock-unpack that make the staged files. Part of door 1.
 *
 * One thread reads, judges and decides where each member is staged; lanes, one for each two processors up to
 * two, carry that out. All that is in one directory is one lane's, strictly in the order in which it was told, so a
 * later order finds what an earlier one made; between directories there is no order until writer_wait. They
 * decide nothing and read nothing but their orders. What is under way is bounded: batches of BATCH_BYTES, so many a
 * lane; whoever gives orders waits when they are full. Another thread writes staged files back early, so that the
 * sync before the commit finds little left.
 *
 * Ownership: all is copied into the batch. A directory descriptor is only borrowed by an order, and must
 * stay open until the orders that name it are carried out: writer_close closes it in its turn.
 * Errors: of the orders that fail the first one, in the order in which they were given, is remembered; nothing that
 * was given after it is begun from then on, and every call says it, in its own words. Until all is awaited an earlier
 * one may yet take its place. Whatever was ordered came earlier in the stream than what the caller has in
 * hand, so such an error goes before the caller's own.
 */
#ifndef AIRLOCK_SYNC_UNPACK_WRITER_H
#define AIRLOCK_SYNC_UNPACK_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct writer;

#define WRITER_LANES_MAX 2 /* more wait for the file system's own locks */

/* One new entry. */
struct writer_entry {
	int dir;	  /* borrowed: where it is made */
	const char *name; /* in there: one segment */
	const char *path; /* of the member: its directory decides the lane; for a message */
	uint32_t mode;	  /* of a file */
	bool again;	  /* an entry of that name gives way: the same member came before */
	bool give;	  /* belongs to whom the workspace belongs */
	int64_t mtime_ns; /* of a link */
};

/*
 * Memory and threads; lanes 0: as many as suit the machine. To be called by confine_self as its last step before the filter: see confine.h.
 * 0 or negative errno.
 */
int writer_start(size_t lanes, struct writer **ret, struct err *e);
/* Carries out what was ordered, ends the threads. */
void writer_free(struct writer *w);
/* Before the first order. place: for messages, borrowed; dir: of the staging place, -1: none. */
int writer_begin(struct writer *w, const char *place, int dir, uid_t uid, gid_t gid);

/* The new file stays the one in work up to writer_end. All return 0 or the negative errno, with e. */
int writer_file(struct writer *w, const struct writer_entry *m, struct err *e);
int writer_data(struct writer *w, const void *p, size_t n, uint64_t at, struct err *e);
/* hole: the file's last bytes were not given. */
int writer_end(struct writer *w, uint64_t size, bool hole, int64_t mtime_ns, struct err *e);
int writer_link(struct writer *w, const struct writer_entry *m, const char *target, struct err *e);
/* A name that is not there, or is a directory's, is no error. */
int writer_unlink(struct writer *w, int dir, const char *name, const char *path, struct err *e);
/*
 * Takes fd over, whatever it returns: a failure shows in the next call. Orders that named it were of members whose
 * directory has the n bytes at `path`.
 */
void writer_close(struct writer *w, int fd, const char *path, size_t n);
/*
 * syncfs(fd), while the caller does something else: writer_wait says how it went. fd is borrowed until then. What was
 * ordered before must have been awaited.
 */
void writer_sync(struct writer *w, int fd);
/* Until everything is carried out. */
int writer_wait(struct writer *w, struct err *e);
/* After that: the sync before the commit will be one of the whole file system, so it may begin now. */
void writer_sync_soon(struct writer *w);
/* Bytes of files that are ordered and may not be on the disk's account yet, at most. */
uint64_t writer_pending(const struct writer *w);

#endif
