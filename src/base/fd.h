/*
 * fd.h: a descriptor, the name that it was opened by, and all of something written to it.
 *
 * Between an open and a lock others may rename, remove and make anew: who locks and then acts by name looks again first.
 */
#ifndef AIRLOCK_BASE_FD_H
#define AIRLOCK_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether name, below the directory at (or AT_FDCWD), is what fd has open. flags: AT_SYMLINK_NOFOLLOW, a link at the end is itself, or 0. */
bool fd_has_name(int fd, int at, const char *name, int flags);

/* All n bytes to one that blocks, where it stands, or at an offset of a file. 0 or a negative errno. */
int fd_write(int fd, const void *p, size_t n);
int fd_write_at(int fd, const void *p, size_t n, uint64_t at);

#endif
