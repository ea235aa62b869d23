#include "os/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "base/cleanup.h"

int mounts_clone(int dirfd, const char *path)
{
	int fd = open_tree(dirfd, path,
			   OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE |
			       (path[0] ? 0u : (unsigned)AT_EMPTY_PATH));

	return fd < 0 ? -errno : fd;
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

int mounts_restrict(int dirfd, const char *path, uint64_t attrs)
{
	struct mount_attr a = {.attr_set = attrs, .propagation = MS_PRIVATE};

	return mount_setattr(dirfd, path, AT_RECURSIVE | (path[0] ? 0u : (unsigned)AT_EMPTY_PATH),
			     &a, sizeof(a)) < 0
		   ? -errno
		   : 0;
}
