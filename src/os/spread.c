#include "os/spread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"

void spread_below(const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int flags = 0; /* an int, whatever the names of the requests say */

	if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_TOPDIR_FL))
		return;
	flags |= FS_TOPDIR_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

int spread_mkdir(const char *dir, const char *name)
{
	_cleanup_fd_ int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char made[ID_LEN + 2] = ".";
	int r;

	if (at < 0)
		return -errno;
	if (faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = id_new(made + 1);
	if (r < 0)
		return r;
	if (mkdirat(at, made, 0700) < 0)
		return -errno;
	if (renameat2(at, made, at, name, RENAME_NOREPLACE) == 0)
		return 0;
	r = -errno;
	(void)unlinkat(at, made, AT_REMOVEDIR);
	if (r == -EEXIST)
		return 0;
	/* A file system that knows no such rename. */
	return mkdirat(at, name, 0700) < 0 && errno != EEXIST ? -errno : 0;
}
