/*
 * layer.h: builds one layer of a base, a directory or one file, from a list of what it shall hold.
 *
 * Sources are opened beneath the workspace descriptor with openat2, no links followed, so a
 * directory swapped for a link while we work leads nowhere. What a file holds is hashed from the
 * same buffer that is written: the hash is of the bytes that landed. A file that changes while it
 * is read is read again (three times at most); then the bytes of the last reading count, with
 * stat fields of 0 so that nobody takes them for the host's state. Memory: one buffer a thread.
 *
 * Two threads (the caller's and one more); nothing is shared but the list, whose items each
 * belong to one thread at a time.
 */
#ifndef AIRLOCK_SYNC_LAYER_H
#define AIRLOCK_SYNC_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sync/sync_in.h"
#include "wire/manifest.h"

enum layer_op {
	LAYER_TAKE, /* copy the file, make the directory or link */
	LAYER_VERIFY, /* stat differs but size, mode and mtime do not: copy only if the hash differs */
	LAYER_REUSE,	/* hard link from an older layer of the store: `layer` */
	LAYER_WHITEOUT, /* an overlay whiteout */
};

enum layer_outcome {
	LAYER_DONE,
	LAYER_SAME, /* verified: nothing written, the stat fields are new */
	LAYER_GONE, /* not there, or not readable: `reason` */
};

struct layer_item {
	char kind;
	bool was_there; /* the path is in the older stack */
	enum layer_op op;
	enum layer_outcome outcome;
	const char *reason; /* LAYER_GONE, or "changed" with LAYER_DONE */
	uint32_t mode, layer;
	uint64_t size, ino;
	int64_t mtime_ns, ctime_ns;
	const char *path, *target; /* borrowed */
	uint32_t path_len, target_len;
	char old_kind; /* was_there: what it was, and its size */
	uint64_t old_size;
	size_t old_from, old_to;     /* its place in the older manifest; empty: where it would be */
	uint8_t hash[MANIFEST_HASH]; /* in: of the older stack for LAYER_VERIFY; out */
};

struct layer_build {
	int root_fd;  /* workspace */
	int layer_fd; /* the new, empty directory, or file */
	bool
	    one_file; /* as wire/layerfile.h: it is sent and never mounted, so whiteouts are not needed */
	int layers_fd; /* its parent, for LAYER_REUSE */
	uint32_t number;
	uid_t owner; /* (uid_t)-1: leave */
	gid_t group;
	struct layer_item *items; /* in byte order of path */
	size_t n;
	const struct manifest
	    *old; /* modes of parent directories that are not in the list; or NULL */
	progress_fn progress;
	void *progress_arg;
	const volatile int *cancel;
	uint64_t files, bytes; /* out: read and written */
	uint64_t written;      /* out: entries of the layer, without mere parents */
};

/* 0 or negative errno; on failure it holds rubbish that the caller removes. */
int layer_build(struct layer_build *b, struct err *e);
/* Whiteouts for items that turned out LAYER_GONE though an older layer has them. */
int layer_hide_gone(struct layer_build *b, struct err *e);

#endif
