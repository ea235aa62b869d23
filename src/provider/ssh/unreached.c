#include "provider/ssh/unreached.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"

static int make(const char *lease_dir, const char *name)
{
	_cleanup_free_ char *path = path_join(lease_dir, name);

	return path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
}

static void drop(const char *lease_dir, const char *name)
{
	_cleanup_free_ char *path = path_join(lease_dir, name);

	if (path)
		(void)unlink(path);
}

void unreached_note(const char *lease_dir, const char *why)
{
	_cleanup_fd_ int fd = make(lease_dir, SANDBOX_UNREACHED);

	if (fd >= 0)
		(void)!write(fd, why, strlen(why));
}

void unreached_clear(const char *lease_dir, bool ended)
{
	drop(lease_dir, SANDBOX_UNREACHED);
	if (ended)
		drop(lease_dir, SANDBOX_GOES_ON);
}

void unreached_goes_on(const char *lease_dir, uint64_t ms)
{
	_cleanup_fd_ int fd = make(lease_dir, SANDBOX_GOES_ON);
	int64_t until = clock_real_ns() + ((int64_t)ms + REMOTE_SILENT_MS) * NS_PER_MS;
	const struct timespec t = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};

	if (fd >= 0)
		(void)futimens(fd, (const struct timespec[]){t, t});
}

/* What that machine itself says of the run is an answer. Who comes for the run alone has ended there what still went on. */
int unreached_remember(const struct sandbox_spec *s, int r, const struct err *e)
{
	if (r == -ECANCELED)
		return r;
	if (r >= 0 || r == -ENOENT || !e)
		unreached_clear(s->lease_dir, !s->keep);
	else
		unreached_note(s->lease_dir, e->text);
	return r;
}
