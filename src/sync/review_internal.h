/*
 * review_internal.h: an open change set between review.c, which reads it, review_read.c (bytes of its sides), review_part.c (parts
 * of it) and review_host.c, which looks at the host.
 */
#ifndef AIRLOCK_SYNC_REVIEW_INTERNAL_H
#define AIRLOCK_SYNC_REVIEW_INTERNAL_H

#include "sync/review.h"

#define LAYERS_MAX 16

struct review {
	int run_fd, root_fd, manifest_fd, list_fd, content_fd; /* owned */
	int layers[LAYERS_MAX]; /* owned; directories, or files (wire/layerfile.h) */
	size_t layers_len;
	struct manifest *m;  /* NULL: nothing was sent */
	struct chlist *list; /* as it lies there */
	struct chlist *all;  /* one entry a path, only what differs */
	uint64_t dirs;
	bool turned; /* a directory became something else, or the reverse */
	struct review_entry
	    *above; /* owned: what takes a directory's place and was looked at last; NULL: none */
	char
	    *clear; /* owned: a directory that has no such entry above it, nor is one; NULL: none */
	struct manifest_entry b; /* scratch */
	struct change c, other;	 /* scratch */
};

/* Does the sandbox's side have the bytes (a link: the target) of what was sent? */
bool review_same_bytes(const struct change *c, const struct manifest_entry *b);

#endif
