#include "os/fslog.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"

#define EXT4_MAGIC 0xef53    /* statfs(2) */
#define XFS_MAGIC 0x58465342 /* statfs(2) */

/* The kernel names the thread that writes the journal, or says "<none>". */
static bool ext4_has_journal(dev_t dev)
{
	char link[64], target[PATH_MAX], file[PATH_MAX + 64], text[32] = "";
	_cleanup_fd_ int fd = -1;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	n = readlink(link, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = '\0';
	(void)snprintf(file, sizeof(file), "/sys/fs/ext4/%s/journal_task", path_base(target));
	fd = open(file, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && text[0] >= '0' && text[0] <= '9';
}

bool fslog_is_shared(int fd)
{
	struct statfs f;
	struct stat st;

	if (fstatfs(fd, &f) < 0 || fstat(fd, &st) < 0)
		return false;
	return f.f_type == XFS_MAGIC || (f.f_type == EXT4_MAGIC && ext4_has_journal(st.st_dev));
}
