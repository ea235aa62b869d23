#include "sync/indexlock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/path.h"
#include "os/copy.h"
#include "sync/git_find.h"

#define LOOK_MS 20
/* In the lock: for us, and for a person whom git sends here. */
#define MARK "airlock brings commits back and holds the index"
#define MARK_LINE MARK "; after a crash 'airlock recover' lets go of it\n"

static void forget(struct indexlock *l)
{
	cleanup_fd(&l->fd);
	cleanup_fd(&l->old);
	free(l->index);
	free(l->lock);
	free(l->copy);
	free(l->copy_lock);
	*l = (struct indexlock){.fd = -1, .old = -1};
}

/* git locks what a link leads to. */
static int name_all(const struct git_repo *g, struct indexlock *l)
{
	char *real;

	*l = (struct indexlock){.index = path_join(g->git_dir, "index"), .fd = -1, .old = -1};
	real = l->index ? realpath(l->index, NULL) : NULL;
	if (real) {
		free(l->index);
		l->index = real;
	}
	if (!l->index || asprintf(&l->lock, "%s.lock", l->index) < 0)
		l->lock = NULL;
	if (!l->lock || asprintf(&l->copy, "%s.airlock", l->index) < 0)
		l->copy = NULL;
	if (!l->copy || asprintf(&l->copy_lock, "%s.lock", l->copy) < 0)
		l->copy_lock = NULL;
	return l->copy_lock ? 0 : -ENOMEM;
}

static int mark(int fd)
{
	static const char line[] = MARK_LINE;

	(void)flock(fd, LOCK_EX | LOCK_NB); /* without one it is only never taken over */
	if (write(fd, line, sizeof(line) - 1) != (ssize_t)sizeof(line) - 1)
		return -ENOSPC;
	/* Before it has its name: one that a power cut left empty would be nobody's, for ever. */
	return fdatasync(fd) < 0 ? -errno : 0;
}

/* With its mark from the start, where the file system can. -EEXIST: somebody has it. */
static int make_whole(const char *lock)
{
	_cleanup_free_ char *dir = strndup(lock, (size_t)(strrchr(lock, '/') - lock));
	_cleanup_fd_ int fd = -1;
	char self[32];
	int r;

	if (!dir)
		return -ENOMEM;
	fd = open(dir[0] ? dir : "/", O_RDWR | O_TMPFILE | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = mark(fd);
	if (r < 0)
		return r;
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, self, AT_FDCWD, lock, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	r = fd;
	fd = -1;
	return r;
}

/* The same without files that have no name, under a name of this process's. */
static int make_named(const char *lock)
{
	_cleanup_free_ char *tmp = NULL;
	_cleanup_fd_ int fd = -1;
	int r;

	if (asprintf(&tmp, "%s.airlock-%d", lock, (int)getpid()) < 0) {
		tmp = NULL;
		return -ENOMEM;
	}
	(void)unlink(tmp); /* of one that was killed and had our number */
	fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = mark(fd);
	if (r == 0 && link(tmp, lock) < 0)
		r = -errno;
	(void)unlink(tmp);
	if (r < 0)
		return r;
	r = fd;
	fd = -1;
	return r;
}

static bool final(int fd)
{
	return fd >= 0 || fd == -EEXIST || fd == -ENOSPC || fd == -EDQUOT;
}

static int make(const char *lock)
{
	int fd = make_whole(lock), r;

	if (!final(fd))
		fd = make_named(lock);
	if (final(fd))
		return fd;
	/* No links either. */
	fd = open(lock, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = mark(fd);
	if (r == 0)
		return fd;
	(void)unlink(lock);
	(void)close(fd);
	return r;
}

/* The lock of one of us who is dead, now ours. -EEXIST: it is no such. */
static int adopt(const char *lock)
{
	_cleanup_fd_ int fd = open(lock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[sizeof(MARK)] = "";
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    pread(fd, text, sizeof(MARK) - 1, 0) != (ssize_t)sizeof(MARK) - 1 ||
	    memcmp(text, MARK, sizeof(MARK) - 1) != 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -EEXIST;
	/* Its owner may have let go of it before we had the flock. */
	if (!fd_has_name(fd, AT_FDCWD, lock, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	r = fd;
	fd = -1;
	return r;
}

static void remove_copies(const struct indexlock *l)
{
	(void)unlink(l->copy);
	(void)unlink(l->copy_lock);
}

static int wait_for(const struct git_repo *g, struct indexlock *l, struct err *e)
{
	int64_t until = clock_mono_ns() + INDEX_LOCK_WAIT_MS * NS_PER_MS;

	for (;;) {
		l->fd = make(l->lock);
		if (l->fd == -EEXIST)
			l->fd = adopt(l->lock);
		if (l->fd >= 0)
			return 0;
		if (l->fd != -EEXIST)
			return err_sys(e, -l->fd, "lock the index with %s", l->lock);
		if (g->cancel && *g->cancel)
			return err_set(e, ERR_CANCELLED, "cancelled while another git held %s",
				       l->lock);
		if (clock_mono_ns() > until)
			return err_set(
			    e, ERR_CONFLICT,
			    "%s is held by another git, which did not let go of it within "
			    "%d s: end it, or remove the file if none runs",
			    l->lock, INDEX_LOCK_WAIT_MS / 1000);
		(void)poll(NULL, 0, LOOK_MS);
	}
}

int indexlock_take(const struct git_repo *g, struct indexlock *ret, struct err *e)
{
	int r = name_all(g, ret) < 0 ? err_sys(e, ENOMEM, "%s", g->git_dir) : wait_for(g, ret, e);

	if (r < 0) {
		ret->fd = -1;
		forget(ret);
		return r;
	}
	remove_copies(ret);
	ret->old = open(ret->index, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (ret->old >= 0 || errno == ENOENT)
		return 0;
	r = err_sys(e, errno, "%s", ret->index);
	indexlock_release(ret);
	return r;
}

int indexlock_copy(const struct indexlock *l, struct err *e)
{
	_cleanup_fd_ int to = -1;
	struct stat st;
	int r = 0;

	if (l->old < 0)
		return 0;
	(void)unlink(l->copy);
	if (fstat(l->old, &st) < 0)
		return err_sys(e, errno, "%s", l->index);
	to = open(l->copy, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return err_sys(e, errno, "%s", l->copy);
	r = copy_file(l->old, to);
	/* git compares the stamps of files with the index's own to know whose bytes it must look at. */
	if (r == 0 && futimens(to, (struct timespec[]){st.st_atim, st.st_mtim}) < 0)
		r = -errno;
	if (r == 0 && fchmod(to, st.st_mode & 0777) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, -r, "%s", l->copy) : 0;
}

int indexlock_quiet(const struct indexlock *l, struct err *e)
{
	static const struct timespec none[2] = {{0, 0}, {0, 0}};

	return utimensat(AT_FDCWD, l->copy, none, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT
		   ? err_sys(e, errno, "%s", l->copy)
		   : 0;
}

/* Whatever was as young as the index was must still be looked at by the user's own git, and what is younger still is. */
static int set_time(const struct indexlock *l, struct err *e)
{
	struct timespec t[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 1}};
	struct stat st;

	if (l->old >= 0 && fstat(l->old, &st) < 0)
		return err_sys(e, errno, "%s", l->index);
	if (l->old >= 0)
		t[1] = st.st_mtim;
	return utimensat(AT_FDCWD, l->copy, t, AT_SYMLINK_NOFOLLOW) < 0
		   ? err_sys(e, errno, "%s", l->copy)
		   : 0;
}

int indexlock_put(const struct indexlock *l, struct err *e)
{
	int r = set_time(l, e);

	return r < 0 ? r : rename(l->copy, l->index) < 0 ? err_sys(e, errno, "%s", l->index) : 0;
}

int indexlock_restore(const struct indexlock *l, struct err *e)
{
	int r;

	if (l->old < 0)
		return unlink(l->index) < 0 && errno != ENOENT ? err_sys(e, errno, "%s", l->index)
							       : 0;
	r = indexlock_copy(l, e);
	return r < 0 ? r : indexlock_put(l, e);
}

void indexlock_release(struct indexlock *l)
{
	if (l->fd >= 0) {
		remove_copies(l);
		(void)unlink(l->lock);
	}
	forget(l);
}

void indexlock_sweep(const struct git_repo *g)
{
	struct indexlock l;

	if (name_all(g, &l) == 0) {
		l.fd = adopt(l.lock);
		indexlock_release(&l);
	} else {
		forget(&l);
	}
}

void indexlock_sweep_at(const char *dir)
{
	_cleanup_free_ char *real = realpath(dir, NULL), *git_dir = NULL, *common = NULL;

	if (real && git_find_at(real, &git_dir, &common) == 1)
		indexlock_sweep(&(struct git_repo){.git_dir = git_dir});
}
