/*
 * patch.h: one changed file as text, the way git diff shows it.
 *
 * Pure: two sides in memory go in, bytes come out through `emit`. No program is run and no attribute or
 * configuration is read, so nothing that a sandbox wrote decides how it is shown: no external diff, no
 * textconv, no filter. Without marks and colour the output of texts, modes, links, additions, deletions and renames
 * is a patch that `git apply` takes. There are no index lines: object names would need git's own hash.
 *
 * Names are quoted as git quotes them (core.quotePath), always. With `eyes` contents are made fit for a terminal:
 * control characters are shown as ^X; the bytes of C1 controls, direction overrides and what is no UTF-8 as <XX>.
 * Escape sequences of a sandbox never reach a terminal.
 *
 * Bounds: DIFF_TEXT_MAX, DIFF_LINES_MAX, DIFF_WORK_MAX of limits.h.
 */
#ifndef AIRLOCK_SYNC_PATCH_H
#define AIRLOCK_SYNC_PATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

enum patch_what {
	PATCH_TEXT,   /* `text` holds the bytes */
	PATCH_NONE,   /* this side does not exist */
	PATCH_BINARY, /* holds a NUL, or is too large to be shown */
	PATCH_LOST,   /* the bytes are not kept any more */
};

struct patch_side {
	enum patch_what what;
	uint32_t mode; /* as git has it: 0100644, 0100755, 0120000 */
	uint64_t size;
	struct view text;
};

struct patch_file {
	const char *old_path, *new_path; /* the same unless renamed */
	struct patch_side a, b;
	bool same;	     /* equal bytes, even where `text` is not filled */
	unsigned similarity; /* percent, of a rename */
	const char *
	    mark; /* lines for a person before the header, "# airlock: " is put before each; may be NULL */
};

struct patch_style {
	bool color, eyes;
	unsigned context;				 /* lines; 3 as git */
	int (*emit)(void *arg, const char *p, size_t n); /* non-zero stops and is returned */
	void *arg;
};

struct patch_count {
	uint64_t added, deleted; /* lines */
	bool binary, shortened;	 /* not a text; bounds were met */
};

/* The mode that git gives a file of these permission bits. */
uint32_t patch_mode(bool link, uint32_t perm);
/* A side of these bytes: PATCH_BINARY when git would call them so. */
struct patch_side patch_side_of(uint32_t mode, struct view text);
/* 0, -ENOMEM, what emit returned. count may be NULL. */
int patch_write(const struct patch_file *f, const struct patch_style *s, struct patch_count *count);
/* Only the lines are counted. */
int patch_count(const struct patch_file *f, struct patch_count *ret);
/* git's C-style quoting of a name; appends. Unquoted when nothing in it asks for it. */
int patch_quote(struct buf *b, const char *prefix, const char *path);
/* Bytes fit for a terminal, as above; newline and tab stay. */
int patch_visible(struct buf *b, const char *p, size_t n);
/* Share of a's bytes that are in b too, by lines, of the larger: 0..100. As git measures renames, roughly. */
unsigned patch_similarity(struct view a, struct view b);

#endif
