/* probe_fs.h: the state directory's file system: its name, its room, and a directory to try things in. */
#ifndef AIRLOCK_OS_PROBE_FS_H
#define AIRLOCK_OS_PROBE_FS_H

#include <limits.h>

#include "os/probe.h"

/* What probe_state_open made, so that probe_state_close can remove it again. */
struct probe_room {
	char made[8][PATH_MAX];
	unsigned made_len;
};

/* "ext4", "nfs", or the magic number in hexadecimal. out at least 32 bytes. */
void probe_fs_name(const char *path, char *out, size_t n);
/*
 * Opens the state directory; with make, missing directories are made 0700. Without make the nearest existing
 * parent is opened. Negative errno.
 */
int probe_state_open(const struct probe_env *env, bool make, int *ret_fd, struct probe_room *room);
/* Removes what open made, if it is still empty. */
void probe_state_close(struct probe_room *room);

#endif
