#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

bool fd_has_name(int fd, int at, const char *name, int flags)
{
	struct stat open, named;

	return fstat(fd, &open) == 0 && fstatat(at, name, &named, flags) == 0 &&
	       open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

/* at -1: where it stands. */
static int write_all(int fd, const char *p, size_t n, off_t at)
{
	while (n) {
		ssize_t k = at < 0 ? write(fd, p, n) : pwrite(fd, p, n, at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -EIO;
		p += k;
		n -= (size_t)k;
		if (at >= 0)
			at += k;
	}
	return 0;
}

int fd_write(int fd, const void *p, size_t n)
{
	return write_all(fd, p, n, -1);
}

int fd_write_at(int fd, const void *p, size_t n, uint64_t at)
{
	return at > INT64_MAX ? -EOVERFLOW : write_all(fd, p, n, (off_t)at);
}
