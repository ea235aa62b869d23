/*
 * quarantine_differ.h: whether files of commits in a quarantine have the bytes that lie here.
 *
 * Blobs are read by git in the quarantine, in batches, and hashed as they come: no object is held in memory, however large.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_DIFFER_H
#define AIRLOCK_SYNC_QUARANTINE_DIFFER_H

#include "os/beneath.h"
#include "sync/quarantine_inside.h"
#include "sync/quarantine_show.h"

struct quarantine_differ; /* owned */

/* on_path is called for each that differs, in the order of add. NULL: no memory. */
struct quarantine_differ *quarantine_differ_new(const struct quarantine *q,
						int (*on_path)(void *arg, const char *path),
						void *arg);
void quarantine_differ_free(struct quarantine_differ *d);
/* here: of what lies here. 0 or negative errno. */
int quarantine_differ_add(struct quarantine_differ *d, const char *oid, const char *path,
			  const struct quarantine_file *here, struct err *e);
/* Judges what was added and not yet judged. */
int quarantine_differ_end(struct quarantine_differ *d, struct err *e);
/* The file or link at path in the work tree. 0 or negative errno: it cannot be read. */
int quarantine_file_at(struct beneath *host, const char *path, struct quarantine_file *ret);

#endif
