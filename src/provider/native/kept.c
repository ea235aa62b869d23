#include "provider/native/kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/str.h"
#include "provider/native_storage.h"

#define DAY 86400 /* seconds */
#define YOUNG 60  /* seconds; who makes one has it locked long before */

static int open_one(int roots, const char *name)
{
	int fd = openat(roots, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int kept_hold(int roots, const char *name)
{
	_cleanup_fd_ int fd = open_one(roots, name);
	struct stat st;

	if (fd < 0)
		return fd;
	/* One that was renamed before this lock may have lost half of itself since. */
	if (flock(fd, LOCK_SH | LOCK_NB) < 0 ||
	    !fd_has_name(fd, roots, name, AT_SYMLINK_NOFOLLOW) || fstat(fd, &st) < 0)
		return -EBUSY;
	if (time(NULL) - st.st_mtime > DAY)
		(void)futimens(fd, NULL);
	return TAKE_FD(fd);
}

static bool is_making(const char *name)
{
	return str_starts(name, KEPT_MAKING);
}

/* Nothing else that lies there is ours. */
static bool is_root(const char *name)
{
	return strlen(name) == KEPT_NAME && strspn(name, "0123456789abcdef") == KEPT_NAME;
}

static bool is_old(const struct kept_sweep *s, int fd, const char *name)
{
	int64_t least = is_making(name) ? YOUNG : s->unused_s;
	struct stat st;

	return fstat(fd, &st) == 0 && time(NULL) - st.st_mtime >= least;
}

/* Under another name first: what a kill leaves of it is no root. */
static int remove_locked(struct kept_sweep *s, int roots, const char *name)
{
	char gone[sizeof(KEPT_MAKING) + ID_LEN] = KEPT_MAKING;
	int r;

	if (is_making(name))
		return storage_remove(roots, name, &s->entries);
	r = id_new(gone + strlen(KEPT_MAKING));
	if (r == 0 && renameat(roots, name, roots, gone) < 0)
		r = -errno;
	return r < 0 ? r : storage_remove(roots, gone, &s->entries);
}

static int sweep_one(struct kept_sweep *s, int roots, const char *name)
{
	_cleanup_fd_ int fd = open_one(roots, name);
	int r = 0;

	if (fd < 0 || !is_old(s, fd, name))
		return fd == -ENOENT || fd >= 0 ? 0 : fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		s->used += errno == EWOULDBLOCK;
		return errno == EWOULDBLOCK ? 0 : -errno;
	}
	/* Until then somebody may have used it, or have put another one in its place. */
	if (!fd_has_name(fd, roots, name, AT_SYMLINK_NOFOLLOW) || !is_old(s, fd, name))
		return 0;
	if (s->each)
		s->each(s->arg, name);
	if (!s->dry_run)
		r = remove_locked(s, roots, name);
	s->gone += r == 0;
	return r;
}

int kept_sweep(int roots, struct kept_sweep *s)
{
	int fd = openat(roots, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	s->gone = s->used = 0;
	if (!d) {
		r = -errno;
		cleanup_fd(&fd);
		return r;
	}
	if (flock(fd, LOCK_EX | (s->wait ? 0 : LOCK_NB)) < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	while ((ent = readdir(d))) {
		int one;

		if (!is_making(ent->d_name) && !is_root(ent->d_name))
			continue;
		if (s->entries == 0 || (s->gone && clock_mono_ns() > s->until_ns))
			return -EAGAIN;
		one = sweep_one(s, fd, ent->d_name);
		r = r == 0 ? one : r;
	}
	return r;
}
