/*
 * mounts.h: mount calls by descriptor, as the kernel has them since 5.12.
 *
 * A tree is a detached copy of a place in the mount table, held by a descriptor; it is put somewhere
 * with mounts_put and goes away with the last descriptor otherwise. All return 0 (or a
 * descriptor) or a negative errno; the caller knows the object and says so.
 */
#ifndef AIRLOCK_OS_MOUNTS_H
#define AIRLOCK_OS_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mount.h>
#ifndef MOUNT_ATTR_RDONLY /* musl; with glibc the two headers do not mix */
#include <linux/mount.h>
#endif

#ifndef ST_NOSYMFOLLOW /* statfs(2), since 5.10; no library's header has it */
#define ST_NOSYMFOLLOW 0x2000
#endif

/*
 * Detached copy of path relative to dirfd (AT_FDCWD, or the thing itself when path is ""), with all
 * that is mounted below it: a copy without would uncover what the mounts hide, and the kernel
 * refuses that in a user namespace. Follows links.
 */
int mounts_clone(int dirfd, const char *path);
/* Whether this process may copy and place mounts in its mount namespace at all. */
bool mounts_allowed(void);
/* Opens path for mounts_clone without following any link (ELOOP), in any component. O_PATH. */
int mounts_open(int dirfd, const char *path);
/* Puts a tree at path, relative to dirfd; path must exist. */
int mounts_put(int tree, int dirfd, const char *path);
/* The mount at name in the directory from, to path relative to dirfd. */
int mounts_move(int from, const char *name, int dirfd, const char *path);
/* New file system of a type: `options` is a NULL-terminated list of key, value pairs. Detached. */
int mounts_new(const char *type, const char *const *options, unsigned attrs);
/*
 * The same by path, in one call where the calls above need three to eight: for targets that the caller has made itself, so that no
 * link can stand in them. A relative target begins at the current directory, and so does a relative source.
 */
int mounts_bind(const char *source, const char *target);
/* flags: MS_*; options: as mount(8) writes them, or NULL. */
int mounts_fs(const char *type, const char *target, unsigned long flags, const char *options);
/* Adds MOUNT_ATTR_* to a place and everything below, and cuts it off from mount propagation. */
int mounts_restrict(int dirfd, const char *path, uint64_t attrs);

#endif
