/*
 * What loses and what goes is kept: copies below the run directory. Part of door 1.
 *
 * Policy: bytes are copied, never looked into; names come from judged members and are made below the
 * run directory, following no link, without replacing anything there. Modes are private (0600, 0700).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "sync/spool.h"
#include "sync/unpack_entry.h"
#include "sync/unpack_steps.h"

int copy_fd(int from, int to)
{
	char buf[32 << 10];
	struct stat st;
	off_t at = 0;
	ssize_t n;
	bool holes;

	/* One block map copied instead of the bytes, where the file system can. */
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	holes = fstat(from, &st) == 0 && (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size;
	while ((n = pread(from, buf, sizeof(buf), at)) != 0) {
		ssize_t done = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (holes && str_is_zero(buf, (size_t)n))
			done = n;
		while (done < n) {
			ssize_t w = pwrite(to, buf + done, (size_t)(n - done), at + done);

			if (w < 0 && errno != EINTR)
				return -errno;
			done += w > 0 ? w : 0;
		}
		at += n;
	}
	return holes && ftruncate(to, at) < 0 ? -errno : 0;
}

int copy_part(int dir, int from, uint64_t at, uint64_t size)
{
	_cleanup_fd_ int fd = spool_nameless(dir);
	char buf[32 << 10];

	if (fd < 0)
		return fd;
	for (uint64_t done = 0; done < size;) {
		size_t want = size - done < sizeof(buf) ? (size_t)(size - done) : sizeof(buf);
		ssize_t n = pread(from, buf, want, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || pwrite(fd, buf, (size_t)n, (off_t)done) != n)
			return -ENOENT;
		done += (uint64_t)n;
	}
	return TAKE_FD(fd);
}

/* A name for what is kept: <place>/<path> of the run, or a numbered one where that is taken. */
static int loser_dir(struct unpack *u, const char *place, const char *path,
		     char name[PATH_MEMBER_MAX + 1], int *ret_fd)
{
	struct beneath b;
	struct stat st;
	int r;

	r = beneath_mkdirs(&u->run, place, 0700);
	if (r < 0)
		return r;
	b = (struct beneath){.root = beneath_open(&u->run, place, O_RDONLY | O_DIRECTORY, 0),
			     .stepwise = u->run.stepwise};
	if (b.root < 0)
		return b.root;
	(void)snprintf(name, PATH_MEMBER_MAX + 1, "%s", path);
	r = beneath_mkparents(&b, name, 0700);
	for (unsigned i = 1; i < 10000 && (r < 0 || beneath_stat(&b, name, &st) == 0); i++) {
		(void)snprintf(name, PATH_MEMBER_MAX + 1, "%u-%.200s", i, path_base(path));
		r = 0;
	}
	*ret_fd = b.root;
	return r < 0 ? r : 0;
}

static int copy_entry(int from_dir, const char *from, struct beneath *to, const char *name)
{
	char target[LINK_TARGET_MAX + 1];
	_cleanup_fd_ int in = -1, out = -1, dir = -1;
	const char *base;
	struct stat st;
	ssize_t n = readlinkat(from_dir, from, target, sizeof(target) - 1);

	if (n >= 0) {
		target[n] = '\0';
		dir = beneath_parent(to, name, &base);
		if (dir < 0)
			return dir;
		return symlinkat(target, dir, base) < 0 ? -errno : 0;
	}
	in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	out = beneath_create(to, name, 0600);
	if (out < 0)
		return out;
	(void)futimens(out, (struct timespec[2]){{.tv_nsec = UTIME_OMIT}, st.st_mtim});
	return copy_fd(in, out);
}

int save_entry(struct unpack *u, const char *place, int from_dir, const char *from,
	       const char *path, char *detail, size_t n, struct err *e)
{
	char name[PATH_MEMBER_MAX + 1];
	_cleanup_fd_ int fd = -1;
	int r = loser_dir(u, place, path, name, &fd);
	struct beneath b = {.root = fd, .stepwise = u->run.stepwise};

	if (r == 0)
		r = copy_entry(from_dir, from, &b, name);
	if (r < 0)
		return err_sys(e, -r, "keep a version of %s in %s", path, place);
	(void)snprintf(detail, n, "%s/%s", place, name);
	return 0;
}

int save_staged(struct unpack *u, uint64_t id, const char *path, char *detail, size_t n,
		struct err *e)
{
	char from[20];

	detail[0] = '\0';
	if (!id)
		return 0;
	stage_name(id, from);
	return save_entry(u, "conflicts/sandbox", u->st.content, from, path, detail, n, e);
}

int save_host(struct unpack *u, const char *path, char *detail, size_t n, struct err *e)
{
	_cleanup_fd_ int dir = -1;
	const char *base;

	dir = beneath_parent(&u->root, path, &base);
	if (dir < 0)
		return err_sys(e, -dir, "keep the host version of %s", path);
	return save_entry(u, "conflicts/host", dir, base, path, detail, n, e);
}

static int copy_dir(int from_dir, const char *from, struct beneath *to, const char *name,
		    unsigned depth);

/* Devices and the like hold none. */
static bool has_bytes(mode_t m)
{
	return S_ISREG(m) || S_ISLNK(m) || S_ISDIR(m);
}

/* A whole entry, directories with what is in them. What has no bytes is left out. */
static int copy_any(int from_dir, const char *from, struct beneath *to, const char *name,
		    unsigned depth)
{
	struct stat st;

	if (fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return depth < PATH_DEPTH_MAX ? copy_dir(from_dir, from, to, name, depth + 1)
					      : -ELOOP;
	return has_bytes(st.st_mode) ? copy_entry(from_dir, from, to, name) : 0;
}

static int copy_dir(int from_dir, const char *from, struct beneath *to, const char *name,
		    unsigned depth)
{
	_cleanup_dir_ DIR *d = NULL;
	struct beneath sub = {.stepwise = to->stepwise};
	_cleanup_fd_ int made = -1;
	struct dirent *de;
	int r = beneath_mkdirs(to, name, 0700), fd;

	if (r < 0)
		return r;
	made = beneath_open(to, name, O_RDONLY | O_DIRECTORY, 0);
	if (made < 0)
		return made;
	sub.root = made;
	fd = openat(from_dir, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		r = -errno;
		if (fd >= 0)
			(void)close(fd);
		return r;
	}
	r = 0;
	/* A list that ends by an error is no list. */
	while (r == 0 && (errno = 0, de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = copy_any(dirfd(d), de->d_name, &sub, de->d_name, depth);
	return r < 0 ? r : -errno;
}

/*
 * Not replacing, into a directory that only we write: so that where there are neither flags of rename nor hard links
 * (sshfs of some servers) a look first is enough.
 */
int save_rename(int from, const char *a, int to, const char *b)
{
	int r = entry_rename_new(from, a, to, b);
	struct stat st;

	if (r != -EPERM && r != -EOPNOTSUPP && r != -ENOSYS && r != -EMLINK)
		return r;
	if (fstatat(to, b, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (errno != ENOENT)
		return -errno;
	return renameat(from, a, to, b) < 0 ? -errno : 0;
}

/* As copy_any, into the directory `dir`: nothing of a copy that did not come to its end has the name. */
static int copy_whole(const struct unpack *u, int from_dir, const char *from, int dir,
		      const char *base)
{
	static const char part[] = ".airlock-part";
	struct beneath b = {.root = dir, .stepwise = u->run.stepwise};
	struct stat st;
	int r;

	if (fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!has_bytes(st.st_mode))
		return 0;
	/* Of a try that was killed. */
	r = beneath_remove_tree(&b, part);
	if (r < 0 && r != -ENOENT)
		return r;
	r = copy_any(from_dir, from, &b, part, 0);
	if (r == 0)
		r = save_rename(dir, part, dir, base);
	if (r < 0)
		(void)beneath_remove_tree(&b, part);
	return r;
}

/* Moves from_dir/from to trash/<path> of the run: 0; 1 it was copied there; or what hindered it. */
static int to_trash(struct unpack *u, int from_dir, const char *from, const char *path)
{
	char name[PATH_MEMBER_MAX + 1];
	_cleanup_fd_ int fd = -1, dir = -1;
	const char *base;
	struct beneath b;
	int r = loser_dir(u, "trash", path, name, &fd);

	if (r < 0)
		return r;
	b = (struct beneath){.root = fd, .stepwise = u->run.stepwise};
	dir = beneath_parent(&b, name, &base);
	if (dir < 0)
		return dir;
	r = save_rename(from_dir, from, dir, base);
	if (r != -EXDEV && r != -EINVAL)
		return r;
	u->copied = true;
	r = copy_whole(u, from_dir, from, dir, base);
	return r < 0 ? r : 1;
}

int save_trash(struct unpack *u, uint64_t id, const char *path)
{
	char from[20];

	stage_name(id, from);
	if (faccessat(u->st.trash, from, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return to_trash(u, u->st.trash, from, path);
}

int save_aside(struct unpack *u, int dir, const char *base, const char *name)
{
	struct beneath b = {.root = u->st.content, .stepwise = u->root.stepwise};
	_cleanup_fd_ int fd = -1;
	int r = copy_entry(dir, base, &b, name);

	if (r < 0)
		return r;
	fd = openat(u->st.content, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP ? 0 : -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

int save_replaced(struct unpack *u, const char *name, const char *path)
{
	return to_trash(u, u->st.content, name, path);
}

int save_whole(struct unpack *u, const char *place, const char *from, const char *path,
	       char *detail, size_t n)
{
	char name[PATH_MEMBER_MAX + 1];
	_cleanup_fd_ int fd = -1, dir = -1;
	const char *base;
	struct beneath b;
	int r = loser_dir(u, place, path, name, &fd);

	if (r < 0)
		return r;
	b = (struct beneath){.root = fd, .stepwise = u->run.stepwise};
	dir = beneath_parent(&b, name, &base);
	r = dir < 0 ? dir : copy_whole(u, u->st.content, from, dir, base);
	if (r == 0)
		(void)snprintf(detail, n, "%s/%s", place, name);
	return r;
}

void give_to(int dir, const char *name, uid_t uid, gid_t gid)
{
	if (geteuid() == 0 && fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		errno = 0;
}
