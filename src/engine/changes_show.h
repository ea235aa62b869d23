/*
 * changes_show.h: one path of changes.h as it is shown, on the command line and over HTTP: a patch, or a JSON object.
 *
 * What is bounded is bounded in sync/patch.h; contents are read one file at a time into the caller's buffers.
 */
#ifndef AIRLOCK_ENGINE_CHANGES_SHOW_H
#define AIRLOCK_ENGINE_CHANGES_SHOW_H

#include "engine/changes.h"

struct json_t;

/* Bytes of the caller's buffers for a side, and for a line. */
#define CHANGES_TEXT_BUF (DIFF_TEXT_MAX + (64 << 10) + 1)
#define CHANGES_LINE_BUF ((size_t)64 << 20)

struct changes_view {
	struct changes *c;
	const struct patch_style *style;	/* of a patch */
	const char *(*rule)(const char *token); /* words for a rule; NULL: the rule as it is */
	struct buf *a, *b, *line;		/* scratch; of a JSON object line is not needed */
};

/* As git diff --name-status: A M D T R; U conflict, ! refused. */
char changes_letter(const struct shown *s);
/* The patch of path number i, through style->emit. 0, negative, or what emit returned. */
int changes_patch(const struct changes_view *v, size_t i, struct err *e);
/* Appends an object about path number i. */
int changes_json(const struct changes_view *v, size_t i, struct json_t *array, struct err *e);

#endif
