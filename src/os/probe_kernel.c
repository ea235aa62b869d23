/* Kernel calls that the programs rely on, each made once with arguments that can do no harm. */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Each returns what the kernel said: 0 or a positive errno. */
static int try_openat2(void)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve =
				   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	_cleanup_fd_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = (int)syscall(SYS_openat2, root, "..", &how, sizeof(how));

	if (fd >= 0) {
		(void)close(fd);
		return EIO; /* let us out: not what was asked for */
	}
	return errno == EXDEV ? 0 : errno;
}

static int try_close_range(void)
{
	return syscall(SYS_close_range, ~0U, ~0U, 0) == 0 ? 0 : errno;
}

static int try_pidfd(void)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0)
		return errno;
	return syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 ? 0 : errno;
}

static int try_clone3(void)
{
	/* Too small a structure: EINVAL from any kernel that has the call. */
	return syscall(SYS_clone3, NULL, (size_t)0) < 0 && errno == EINVAL ? 0 : errno;
}

static int try_mount_setattr(void)
{
	struct mount_attr attr = {0};

	return syscall(SYS_mount_setattr, -1, "", AT_EMPTY_PATH | 0x40000000u, &attr,
		       sizeof(attr)) < 0 &&
		       (errno == EINVAL || errno == EBADF)
		   ? 0
		   : errno;
}

static int try_open_tree(void)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLOEXEC);

	return fd < 0 ? errno : 0;
}

static int try_renameat2(void)
{
	return syscall(SYS_renameat2, AT_FDCWD, "", AT_FDCWD, "", RENAME_NOREPLACE) < 0 &&
		       errno == ENOENT
		   ? 0
		   : errno;
}

static int try_memfd(void)
{
	_cleanup_fd_ int fd = memfd_create("airlock-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? errno : 0;
}

static int try_statx(void)
{
	struct statx sx;

	return statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &sx) < 0 ? errno : 0;
}

static const struct {
	const char *name;
	int (*run)(void);
	unsigned major, minor; /* first kernel that has it */
} calls[] = {
    {"openat2", try_openat2, 5, 6},
    {"close_range", try_close_range, 5, 9},
    {"pidfd", try_pidfd, 5, 3},
    {"clone3", try_clone3, 5, 3},
    {"open_tree", try_open_tree, 5, 2},
    {"renameat2", try_renameat2, 3, 15},
    {"mount_setattr", try_mount_setattr, 5, 12},
    {"memfd_create", try_memfd, 3, 17},
    {"statx", try_statx, 4, 11},
};

bool probe_kernel_is(unsigned major, unsigned minor)
{
	unsigned have = 0, point = 0;
	struct utsname u = {0};

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &have, &point) == 2 &&
	       (have > major || (have == major && point >= minor));
}

void probe_kernel(const struct probe_env *env, struct probe_result *r)
{
	char lacking[PROBE_TEXT_MAX] = "";
	struct utsname u = {0};
	bool filtered = false;
	size_t len = 0;

	(void)env;
	(void)uname(&u);
	(void)snprintf(r->detail, sizeof(r->detail), "Linux %.64s %.32s", u.release, u.machine);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		int err = calls[i].run();

		if (!err || len >= sizeof(lacking))
			continue;
		/* Refused although this kernel is new enough: a container's filter, often older than the
		 * call. */
		filtered |= probe_kernel_is(calls[i].major, calls[i].minor);
		len += (size_t)snprintf(lacking + len, sizeof(lacking) - len, "%s%s",
					len ? ", " : "", calls[i].name);
		r->sys = err;
	}
	if (len)
		probe_missing(r, filtered ? CAUSE_SECCOMP_OUTER : CAUSE_KERNEL_OLD, r->sys,
			      "kernel calls", lacking);
}
