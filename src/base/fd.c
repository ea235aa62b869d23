#include "base/fd.h"

#include <fcntl.h>
#include <sys/stat.h>

bool fd_has_name(int fd, int at, const char *name, int flags)
{
	struct stat open, named;

	return fstat(fd, &open) == 0 && fstatat(at, name, &named, flags) == 0 &&
	       open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}
