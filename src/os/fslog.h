/*
 * fslog.h: does one fsync carry all earlier changes of metadata of the file system to the disk?
 *
 * XFS and ext4 have one log, which an fsync writes up to its end; other file systems promise nothing but the file that is
 * asked for, and so does an ext4 that was made without its journal, as the disks of some virtual machines are. What
 * is not known is no. Reads below /sys, so it is to be asked before a helper is confined.
 */
#ifndef AIRLOCK_OS_FSLOG_H
#define AIRLOCK_OS_FSLOG_H

#include <stdbool.h>

/* fd: any file or directory of it; borrowed. */
bool fslog_is_shared(int fd);

#endif
