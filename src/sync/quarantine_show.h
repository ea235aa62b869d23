/*
 * quarantine_show.h: what the commits in a quarantine bring, in words: each commit in a line, and files that they have and
 * the workspace has not (deleted again, ignored, refused): a checkout would bring those, and until then git calls them deleted.
 *
 * Text of the sandbox (subjects, names) is made printable here. Bounded: lines and their length.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_SHOW_H
#define AIRLOCK_SYNC_QUARANTINE_SHOW_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "sync/quarantine.h"

struct quarantine_show {
	/* Does what came back have this path, whatever the work tree says? 1, 0; -ENOENT: look there. May be NULL. */
	int (*has)(void *arg, const char *path);
	void *arg;
	struct buf *
	    lines; /* "commit <id> <subject>", "missing <path>", "... and N more": each with its newline; or NULL */
	uint64_t missing_n;  /* out: files that the workspace has not */
	struct buf *missing; /* the first of them, comma-separated; its max is at least 512 */
};

/* base: the commit that was sent in, "" for none. */
int quarantine_show(const struct quarantine *q, const char *head, const char *base,
		    struct quarantine_show *s, struct err *e);

#endif
