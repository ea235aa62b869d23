/* Pins of stacks; what they are for is said in sync_in.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/sync_in.h"

/* Opens <store>/pins and gives the pin's name in it. */
static int open_pins(const char *manifest_path, const char *lease, char name[128], struct err *e)
{
	_cleanup_free_ char *dir = strdup(manifest_path);
	char *slash = dir ? strrchr(dir, '/') : NULL;
	_cleanup_fd_ int fd = -1;
	uint64_t number;
	int pins;

	if (!slash || !str_starts(slash + 1, "manifest.") ||
	    str_to_u64(slash + 1 + strlen("manifest."), UINT32_MAX, &number) < 0)
		return err_set(e, ERR_INTERNAL, "%s is not a manifest of a store", manifest_path);
	(void)snprintf(name, 128, "%llu.%.64s", (unsigned long long)number, lease);
	*slash = '\0';
	fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "open %s", dir);
	if (mkdirat(fd, "pins", 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s/pins", dir);
	pins = openat(fd, "pins", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return pins < 0 ? err_sys(e, errno, "open %s/pins", dir) : pins;
}

int sync_pin(const char *manifest_path, const char *lease, struct err *e)
{
	char name[128];
	_cleanup_fd_ int pins = open_pins(manifest_path, lease, name, e), fd = -1;

	if (pins < 0)
		return pins;
	fd = openat(pins, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? err_sys(e, errno, "pin the workspace's copy for lease %s", lease) : 0;
}

int sync_unpin(const char *manifest_path, const char *lease, struct err *e)
{
	char name[128];
	_cleanup_fd_ int pins = open_pins(manifest_path, lease, name, e);

	if (pins < 0)
		return pins == -ENOENT ? 0 : pins;
	if (unlinkat(pins, name, 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "unpin the workspace's copy of lease %s", lease);
	return 0;
}
