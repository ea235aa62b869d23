/*
 * lines.h: a text cut into lines, and the difference of two such texts.
 *
 * A line includes its newline; a last line without one is a line of its own. Myers' algorithm in linear
 * space: memory is 10 bytes a line and MERGE_EDITS_MAX * 16, time is bounded by the edits and `work`.
 */
#ifndef AIRLOCK_SYNC_LINES_H
#define AIRLOCK_SYNC_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"

struct lines {
	const char *p; /* borrowed */
	size_t bytes;
	uint32_t n;	/* lines */
	uint32_t *off;	/* owned: n + 1 offsets */
	uint32_t *hash; /* owned: n */
};

struct line_hunk { /* base lines [b, b + nb) became side lines [s, s + ns) */
	uint32_t b, nb, s, ns;
};

struct line_hunks {
	struct line_hunk *v; /* owned; the caller frees */
	size_t n, cap;
};

/* 0, -E2BIG beyond max lines, -ENOMEM. v: less than 4 GiB. */
int lines_init(struct lines *t, struct view v, uint32_t max);
void lines_done(struct lines *t);
bool lines_eq(const struct lines *a, uint32_t i, const struct lines *b, uint32_t j);
/*
 * work 0: all or -E2BIG, when a side has more than MERGE_EDITS_MAX changed lines. Otherwise at most so many
 * comparisons; beyond either bound the part that is not compared yet counts as changed as a whole, which is
 * right but not the shortest. 0, -ENOMEM.
 */
int lines_compare(const struct lines *base, const struct lines *side, uint64_t work,
		  struct line_hunks *out);

#endif
