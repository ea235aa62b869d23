/*
 * quarantine_show.h: what the commits in a quarantine bring, in words: each commit in a line, and files that they have and
 * the workspace has not (deleted again, ignored, refused) or has with other bytes or another mode (put back after the commit): a checkout would
 * bring those, and until then git calls them deleted or modified.
 *
 * Text of the sandbox (subjects, names) is made printable here. Bounded: lines and their length.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_SHOW_H
#define AIRLOCK_SYNC_QUARANTINE_SHOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "sync/quarantine.h"
#include "wire/manifest.h"

/* A file or link: as in a manifest. */
struct quarantine_file {
	bool link;
	bool exec;		     /* the owner may execute it: all that git keeps of a mode */
	uint8_t hash[MANIFEST_HASH]; /* links: of the target */
};

struct quarantine_show {
	/* What came back at this path, whatever the work tree says. 1 filled, 0 absent; -ENOENT: look there. May be NULL. */
	int (*has)(void *arg, const char *path, struct quarantine_file *ret);
	void *arg;
	struct buf *
	    lines; /* "commit <id> <subject>", "missing <path>", "differs <path>" (or mode, or converted), "... and N more": each with its newline; or NULL */
	uint64_t missing_n;  /* out: files that the workspace has not */
	struct buf *missing; /* the first of them, comma-separated; its max is at least 512 */
	uint64_t differs_n;  /* out: files that it has with other bytes or another mode */
	struct buf *differs; /* as missing */
};

/* base: the commit that was sent in, "" for none. */
int quarantine_show(const struct quarantine *q, const char *head, const char *base,
		    struct quarantine_show *s, struct err *e);

#endif
