/*
 * Policy: nothing outside the root is ever opened, whatever the tree looks like or becomes while
 * we look. Links are not judged here, they are simply never followed.
 */
#include "os/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"

#define RETRIES 8 /* openat2 says EAGAIN when a rename elsewhere raced it */

static int open_kernel(int root, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
	    .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
	    .mode = flags & O_CREAT ? mode : 0,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	for (int i = 0; i < RETRIES; i++) {
		fd = syscall(SYS_openat2, root, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd < 0 ? -errno : (int)fd;
}

static bool is_link(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISLNK(st.st_mode);
}

static bool last_is_link(int root, const char *path)
{
	_cleanup_fd_ int fd = open_kernel(root, path, O_PATH, 0);

	return fd >= 0 && is_link(fd);
}

/* O_DIRECTORY|O_NOFOLLOW says ENOTDIR for a link too; callers must tell the two apart. */
static int step_error(int dir, const char *name, int err)
{
	struct stat st;

	if (err == ENOTDIR && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISLNK(st.st_mode))
		return -ELOOP;
	return -err;
}

static int open_steps(int root, const char *path, int flags, mode_t mode)
{
	_cleanup_fd_ int dir = -1;
	char seg[PATH_SEGMENT_MAX + 1];
	const char *slash;
	int fd;

	while ((slash = strchr(path, '/'))) {
		size_t n = (size_t)(slash - path);
		int at = dir >= 0 ? dir : root;

		memcpy(seg, path, n);
		seg[n] = '\0';
		fd = openat(at, seg, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return step_error(at, seg, errno);
		cleanup_fd(&dir);
		dir = fd;
		path = slash + 1;
	}
	fd = openat(dir >= 0 ? dir : root, path, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	return fd < 0 ? step_error(dir >= 0 ? dir : root, path, errno) : fd;
}

int beneath_open(struct beneath *b, const char *path, int flags, mode_t mode)
{
	int r = -ENOSYS;

	if (!*path)
		path = ".";
	else if (!path_is_member(path, strlen(path)))
		return -EINVAL;
	if (!b->stepwise) {
		r = open_kernel(b->root, path, flags, mode);
		if (r == -ENOTDIR && flags & O_DIRECTORY && last_is_link(b->root, path))
			r = -ELOOP;
	}
	if (r == -ENOSYS) {
		b->stepwise = true;
		r = open_steps(b->root, path, flags, mode);
	}
	/* O_PATH|O_NOFOLLOW opens a last link itself, even with NO_SYMLINKS. */
	if (r >= 0 && flags & O_PATH && !(flags & O_DIRECTORY) && is_link(r)) {
		(void)close(r);
		r = -ELOOP;
	}
	return r;
}

int beneath_parent(struct beneath *b, const char *path, const char **ret_base)
{
	char dir[PATH_MEMBER_MAX + 1];
	const char *base = path_base(path);
	size_t n = (size_t)(base - path);

	if (!path_is_member(path, strlen(path)))
		return -EINVAL;
	*ret_base = base;
	if (n)
		memcpy(dir, path, n - 1);
	dir[n ? n - 1 : 0] = '\0';
	return beneath_open(b, dir, O_PATH | O_DIRECTORY, 0);
}

int beneath_stat(struct beneath *b, const char *path, struct stat *ret)
{
	_cleanup_fd_ int dir = -1;
	const char *base;

	if (!*path)
		return fstat(b->root, ret) < 0 ? -errno : 0;
	dir = beneath_parent(b, path, &base);
	if (dir < 0)
		return dir;
	return fstatat(dir, base, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

long beneath_readlink(struct beneath *b, const char *path, char *out, size_t max)
{
	const char *base;
	_cleanup_fd_ int dir = beneath_parent(b, path, &base);
	ssize_t n;

	if (dir < 0)
		return dir == -ENOENT || dir == -ENOTDIR ? 0 : dir;
	n = readlinkat(dir, base, out, max);
	if (n < 0)
		return errno == EINVAL || errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	return n;
}

int beneath_mkdirs(struct beneath *b, const char *path, mode_t mode)
{
	_cleanup_fd_ int dir = -1;
	char part[PATH_MEMBER_MAX + 1];
	size_t n = strlen(path);
	const char *base;
	int r;

	if (!n)
		return 0;
	if (!path_is_member(path, n))
		return -EINVAL;
	dir = beneath_parent(b, path, &base);
	if (dir == -ENOENT) {
		n = (size_t)(path_base(path) - path) - 1;
		memcpy(part, path, n);
		part[n] = '\0';
		r = beneath_mkdirs(b, part, mode);
		if (r < 0)
			return r;
		dir = beneath_parent(b, path, &base);
	}
	if (dir < 0)
		return dir;
	if (mkdirat(dir, base, mode) == 0)
		return 1;
	if (errno != EEXIST)
		return -errno;
	r = beneath_open(b, path, O_PATH | O_DIRECTORY, 0);
	if (r < 0)
		return r;
	(void)close(r);
	return 0;
}

int beneath_mkparents(struct beneath *b, const char *path, mode_t mode)
{
	char part[PATH_MEMBER_MAX + 1];
	size_t n = (size_t)(path_base(path) - path);

	if (n == 0)
		return 0;
	if (n > sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, n - 1);
	part[n - 1] = '\0';
	return beneath_mkdirs(b, part, mode);
}

int beneath_create(struct beneath *b, const char *path, mode_t mode)
{
	return beneath_open(b, path, O_RDWR | O_CREAT | O_EXCL, mode);
}

/*
 * Empties directory fd (owned) without recursion and with one descriptor: a directory inside is
 * moved up beside its parent first, so depth never grows (names are made unique by number).
 */
static int empty_dir(int fd)
{
	_cleanup_dir_ DIR *d = fdopendir(fd);
	unsigned long long serial = 0;
	bool again = true;

	if (!d) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	while (again) {
		struct dirent *de;

		again = false;
		rewinddir(d);
		while ((de = readdir(d))) {
			_cleanup_fd_ int sub = -1;
			_cleanup_dir_ DIR *sd = NULL;
			struct dirent *ce;

			if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
				continue;
			if (de->d_type != DT_DIR && unlinkat(fd, de->d_name, 0) == 0)
				continue;
			if (unlinkat(fd, de->d_name, AT_REMOVEDIR) == 0)
				continue;
			if (errno == ENOENT)
				continue;
			sub =
			    openat(fd, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (sub < 0)
				return -errno;
			(void)fchmod(sub, 0700);
			sd = fdopendir(sub);
			if (!sd)
				return -errno;
			(void)TAKE_FD(sub); /* it is the stream's now */
			while ((ce = readdir(sd))) {
				char up[64];

				if (!strcmp(ce->d_name, ".") || !strcmp(ce->d_name, ".."))
					continue;
				if (ce->d_type != DT_DIR && unlinkat(dirfd(sd), ce->d_name, 0) == 0)
					continue;
				do {
					(void)snprintf(up, sizeof(up), ".rm-%llu", serial++);
				} while (renameat2(dirfd(sd), ce->d_name, fd, up,
						   RENAME_NOREPLACE) < 0 &&
					 errno == EEXIST);
				if (faccessat(fd, up, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
					return -errno;
			}
			if (unlinkat(fd, de->d_name, AT_REMOVEDIR) < 0)
				return -errno;
			again = true;
		}
	}
	return 0;
}

int beneath_rmdir(struct beneath *b, const char *path)
{
	_cleanup_fd_ int dir = -1;
	const char *base;

	dir = beneath_parent(b, path, &base);
	if (dir < 0)
		return dir;
	return unlinkat(dir, base, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int beneath_sync_dir(int fd)
{
	if (fsync(fd) == 0)
		return 0;
	if (errno != EINVAL && errno != EOPNOTSUPP)
		return -errno;
	return syncfs(fd) < 0 ? -errno : 0;
}

int beneath_remove_tree(struct beneath *b, const char *path)
{
	_cleanup_fd_ int dir = -1;
	const char *base;
	int fd, r;

	dir = beneath_parent(b, path, &base);
	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	if (unlinkat(dir, base, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = openat(dir, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = empty_dir(fd);
	if (r < 0)
		return r;
	return unlinkat(dir, base, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}
