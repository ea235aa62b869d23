#include "os/spread.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "base/cleanup.h"

void spread_below(const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int flags = 0; /* an int, whatever the names of the requests say */

	if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_TOPDIR_FL))
		return;
	flags |= FS_TOPDIR_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}
