/*
 * fd.h: a descriptor and the name that it was opened by.
 *
 * Between an open and a lock others may rename, remove and make anew: who locks and then acts by name looks again first.
 */
#ifndef AIRLOCK_BASE_FD_H
#define AIRLOCK_BASE_FD_H

#include <stdbool.h>

/* Whether name, below the directory at (or AT_FDCWD), is what fd has open. flags: AT_SYMLINK_NOFOLLOW, a link at the end is itself, or 0. */
bool fd_has_name(int fd, int at, const char *name, int flags);

#endif
