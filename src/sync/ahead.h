/*
 * ahead.h: a second thread that reads directories before the walk gets to them.
 *
 * The walk offers directories that its rules are sure to take; the thread opens, lists and stats
 * them, nearest in path order first. The walk stays the one that judges and reports, in the same
 * order as alone: a directory is used only if all of it went well. Whatever fails here (an
 * error, a mount, the store, too many names) the walk does again itself, so its errors and notes
 * are those of a walk without this file.
 *
 * Never waits idly: where a wanted directory is not begun, the walk does it; where it is being
 * read, the walk reads the next one meanwhile. Bounds: AHEAD_DIRS_MAX descriptors,
 * AHEAD_ENTRIES_MAX names and one directory of at most as many. The thread sees no rules, blocks
 * all signals, and is joined by ahead_free. All functions are for the walk's thread only.
 */
#ifndef AIRLOCK_SYNC_AHEAD_H
#define AIRLOCK_SYNC_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "sync/listing.h"

#define AHEAD_DIRS_MAX 64
#define AHEAD_NEAR_MAX 32 /* of these, offered from directories that the walk is in */
#define AHEAD_ENTRIES_MAX 16384

struct ahead;

enum ahead_state { AHEAD_WAITING, AHEAD_RUNNING, AHEAD_DONE, AHEAD_FAILED };

/* A directory offered. What ahead_take gave is complete and the caller's. */
struct ahead_dir {
	struct ahead_dir *next; /* in byte order of paths, which is the order of visits */
	enum ahead_state state;
	int parent_fd;		 /* borrowed: outlives this by ahead_drop_below */
	const char *name;	 /* in path */
	struct listing_dir *key; /* whose place in the parent's listing it is */
	enum rules_mode below;
	size_t rules_level; /* its ancestors from there on have no ignore file of their own */
	size_t offered;	    /* items of the listing looked at for what to offer next */
	size_t depth;	    /* segments of path */
	int fd;		    /* owned, -1: not open */
	struct listing_stat st;
	struct listing l;
	size_t path_len;
	char path[]; /* from the top of the walk */
};

/* Starts the thread. skip_*: a directory never entered. NULL if there can be no thread. */
struct ahead *ahead_new(dev_t skip_dev, ino_t skip_ino);
void ahead_free(struct ahead *a);

/* Is there room for one more, offered from a directory that the walk is in (near), or further? */
bool ahead_room(const struct ahead *a, bool near);
/* like: key, parent_fd, below, rules_level and depth. name_at: where the last segment begins. */
void ahead_offer(struct ahead *a, const struct ahead_dir *like, const char *path, size_t n,
		 size_t name_at);
/* Next directory that is read but not taken and has directories not looked at; NULL: none. */
struct ahead_dir *ahead_next_read(struct ahead *a, const struct ahead_dir *after);
/* The directory of key, if it could be read; NULL: the walk reads it. piece: LISTING_PIECE bytes. */
struct ahead_dir *ahead_take(struct ahead *a, const struct listing_dir *key, char *piece);
/* Forgets all below the directory; needed before its listing or descriptor goes. */
void ahead_drop_below(struct ahead *a, const char *dir, size_t n);
void ahead_dir_free(struct ahead_dir *d);

#endif
