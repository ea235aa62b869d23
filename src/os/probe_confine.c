/* What a process puts on itself: no new privileges, a seccomp filter, Landlock, resource limits. */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"

/* linux/landlock.h of older distributions lacks the newer levels; level 1 is all the trial needs. */
#define LANDLOCK_VERSION 1u
#define LANDLOCK_READ_FILE (UINT64_C(1) << 2)
#define LANDLOCK_LEVEL_WANTED 3 /* truncate(2) is covered from here on */

void probe_nnp(const struct probe_env *env, struct probe_result *r)
{
	(void)env;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		probe_missing(r, CAUSE_UNKNOWN, errno, "set no_new_privs", NULL);
}

void probe_seccomp(const struct probe_env *env, struct probe_result *r)
{
	/* One call gets an errno that the kernel would never give. */
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = ARRAY_LEN(code), .filter = code};
	int err;

	(void)env;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "set no_new_privs", NULL);
		return;
	}
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0) {
		err = errno;
		/* EINVAL, ENOSYS: the kernel; anything else can only come from a filter that is there
		 * already. */
		if (err == EINVAL || err == ENOSYS)
			probe_missing(r, CAUSE_SECCOMP_KERNEL, err, "install a filter", NULL);
		else
			probe_missing(r, CAUSE_SECCOMP_OUTER, err, "install a filter", "seccomp");
		return;
	}
	if (syscall(SYS_getpgid, 0) >= 0 || errno != EXDEV)
		probe_missing(r, CAUSE_UNKNOWN, 0, "use the filter",
			      "the filter was accepted but does not act");
}

static const char *const landlock_levels[] = {
    "",
    "files",
    "files, links across directories",
    "files, links, truncation",
    "files, links, truncation, TCP",
    "files, links, truncation, TCP, device controls",
    "files, links, truncation, TCP, device controls, scopes",
};

static void blame_landlock(struct probe_result *r, int err)
{
	char lsm[128] = "unknown";
	_cleanup_fd_ int fd = -1;
	ssize_t n;

	if (err != EOPNOTSUPP) {
		probe_missing(r, err == ENOSYS ? CAUSE_LANDLOCK_KERNEL : CAUSE_SECCOMP_OUTER, err,
			      "ask for its level", "Landlock");
		return;
	}
	fd = open("/sys/kernel/security/lsm", O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, lsm, sizeof(lsm) - 1);
	if (n > 0)
		lsm[n] = '\0';
	probe_missing(r, CAUSE_LANDLOCK_BOOT, err, "ask for its level", lsm);
}

void probe_landlock(const struct probe_env *env, struct probe_result *r)
{
	uint64_t handled = LANDLOCK_READ_FILE;
	_cleanup_fd_ int rules = -1, fd = -1;
	char level[24];
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);

	(void)env;
	if (abi < 0) {
		blame_landlock(r, errno);
		return;
	}
	rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
	if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_landlock_restrict_self, rules, 0) < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "restrict itself", NULL);
		return;
	}
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 || errno != EACCES) {
		probe_missing(r, CAUSE_UNKNOWN, 0, "use it",
			      "the rules were accepted but do not act");
		return;
	}
	(void)snprintf(level, sizeof(level), "%ld", abi);
	(void)snprintf(r->detail, sizeof(r->detail), "level %s: %s", level,
		       landlock_levels[abi < (long)ARRAY_LEN(landlock_levels)
					   ? (size_t)abi
					   : ARRAY_LEN(landlock_levels) - 1]);
	if (abi < LANDLOCK_LEVEL_WANTED)
		probe_limited(r, CAUSE_LANDLOCK_OLD, level);
}

void probe_rlimits(const struct probe_env *env, struct probe_result *r)
{
	struct rlimit files, procs;
	char text[PROBE_TEXT_MAX], count[24];

	(void)env;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || getrlimit(RLIMIT_NPROC, &procs) < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "getrlimit", NULL);
		return;
	}
	(void)snprintf(count, sizeof(count), "%llu", (unsigned long long)procs.rlim_max);
	(void)snprintf(r->detail, sizeof(r->detail), "open files %llu, processes %s",
		       (unsigned long long)files.rlim_max,
		       procs.rlim_max == RLIM_INFINITY ? "unlimited" : count);
	if (files.rlim_max < NOFILE_DEFAULT) {
		(void)snprintf(text, sizeof(text), "%llu open files instead of %d",
			       (unsigned long long)files.rlim_max, NOFILE_DEFAULT);
		probe_limited(r, CAUSE_RLIMIT_LOW, text);
	} else if (procs.rlim_max < PIDS_DEFAULT) {
		(void)snprintf(text, sizeof(text), "%s processes instead of %d", count,
			       PIDS_DEFAULT);
		probe_limited(r, CAUSE_RLIMIT_LOW, text);
	}
}
