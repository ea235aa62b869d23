#include "bridge/queuemake.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "bridge/queuedir.h"
#include "os/beneath.h"

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
	(void)snprintf(name, QUEUEMAKE_NAME, ".airlock-queue-%s", hex);
	if (fstat(parent, &st) < 0 || mkdirat(parent, name, 0700) < 0)
		return err_sys(e, errno, "make the queue %s", name);
	/* An ordinary user's sandbox is that user, and gives nothing away. */
	if (geteuid() != 0)
		st = own;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		r = -errno;
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

void queuemake_remove(int parent, const char *name)
{
	struct beneath b = {.root = parent};

	if (*name)
		(void)beneath_remove_tree(&b, name);
}
