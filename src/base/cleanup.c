#include "base/cleanup.h"

#include <errno.h>
#include <unistd.h>

void cleanup_fd(int *fd)
{
	int saved = errno;

	/*
	 * Written only after a failure: a process that shares this memory and is about to read its own error
	 * (provider/native/launch.c) would read ours instead.
	 */
	if (*fd >= 0 && close(*fd) < 0)
		errno = saved;
	*fd = -1;
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
