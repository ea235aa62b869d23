/*
 * baseline.h: the manifest of a directory as it is now, for a transfer that somebody else makes.
 *
 * A run records its manifest while it sends (sync_in.h). Who carries a tree into a sandbox in
 * another way (a plain tar, a volume) takes the baseline of it first, and gives it to
 * `airlock unpack` on the way back. Everything is listed that a plain tar would hold: no ignore
 * rules. Left out are .git and the reserved names, which never come back anyway, and mounts.
 *
 * Hashes are of the bytes that were read; a file that changes while it is read is read again
 * (three times at most) and then listed with time stamps of 0, so that nobody takes the stat for
 * proof. With a stream it is read once: what is sent is what is listed, and a file that changes meanwhile
 * is cut or filled to the size that its header says. No link is followed. Memory does not grow with the tree, but for the directory in hand.
 */
#ifndef AIRLOCK_SYNC_BASELINE_H
#define AIRLOCK_SYNC_BASELINE_H

#include <stdint.h>

#include "base/err.h"

struct baseline_opts {
	int root_fd; /* borrowed */
	int out_fd;  /* borrowed; if it is a file below root, it is not listed */
	int tar_fd;  /* borrowed; what is listed is also written there as a tar stream; -1: not */
	const char *only; /* only the file of this name in root, in the stream as `as`; or NULL */
	const char *as;
	/* A path that is not listed, so nothing that comes back will delete it. reason as in struct sync_note. */
	void (*note)(void *arg, const char *path, const char *reason);
	void *arg;
	const volatile int *cancel; /* may be NULL */
};

struct baseline_counts {
	uint64_t files, dirs, links, bytes, left_out;
};

/* 0 or negative errno; on failure what was written is no manifest (its last line is missing). */
int baseline_write(const struct baseline_opts *o, struct baseline_counts *ret, struct err *e);

#endif
