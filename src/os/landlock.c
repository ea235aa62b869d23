#include "os/landlock.h"

#include <errno.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/cleanup.h"

/* Of linux/landlock.h of Linux 6.12; the build machine's header may be older. */
struct ruleset_attr {
	uint64_t handled_access_fs, handled_access_net, scoped;
};
#define CREATE_RULESET_VERSION 1u
#define SCOPE_ABSTRACT_UNIX_SOCKET 1u
#define SCOPE_SIGNAL 2u
#define ABI_WITH_SCOPES 6

int landlock_abi(void)
{
	long r = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);

	return r < 0 ? 0 : (int)r;
}

int landlock_scope(void)
{
	struct ruleset_attr a = {.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL};
	int abi = landlock_abi();
	_cleanup_fd_ int fd = -1;

	if (abi < ABI_WITH_SCOPES)
		return 0;
	fd = (int)syscall(SYS_landlock_create_ruleset, &a, sizeof(a), 0);
	if (fd < 0)
		return -errno;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		return -errno;
	return abi;
}
