#include "engine/runlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"

int runlock_try(const char *run_dir, int *ret_fd)
{
	_cleanup_fd_ int fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = 1;

	*ret_fd = -1;
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? 0 : -errno;
	if (r >= 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}
