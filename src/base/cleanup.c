#include "base/cleanup.h"

#include <errno.h>
#include <unistd.h>

void cleanup_fd(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
	errno = saved;
}

void cleanup_file(FILE **f)
{
	int saved = errno;

	if (*f)
		(void)fclose(*f);
	*f = NULL;
	errno = saved;
}

void cleanup_dir(DIR **d)
{
	int saved = errno;

	if (*d)
		(void)closedir(*d);
	*d = NULL;
	errno = saved;
}
