#include "bridge/queuemake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "bridge/queuedir.h"
#include "os/beneath.h"

#define PREFIX ".airlock-queue-"
#define YOUNG_NS (60 * NS_PER_S) /* between a directory's making and its lock */

/* Set-group-id: what the sandbox's user makes in there is readable by our group, whoever we are. */
static int make_folder(int dir, const char *name, mode_t mode, const struct stat *owner)
{
	_cleanup_fd_ int fd = -1;

	if (mkdirat(dir, name, 0700) < 0)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (owner->st_uid != geteuid() && fchown(fd, owner->st_uid, getegid()) < 0) ||
	    fchmod(fd, mode) < 0)
		return -errno;
	return 0;
}

int queuemake_new(int parent, char name[QUEUEMAKE_NAME], struct err *e)
{
	unsigned char raw[12];
	char hex[2 * sizeof(raw) + 1];
	struct stat st, own = {.st_uid = geteuid()};
	int fd, r = 0;

	randombytes_buf(raw, sizeof(raw));
	(void)sodium_bin2hex(hex, sizeof(hex), raw, sizeof(raw));
	(void)snprintf(name, QUEUEMAKE_NAME, PREFIX "%s", hex);
	if (fstat(parent, &st) < 0 || mkdirat(parent, name, 0700) < 0)
		return err_sys(e, errno, "make the queue %s", name);
	/* An ordinary user's sandbox is that user, and gives nothing away. */
	if (geteuid() != 0)
		st = own;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		r = -errno;
	/* For queuemake_sweep of others. A file system without such locks has nothing of ours swept either. */
	if (r == 0)
		(void)flock(fd, LOCK_EX | LOCK_NB);
	/* The same user on both sides: nobody else has a business here. Two users: each finds its way, the sandbox writes in two. */
	if (r == 0 && fchmod(fd, st.st_uid == own.st_uid ? 0700 : 0755) < 0)
		r = -errno;
	if (r == 0)
		r = make_folder(fd, QUEUE_REQUESTS, 02770, &st);
	if (r == 0)
		r = make_folder(fd, QUEUE_RESPONSES, 02770, &st);
	if (r == 0)
		r = make_folder(fd, QUEUE_CLAIMS, 0700, &own);
	if (r == 0)
		return fd;
	cleanup_fd(&fd);
	queuemake_remove(parent, name);
	return err_sys(e, -r, "make the queue %s", name);
}

static bool left_behind(int parent, const char *name)
{
	_cleanup_fd_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	/* Another user's queue is another user's to remove, and to lock. */
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
	    clock_real_ns() - st.st_mtim.tv_sec * NS_PER_S < YOUNG_NS)
		return false;
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void queuemake_sweep(int parent)
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!d) {
		cleanup_fd(&fd);
		return;
	}
	while ((x = readdir(d)))
		if (str_starts(x->d_name, PREFIX) && left_behind(parent, x->d_name))
			queuemake_remove(parent, x->d_name);
}

void queuemake_remove(int parent, const char *name)
{
	struct beneath b = {.root = parent};

	if (*name)
		(void)beneath_remove_tree(&b, name);
}
