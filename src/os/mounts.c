#include "os/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "base/cleanup.h"

#ifndef __GLIBC__
/* musl has no names for these calls. */
static int open_tree(int dirfd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

static int move_mount(int from, const char *name, int dirfd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_move_mount, from, name, dirfd, path, flags);
}

static int fsopen(const char *type, unsigned flags)
{
	return (int)syscall(SYS_fsopen, type, flags);
}

static int fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux)
{
	return (int)syscall(SYS_fsconfig, fd, cmd, key, value, aux);
}

static int fsmount(int fd, unsigned flags, unsigned attrs)
{
	return (int)syscall(SYS_fsmount, fd, flags, attrs);
}

static int mount_setattr(int dirfd, const char *path, unsigned flags, struct mount_attr *a,
			 size_t n)
{
	return (int)syscall(SYS_mount_setattr, dirfd, path, flags, a, n);
}
#endif

int mounts_clone(int dirfd, const char *path)
{
	int fd = open_tree(dirfd, path,
			   OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE |
			       (path[0] ? 0u : (unsigned)AT_EMPTY_PATH));

	return fd < 0 ? -errno : fd;
}

bool mounts_allowed(void)
{
	/* Asks for the right first and makes nothing yet. */
	_cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

	return fs >= 0 || errno != EPERM;
}

int mounts_open(int dirfd, const char *path)
{
	struct open_how how = {
	    .flags = O_PATH | O_CLOEXEC,
	    .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

int mounts_put(int tree, int dirfd, const char *path)
{
	return move_mount(tree, "", dirfd, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int mounts_move(int from, const char *name, int dirfd, const char *path)
{
	return move_mount(from, name, dirfd, path, 0) < 0 ? -errno : 0;
}

int mounts_new(const char *type, const char *const *options, unsigned attrs)
{
	_cleanup_fd_ int fs = fsopen(type, FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0)
		return -errno;
	for (; options && options[0]; options += 2)
		if (fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	fd = fsmount(fs, FSMOUNT_CLOEXEC, attrs);
	return fd < 0 ? -errno : fd;
}

int mounts_bind(const char *source, const char *target)
{
	return mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0 ? -errno : 0;
}

int mounts_fs(const char *type, const char *target, unsigned long flags, const char *options)
{
	return mount(type, target, type, flags, options) < 0 ? -errno : 0;
}

int mounts_restrict(int dirfd, const char *path, uint64_t attrs)
{
	struct mount_attr a = {.attr_set = attrs, .propagation = MS_PRIVATE};

	return mount_setattr(dirfd, path, AT_RECURSIVE | (path[0] ? 0u : (unsigned)AT_EMPTY_PATH),
			     &a, sizeof(a)) < 0
		   ? -errno
		   : 0;
}
