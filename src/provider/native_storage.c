#include "provider/native_storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/path.h"

#define SWEEP_NS (NS_PER_S / 2) /* nobody waits longer for files that nobody misses */
#define DEPTH_MAX 32		/* directories open at once; what lies deeper is moved up first */

static const struct {
	const char *name;
	mode_t mode;
} parts[] = {{"upper", 0755}, {"work", 0755}, {"home", 0755}, {"tmp", 01777}};

static int open_dir(int at, const char *path)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int make_part(int dir, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
	_cleanup_fd_ int fd = -1;

	if (mkdirat(dir, name, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	fd = open_dir(dir, name);
	if (fd < 0)
		return fd;
	if (uid != (uid_t)-1 && fchown(fd, uid, gid) < 0)
		return -errno;
	/* After mkdir, so that the caller's umask has no say. */
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

int storage_make(const char *lease_dir, uid_t uid, gid_t gid, struct err *e)
{
	_cleanup_fd_ int dir = open_dir(AT_FDCWD, lease_dir);
	unsigned budget = UINT_MAX;
	int r;

	if (dir < 0)
		return err_sys(e, -dir, "sandbox storage %s", lease_dir);
	r = storage_remove(dir, "work", &budget);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(parts); i++)
		r = make_part(dir, parts[i].name, parts[i].mode, uid, gid);
	return r < 0 ? err_sys(e, -r, "sandbox storage %s", lease_dir) : 0;
}

/* A directory that its owner cannot open (overlay's work/work is 000; so is what an agent chmods). */
static int open_any_dir(int at, const char *name)
{
	_cleanup_fd_ int path = -1;
	char self[64];
	int fd = open_dir(at, name);

	if (fd != -EACCES)
		return fd;
	path = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (path < 0)
		return -errno;
	/* Safe because: the descriptor is the directory itself; no name is looked up again. */
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
	if (chmod(self, 0700) < 0)
		return -errno;
	return open_dir(at, name);
}

/* Of a directory with a new parent the kernel rewrites "..", so its owner must be allowed to write into it. */
static int make_movable(int at, const char *name)
{
	_cleanup_fd_ int fd = open_any_dir(at, name);

	if (fd < 0)
		return fd;
	return fchmod(fd, 0700) < 0 && errno != EPERM ? -errno : 0;
}

struct removal {
	int top; /* where too deep directories are moved */
	int64_t until_ns;
	unsigned *budget, moved;
};

static int remove_dir(struct removal *rm, int at, const char *name, unsigned depth);

/* -EXDEV: it lies at the top now, and the caller of all starts again with it. */
static int move_up(struct removal *rm, int at, const char *name)
{
	int r = make_movable(at, name);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	for (;;) {
		char up[32];

		(void)snprintf(up, sizeof(up), ".deep-%u", rm->moved++);
		/* The call itself: the launcher's C library has none for it. */
		if (syscall(SYS_renameat2, at, name, rm->top, up, RENAME_NOREPLACE) == 0)
			return -EXDEV;
		if (errno != EEXIST)
			return -errno;
	}
}

static int remove_entry(struct removal *rm, int at, const char *name, unsigned depth)
{
	if (*rm->budget == 0 || clock_mono_ns() > rm->until_ns)
		return -EAGAIN;
	if (unlinkat(at, name, 0) == 0) {
		(*rm->budget)--;
		return 0;
	}
	if (errno != EISDIR && errno != EPERM)
		return errno == ENOENT ? 0 : -errno;
	return depth < DEPTH_MAX ? remove_dir(rm, at, name, depth) : move_up(rm, at, name);
}

static int remove_dir(struct removal *rm, int at, const char *name, unsigned depth)
{
	_cleanup_dir_ DIR *d = NULL;
	bool moved = false;
	int fd = open_any_dir(at, name);
	struct dirent *ent;
	int r;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	/* Entries go only from a directory that may be written and searched. */
	if (fchmod(fd, 0700) < 0 && errno != EPERM) {
		r = -errno;
		cleanup_fd(&fd);
		return r;
	}
	d = fdopendir(fd);
	if (!d) {
		cleanup_fd(&fd);
		return -ENOMEM;
	}
	while ((ent = readdir(d))) {
		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
			continue;
		r = remove_entry(rm, dirfd(d), ent->d_name, depth + 1);
		if (r == -EXDEV)
			moved = true;
		else if (r < 0)
			return r;
	}
	if (unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	if (*rm->budget)
		(*rm->budget)--;
	return moved ? -EXDEV : 0;
}

/* What was moved up is found again by its name, also by a later call. */
static int remove_moved(struct removal *rm)
{
	unsigned done = 0;
	int r = 0;

	while (r == 0 && done < rm->moved) {
		char up[32];

		(void)snprintf(up, sizeof(up), ".deep-%u", done++);
		r = remove_entry(rm, rm->top, up, 0);
		if (r == -EXDEV)
			r = 0;
	}
	return r;
}

static int remove_until(int dirfd, const char *name, unsigned *budget, int64_t until_ns)
{
	struct removal rm = {.top = dirfd, .until_ns = until_ns, .budget = budget};
	int r = remove_entry(&rm, dirfd, name, 0);

	return r == -EXDEV || (r == 0 && rm.moved) ? remove_moved(&rm) : r;
}

int storage_remove(int dirfd, const char *name, unsigned *budget)
{
	return remove_until(dirfd, name, budget, INT64_MAX);
}

static int move_parts(int lease, int trash, const char *id)
{
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		char to[NAME_MAX + 1], unique[ID_LEN + 1];
		int r = id_new(unique);

		if (r < 0)
			return r;
		(void)snprintf(to, sizeof(to), "%.100s-%s-%s", id, parts[i].name, unique);
		r = make_movable(lease, parts[i].name);
		if (r == 0 && renameat(lease, parts[i].name, trash, to) < 0)
			r = -errno;
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

/*
 * What cannot be removed stays for 'airlock prune', which names it. It is another lease's, perhaps made so by what
 * ran there: it must neither fail this lease's release nor keep the rest of the trash on the disk.
 */
static int sweep(int trash, unsigned *budget)
{
	int copy = fcntl(trash, F_DUPFD_CLOEXEC, 3);
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	int64_t until = clock_mono_ns() + SWEEP_NS;
	struct dirent *ent;
	int r = 0;

	if (!d) {
		cleanup_fd(&copy);
		return -ENOMEM;
	}
	rewinddir(d);
	while (r != -EAGAIN && (ent = readdir(d)))
		if (strcmp(ent->d_name, ".") != 0 && strcmp(ent->d_name, "..") != 0)
			r = remove_until(trash, ent->d_name, budget, until);
	return 0;
}

int storage_destroy(const char *lease_dir, const char *trash, unsigned budget, struct err *e)
{
	_cleanup_fd_ int lease = open_dir(AT_FDCWD, lease_dir), bin = -1;
	unsigned all = UINT_MAX;
	int r = 0;

	if (lease == -ENOENT)
		return 0;
	if (lease < 0)
		return err_sys(e, -lease, "remove sandbox storage %s", lease_dir);
	if (unlinkat(lease, "control.sock", 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "remove %s/control.sock", lease_dir);
	if (unlinkat(lease, STORAGE_COPIED, 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "remove %s/" STORAGE_COPIED, lease_dir);
	bin = trash ? open_dir(AT_FDCWD, trash) : -ENOENT;
	if (bin >= 0) {
		r = move_parts(lease, bin, path_base(lease_dir));
		if (r == 0)
			r = sweep(bin, &budget);
	}
	/* No trash, or one on another file system. */
	if (bin < 0 || r == -EXDEV) {
		r = 0;
		for (size_t i = 0; r == 0 && i < ARRAY_LEN(parts); i++)
			r = storage_remove(lease, parts[i].name, &all);
	}
	return r < 0 ? err_sys(e, -r, "remove sandbox storage %s", lease_dir) : 0;
}
