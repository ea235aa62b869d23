/* Whether a store is in use; see store.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "sync/store.h"

#define IDLE 0
#define BUSY 1
#define YOUNG_NS (60 * NS_PER_S) /* who makes a store has its lock long before */

/* Calls fn for the names below at/sub until it says BUSY. No such directory: IDLE. */
static int any_name(int at, const char *sub, int (*fn)(int at, const char *name))
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int fd = openat(at, sub, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = IDLE;

	if (fd < 0)
		return errno == ENOENT ? IDLE : -errno;
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	for (errno = 0; r == IDLE && (de = readdir(d)); errno = 0)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = fn(dirfd(d), de->d_name);
	return r == IDLE && errno ? -errno : r;
}

/* Any name is a pin: of a kept sandbox, of work to be recovered, of results that wait. */
static int is_pin(int at, const char *name)
{
	(void)at;
	(void)name;
	return BUSY;
}

/* The process of a run holds its generation's lock shared. */
static int is_held(int at, const char *name)
{
	_cleanup_fd_ int fd = -1;
	size_t n = strlen(name);

	if (n < 5 || strcmp(name + n - 5, ".lock") != 0)
		return IDLE;
	fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? IDLE : -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return IDLE;
	return errno == EWOULDBLOCK ? BUSY : -errno;
}

/* The lock is touched by every sync_in, `pins` changes when a lease gives its pin back. */
static int64_t last_use(int fd)
{
	static const char *const names[] = {".", "lock", "stack", "layers", "pins"};
	int64_t last = 0;
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		int64_t t;

		if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		t = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
		last = t > last ? t : last;
	}
	return last;
}

int store_idle(const char *path, int64_t before_ns, int *ret_lock, bool *ret_used, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
			 lock = -1;
	int r;

	*ret_lock = -1;
	*ret_used = false;
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "open the store %s", path);
	lock = openat(fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (lock < 0 && errno != ENOENT)
		return err_sys(e, errno, "open %s/lock", path);
	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0) {
		*ret_used = errno == EWOULDBLOCK;
		return *ret_used ? 0 : err_sys(e, errno, "lock the store %s", path);
	}
	/* Another one may have taken it away before we had the lock, and a run have made a new one. */
	if (!fd_has_name(fd, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (lock < 0 && last_use(fd) > clock_real_ns() - YOUNG_NS) {
		*ret_used = true;
		return 0;
	}
	/* Under the lock no sync_in takes a hold that was not there; a pin is made while there is a hold. */
	r = any_name(fd, "layers", is_held);
	if (r == IDLE)
		r = any_name(fd, "pins", is_pin);
	if (r < 0)
		return err_sys(e, -r, "look at the store %s", path);
	*ret_used = r == BUSY;
	if (r == BUSY || last_use(fd) > before_ns)
		return 0;
	*ret_lock = TAKE_FD(lock);
	return 1;
}
