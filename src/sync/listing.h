/*
 * listing.h: one directory as the walk needs it: its names in visiting order, and stats.
 *
 * A directory has two places in byte order of paths: "x" itself and, for its contents, "x/".
 * ".git" is not among the names, only told; a staging place of ours is not told either. Nothing here knows
 * rules; nothing follows a link.
 */
#ifndef AIRLOCK_SYNC_LISTING_H
#define AIRLOCK_SYNC_LISTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "sync/rules.h"

#define LISTING_PIECE (64 << 10) /* bytes of the buffer that listing_read works with */

struct listing_stat {
	uint64_t size, ino;
	int64_t mtime_ns, ctime_ns;
	uint16_t mode;
	int err; /* positive errno: the rest says nothing */
};

struct ahead_dir;

struct listing_dir {
	int fd; /* owned, -1: not entered */
	enum rules_mode below;
	struct ahead_dir *ready; /* owned by the walk: read ahead (ahead.h), or NULL */
};

struct listing_item {
	const char *name; /* followed by '/' */
	uint32_t len;	  /* with the '/' for the contents' place */
	bool contents;
	uint8_t type;
	struct listing_dir *dir; /* set for both places of a directory */
};

struct listing {
	struct buf names;
	struct listing_item *items; /* owned */
	struct listing_dir *dirs;   /* owned */
	struct listing_stat *stats; /* owned; of items that are no directories; NULL: not read */
	size_t n, dirs_n;
	bool has_git, has_rules; /* .git; an ignore file */
};

/* All names of the directory. More than max names: -EFBIG, and the listing is of no use. */
int listing_read(int fd, char *piece, size_t max, struct listing *ret);
/* Fills stats. -ECANCELED once *stop is set. */
int listing_read_stats(int fd, struct listing *l, const atomic_bool *stop);
void listing_stat_one(int fd, const char *name, struct listing_stat *ret);
/* Closes what was entered; `ready` must be gone. */
void listing_done(struct listing *l);

struct statx;
/* The fields every stat of the walk asks for. */
#define LISTING_STAT_MASK \
	(STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME | STATX_CTIME)
void listing_from_statx(const struct statx *st, struct listing_stat *ret);

#endif
