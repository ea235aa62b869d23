/*
 * diff.h: the walk's entries against the manifest of the older stack, both in path order.
 *
 * Only what differs is kept in memory (about 180 bytes and the path), so a pass without changes costs no memory
 * that grows with the tree. Unchanged means: same size, mode, mtime, ctime and inode; such a file is not opened.
 */
#ifndef AIRLOCK_SYNC_DIFF_H
#define AIRLOCK_SYNC_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sync/layer.h"
#include "sync/select.h"
#include "wire/manifest.h"

struct diff_text; /* chunk of strings */

struct diff {
	const struct manifest *old; /* borrowed; NULL: everything is new */
	size_t pos, cur_pos;	    /* after and at cur */
	size_t passed;		    /* of the manifest, out of memory again */
	bool loaded;		    /* cur and have are of pos, else not read yet */
	bool have;		    /* cur is the next entry of old */
	struct manifest_entry cur;
	struct layer_item *items; /* owned; added, changed and gone paths, in path order */
	size_t n, cap;
	struct diff_text *text; /* owned */
	uint64_t same;
};

int diff_init(struct diff *d, const struct manifest *old, struct err *e);
void diff_done(struct diff *d);
/* An entry that travels; in path order. */
int diff_add(struct diff *d, const struct select_entry *s, struct err *e);
/* After the last entry: the rest of the older manifest went away. */
int diff_finish(struct diff *d, struct err *e);
/*
 * Turns the list into that of a full base: what did not change comes from older layers by hard
 * link, nothing is hidden.
 */
int diff_fill(struct diff *d, struct err *e);
struct diff_totals {
	uint64_t files, dirs, links, bytes;
};
/*
 * Writes the manifest after layer_build: the older one with the list applied. *t: in, what the
 * older one holds (not used after diff_fill); out, what the new one holds.
 */
int diff_manifest(const struct diff *d, int fd, struct diff_totals *t, struct err *e);

#endif
