/*
 * unpack_record.h: the report of one publish as a file.
 *
 * run_dir/changes.jsonl: one JSON object a line, in path order:
 *   {"action":"change","path":"src/a.c","rule":"","detail":"...","host_exec":true}
 * rule, detail and host_exec only where they say something. A path or detail that is not UTF-8
 * is given in base64 as path_b64 or detail_b64 instead.
 */
#ifndef AIRLOCK_SYNC_UNPACK_RECORD_H
#define AIRLOCK_SYNC_UNPACK_RECORD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "sync/unpack.h"

/* By path bytes, then in the order of the report. */
void record_sort(struct unpack_report *r);
/*
 * Written beside, ahead of time, if it is in order: record_keep then puts it into place. 1, 0: it is not, or cannot be
 * written now.
 */
int record_prepare(int run_dir, const struct unpack_report *r);
int record_keep(int run_dir, struct err *e);
/* What was prepared is of no use. */
void record_drop(int run_dir);
/* Written beside and renamed into place; of an apply, of which there may be several, added to applied.jsonl. */
int record_write(int run_dir, const struct unpack_report *r, bool apply, struct err *e);
/* One line of it. saved: where the losing or deleted bytes lie, absolute; NULL: nowhere. */
void record_put(struct buf *b, const struct unpack_change *c, const char *saved);
/* "key":"text", or "key_b64":"..." for what is not UTF-8; a JSON string. */
void record_put_bytes(struct buf *b, const char *key, const char *s);
void record_put_string(struct buf *b, const char *s);
/* Does this change put something on the host that tools there run by themselves? */
bool record_host_exec(const struct unpack_change *c);

#endif
