/*
 * beneath.h: file access that cannot leave a directory.
 *
 * Every path is a member path (base/path.h), resolved from a root descriptor without following
 * any link: openat2 with BENEATH, NO_SYMLINKS, NO_MAGICLINKS; where the kernel has no openat2,
 * one O_NOFOLLOW step per segment. A link anywhere on the way is -ELOOP, a file where a
 * directory should be -ENOTDIR. "" is the root itself. Part of door 1.
 */
#ifndef AIRLOCK_OS_BENEATH_H
#define AIRLOCK_OS_BENEATH_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

struct beneath {
	int root;      /* borrowed */
	bool stepwise; /* set by itself on ENOSYS; tests set it */
};

/* Descriptor (close-on-exec) or negative errno. O_NOFOLLOW is always added. */
int beneath_open(struct beneath *b, const char *path, int flags, mode_t mode);
/*
 * O_PATH descriptor of the directory that holds path (the root: a duplicate), and the last
 * segment, which points into path.
 */
int beneath_parent(struct beneath *b, const char *path, const char **ret_base);
/* lstat. 0 or negative errno. */
int beneath_stat(struct beneath *b, const char *path, struct stat *ret);
/* The link's target, at most max bytes, no NUL. 0: there is no link (nothing, or something else); else its length, negative errno. */
long beneath_readlink(struct beneath *b, const char *path, char *out, size_t max);
/* mkdir -p for every segment of path. 1 if the last one was made, 0 if it was there. */
int beneath_mkdirs(struct beneath *b, const char *path, mode_t mode);
/* mkdir -p for the directory that holds path. */
int beneath_mkparents(struct beneath *b, const char *path, mode_t mode);
/* New file for writing: -EEXIST if anything has the name. */
int beneath_create(struct beneath *b, const char *path, mode_t mode);
/* Removes an empty directory. 0 or negative errno. */
int beneath_rmdir(struct beneath *b, const char *path);
/* fsync of a directory, or, on file systems that have none (drvfs, some of FUSE), syncfs. 0 or negative errno. */
int beneath_sync_dir(int fd);
/* Removes a tree with everything in it, however deep. 0 also when absent. */
int beneath_remove_tree(struct beneath *b, const char *path);

#endif
