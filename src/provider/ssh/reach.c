#include "provider/ssh/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"

#define TOOK_MAX_MS 600000

static int open_there(const char *lease_dir, int flags)
{
	_cleanup_free_ char *path = path_join(lease_dir, "there");

	return path ? open(path, flags | O_NOFOLLOW | O_CLOEXEC) : -1;
}

int reach_mark(const struct sandbox_spec *s, bool *ret_made, struct err *e)
{
	_cleanup_free_ char *path = path_join(s->lease_dir, "there");
	_cleanup_fd_ int fd = -1;

	if (!path)
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (ret_made)
		*ret_made = fd < 0 && errno == ENOENT;
	if (fd < 0 && ret_made && *ret_made)
		fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		return 1;
	return errno == ENOENT && !ret_made ? 0 : err_sys(e, errno, "%s", path);
}

void reach_unmark(const char *lease_dir)
{
	_cleanup_free_ char *path = path_join(lease_dir, "there");

	if (path)
		(void)unlink(path);
}

void reach_note(const char *lease_dir, int64_t took_ns)
{
	_cleanup_fd_ int fd = open_there(lease_dir, O_WRONLY | O_TRUNC);
	char text[24];
	int n = snprintf(text, sizeof(text), "%lld\n", (long long)(took_ns / NS_PER_MS));

	if (fd >= 0)
		(void)!write(fd, text, (size_t)n);
}

int64_t reach_ns(const struct sandbox_spec *s)
{
	_cleanup_fd_ int fd = open_there(s->lease_dir, O_RDONLY);
	char text[24] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	uint64_t ms = 0;

	text[n < 0 ? 0 : n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (str_to_u64(text, TOOK_MAX_MS, &ms) < 0)
		ms = 0;
	return (REMOTE_REACH_MS + 2 * (int64_t)ms) * NS_PER_MS;
}

int reach_failed(const char *label, int64_t ns, struct err *e)
{
	return err_set(
	    e, ERR_TIMEOUT,
	    "ssh %s: it could not be reached within %d s; what the run left there is removed later",
	    label, (int)(ns / NS_PER_S));
}
