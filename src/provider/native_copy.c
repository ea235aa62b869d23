/*
 * The workspace without overlay: what the layers show together, as a private copy.
 *
 * Made in the place of overlay's work directory, which has no other use then, and goes with the lease as ever.
 * From the lowest layer up, as overlay reads them: a whiteout removes, an opaque directory empties,
 * anything else replaces. Layers are ours (sync_in wrote them), so a strange entry is an error
 * and never skipped. Not done here: hard links between files of a layer become copies.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "provider/native.h"
#include "provider/native_storage.h"

struct copy {
	uid_t uid;
	gid_t gid;
	bool chown;
};

static int copy_dir(const struct copy *c, int from, int to, unsigned depth);

static int finish(const struct copy *c, int fd, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if (c->chown && fchown(fd, c->uid, c->gid) < 0)
		return -errno;
	if (fchmod(fd, st->st_mode & 0777) < 0 || futimens(fd, times) < 0)
		return -errno;
	return 0;
}

static int copy_piece(int in, int out, off_t at, off_t end)
{
	off_t to = at;

	while (at < end) {
		ssize_t n = copy_file_range(in, &at, out, &to, (size_t)(end - at), 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO; /* shorter than it was a moment ago, and a layer never changes */
	}
	return 0;
}

/* copy_file_range writes holes out: a disk image of 1 TB with 1 GB in it would not fit. */
static int copy_data(int in, int out, off_t size)
{
	for (off_t at = 0; at < size;) {
		off_t data = lseek(in, at, SEEK_DATA), hole;
		int r;

		if (data < 0 && errno == ENXIO)
			break;
		hole = data < 0 ? -1 : lseek(in, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		r = copy_piece(in, out, data, hole);
		if (r < 0)
			return r;
		at = hole;
	}
	return ftruncate(out, size) < 0 ? -errno : 0;
}

static int copy_file(const struct copy *c, int from, int to, const char *name,
		     const struct stat *st)
{
	_cleanup_fd_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (in < 0 || out < 0)
		return -errno;
	r = copy_data(in, out, st->st_size);
	return r < 0 ? r : finish(c, out, st);
}

static int copy_link(const struct copy *c, int from, int to, const char *name,
		     const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (symlinkat(target, to, name) < 0)
		return -errno;
	if (c->chown && fchownat(to, name, c->uid, c->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int copy_subdir(const struct copy *c, int from, int to, const char *name,
		       const struct stat *st, unsigned depth)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_fd_ int in = openat(from, name, flags), out = -1;
	unsigned all = UINT_MAX;
	char opaque = 0;
	int r;

	if (in < 0)
		return -errno;
	if (fgetxattr(in, "user.overlay.opaque", &opaque, 1) == 1 && opaque == 'y') {
		r = storage_remove(to, name, &all);
		if (r < 0)
			return r;
	}
	if (mkdirat(to, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	out = openat(to, name, flags);
	if (out < 0)
		return -errno;
	r = copy_dir(c, in, out, depth);
	return r < 0 ? r : finish(c, out, st);
}

static int copy_entry(const struct copy *c, int from, int to, const char *name, unsigned depth)
{
	struct stat st, old;
	unsigned all = UINT_MAX;
	bool have;
	int r;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	have = fstatat(to, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
	/* Only a directory over a directory is merged. */
	if (have && !(S_ISDIR(st.st_mode) && S_ISDIR(old.st_mode))) {
		r = storage_remove(to, name, &all);
		if (r < 0)
			return r;
	}
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0))
		return 0;
	if (S_ISREG(st.st_mode))
		return copy_file(c, from, to, name, &st);
	if (S_ISLNK(st.st_mode))
		return copy_link(c, from, to, name, &st);
	if (S_ISDIR(st.st_mode))
		return depth < PATH_DEPTH_MAX ? copy_subdir(c, from, to, name, &st, depth + 1)
					      : -ELOOP;
	return -EINVAL;
}

static int copy_dir(const struct copy *c, int from, int to, unsigned depth)
{
	int fd = fcntl(from, F_DUPFD_CLOEXEC, 3), r = 0;
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		cleanup_fd(&fd);
		return -ENOMEM;
	}
	while (r == 0 && (errno = 0, ent = readdir(d)))
		if (strcmp(ent->d_name, ".") != 0 && strcmp(ent->d_name, "..") != 0)
			r = copy_entry(c, from, to, ent->d_name, depth);
	return r == 0 && !ent ? -errno : r;
}

static bool is_empty(int dir)
{
	int fd = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		rewinddir(d);
	return n <= 2;
}

static int put(const struct plan *p, int lease)
{
	const struct copy c = {p->uid_host, p->gid_host, geteuid() == 0};
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_fd_ int to = openat(lease, "work", flags);
	int r = to < 0 ? -errno : 0;

	for (size_t i = p->layers_len; r == 0 && i-- > 0;) {
		_cleanup_fd_ int from = open(p->layers[i], flags);

		r = from < 0 ? -errno : copy_dir(&c, from, to, 0);
	}
	/* At once, over the empty one: half a copy is never taken for the sandbox's work. */
	if (r == 0 && renameat(lease, "work", lease, "upper") < 0)
		r = -errno;
	return r;
}

/*
 * A lease that is started again keeps what the sandbox made of it, also where that is nothing at all. The mark comes last: between the
 * two nothing ran that could have emptied it. One without a mark is of an older version.
 */
int native_copy_layers(const struct plan *p, struct err *e)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_fd_ int lease = open(p->lease_dir, flags);
	_cleanup_fd_ int upper = lease < 0 ? -1 : openat(lease, "upper", flags), mark = -1;
	int r;

	if (upper < 0)
		return err_sys(e, errno, "copy of the workspace in %s", p->lease_dir);
	if (faccessat(lease, STORAGE_COPIED, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = is_empty(upper) ? put(p, lease) : 0;
	if (r < 0)
		return err_sys(e, -r, "copy the workspace to %s", p->lease_dir);
	mark = openat(lease, STORAGE_COPIED, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return mark < 0 ? err_sys(e, errno, "note the copy in %s", p->lease_dir) : 0;
}
