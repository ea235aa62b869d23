/*
 * quarantine_differ.h: whether files of commits in a quarantine have the bytes and the exec bit that lie here.
 *
 * Blobs are read by git in the quarantine, in batches, and hashed as they come: no object is held in memory, however large.
 * Two hashes: of the bytes, and of them with CRLF where they have LF. By the second one a file whose lines end otherwise is the
 * same where git converts lines (quarantine_convert.h). That takes lines which all end alike, and an object without CR and NUL,
 * which git may leave as it is.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_DIFFER_H
#define AIRLOCK_SYNC_QUARANTINE_DIFFER_H

#include "os/beneath.h"
#include "sync/quarantine_inside.h"
#include "sync/quarantine_show.h"

struct quarantine_differ; /* owned */

enum quarantine_difference {
	DIFFERS_BYTES,
	DIFFERS_MODE,	   /* the exec bit alone */
	DIFFERS_CONVERTED, /* other bytes, and git converts them: nobody knows */
};

typedef int quarantine_on_differ(void *arg, const char *path, enum quarantine_difference how);

/* on_path is called for each that differs, in the order of add. top: the work tree, borrowed. NULL: no memory. */
struct quarantine_differ *quarantine_differ_new(const struct quarantine *q, int top,
						quarantine_on_differ *on_path, void *arg);
void quarantine_differ_free(struct quarantine_differ *d);
/* oid, exec: of the commit. here: of what lies here, both a link or none. 0 or negative errno. */
int quarantine_differ_add(struct quarantine_differ *d, const char *oid, bool exec, const char *path,
			  const struct quarantine_file *here, struct err *e);
/* Judges what was added and not yet judged. */
int quarantine_differ_end(struct quarantine_differ *d, struct err *e);
/* The file or link at path in the work tree. 0 or negative errno: it cannot be read. */
int quarantine_file_at(struct beneath *host, const char *path, struct quarantine_file *ret);

#endif
