/*
 * merge3.h: three-way merge of texts by line, bounded in time and memory.
 *
 * Clean merges only: there are no conflict marks in anybody's files. Changes that overlap or
 * touch are a conflict, as in git merge-file. Equal changes on both sides are taken once. A
 * line includes its newline; a last line without one is a line of its own, so "no newline at end"
 * is merged like any other change.
 *
 * Bounds: MERGE_TEXT_MAX bytes and MERGE_LINES_MAX lines each, MERGE_EDITS_MAX edited lines on a
 * side. Beyond them, and for anything binary (a NUL), the answer is "not mergeable".
 */
#ifndef AIRLOCK_SYNC_MERGE3_H
#define AIRLOCK_SYNC_MERGE3_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cursor.h"

enum merge3_result {
	MERGE3_CLEAN = 0,
	MERGE3_CONFLICT,
	MERGE3_NOT_TEXT,
	MERGE3_TOO_BIG,
};

/* Gets the result piece by piece; non-zero stops and is returned. */
typedef int (*merge3_emit)(void *arg, const void *p, size_t n);

bool merge3_is_text(struct view v);
/*
 * An enum merge3_result (nothing or a part was emitted unless MERGE3_CLEAN), -ENOMEM, or what
 * emit returned. emit is called only once a clean result is certain.
 */
int merge3(struct view base, struct view ours, struct view theirs, merge3_emit emit, void *arg);

#endif
