/*
 * delta.h: what a tree differs in from its index, for places where no overlay layer holds the changes.
 *
 * The index is a manifest (wire/manifest.h) of what was sent, in which mtime, inode, ctime and mode are those of
 * the place's own files. A file that still has all of them and its size is taken as unchanged without a
 * look at its bytes; any other is hashed, and travels only if the hash differs. As with git's
 * index, the stamps say nothing about a file that is not older than the index itself: it is hashed. So the index's own
 * modification time is part of it: who copies one copies that too (delta_index sets it).
 *
 * What is in the index and not in the tree is deleted, confirmed by a second look at the name; below a directory that
 * cannot be read nothing is. What never arrived (delta_index found nothing there) is in no index
 * and so is never reported as deleted.
 *
 * It runs where the tree is, with the authority of what runs there: not a boundary control, the host judges.
 * Memory: some MiB at most of names and of the mapped index, whatever the tree holds.
 */
#ifndef AIRLOCK_GUEST_DELTA_H
#define AIRLOCK_GUEST_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/err.h"
#include "guest/pack.h"
#include "wire/manifest.h"

/*
 * Right after the tree has landed: writes its index to out (an empty file, preferably on the tree's file system;
 * blocking). Waits for the clock's next tick, so that what has just landed is older than the index.
 * 0, or negative errno with text.
 */
int delta_index(int tree, const struct manifest *sent, int out, struct err *e);

struct delta;

/* index stays the caller's. 0, -EPROTO with text, errno. */
int delta_open(int index, struct delta **ret, struct err *e);
void delta_free(struct delta *d);

/* As pack_write (pack.h), of what differs alone. */
int delta_write(struct delta *d, int tree, int out, struct pack_result *ret);

/* For the walk in pack.c: entries of one directory in byte order of their names, each level with a position. */
enum delta_look {
	DELTA_SAME,
	DELTA_DIFFERS,
	DELTA_KIND, /* was something else than a directory or file or link, as it is now */
	DELTA_NEW,
};

/* *pos for the contents of directory path[0..n). */
void delta_enter(const struct delta *d, const char *path, size_t n, size_t *pos);
/*
 * Next indexed entry of that directory with a name before `until` (NULL: any): its whole path, and *pos past it.
 * 1, 0: none, -EPROTO.
 */
int delta_before(struct delta *d, size_t *pos, const char *dir, size_t dir_len, const char *until,
		 struct view *ret_path);
/*
 * The entry path[0..n) with its lstat, `name` below dir. Has come past all names before it (delta_before).
 * An enum delta_look or -EPROTO.
 */
int delta_judge(struct delta *d, size_t *pos, const char *path, size_t n, const struct stat *st,
		int dir, const char *name);
/* The short way, without delta_before: true only for what is plainly the next entry and unchanged. */
bool delta_plainly_same(struct delta *d, size_t *pos, const char *path, size_t n,
			const struct stat *st);
/* Not touched since the index was made? */
bool delta_older(const struct delta *d, const struct stat *st);

#endif
