/* The filter that is installed, call by call: what is refused, how, and what must go on working. */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "os/seccomp.h"

#define HIGH (UINT64_C(1) << 32) /* a bit that the kernel does not look at */
#define KILLED (-1)		 /* by SIGSYS */
#define ANY (-2) /* whatever the kernel says, but not the filter's ENOSYS or EPERM */

#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif

static const struct {
	const char *name;
	long nr;
	uint64_t a[5];
	int want; /* errno, 0, or as above */
} calls[] = {
    {"getpid", SYS_getpid, {0}, 0},
    {"read bad fd", SYS_read, {999}, EBADF},
    {"openat2", SYS_openat2, {(uint64_t)AT_FDCWD, 0, 0, 0}, EINVAL},
    {"statx", SYS_statx, {(uint64_t)AT_FDCWD, 0, 0, 0, 0}, EFAULT},
    {"ptrace is for debuggers inside", SYS_ptrace, {PTRACE_CONT, 1}, ESRCH},
    {"landlock", SYS_landlock_create_ruleset, {0, 0, 1}, 0},
    /* namespaces */
    {"unshare user", SYS_unshare, {CLONE_NEWUSER}, EPERM},
    {"unshare mount", SYS_unshare, {CLONE_NEWNS}, EPERM},
    {"unshare time", SYS_unshare, {0x80}, EPERM},
    {"unshare user, high bit", SYS_unshare, {CLONE_NEWUSER | HIGH}, EPERM},
    {"unshare files", SYS_unshare, {CLONE_FILES}, 0},
    {"clone user", SYS_clone, {CLONE_NEWUSER | SIGCHLD}, EPERM},
    {"clone net", SYS_clone, {CLONE_NEWNET | SIGCHLD}, EPERM},
    {"clone user, high bit", SYS_clone, {CLONE_NEWUSER | HIGH | SIGCHLD}, EPERM},
    {"clone3", SYS_clone3, {0, 0}, ENOSYS},
    {"setns", SYS_setns, {0, 0}, EPERM},
    /* mounts and roots */
    {"mount", SYS_mount, {0}, EPERM},
    {"umount2", SYS_umount2, {0}, EPERM},
    {"pivot_root", SYS_pivot_root, {0}, EPERM},
    {"chroot", SYS_chroot, {0}, EPERM},
    {"open_tree", SYS_open_tree, {0}, EPERM},
    {"move_mount", SYS_move_mount, {0}, EPERM},
    {"fsopen", SYS_fsopen, {0}, EPERM},
    {"fsmount", SYS_fsmount, {0}, EPERM},
    {"mount_setattr", SYS_mount_setattr, {0}, EPERM},
    {"open_by_handle_at", SYS_open_by_handle_at, {0}, EPERM},
    /* kernel attack surface */
    {"bpf", SYS_bpf, {0}, EPERM},
    {"perf_event_open", SYS_perf_event_open, {0}, EPERM},
    {"userfaultfd", SYS_userfaultfd, {0}, EPERM},
    {"io_uring_setup", SYS_io_uring_setup, {1, 0}, EPERM},
    {"io_uring_enter", SYS_io_uring_enter, {0}, EPERM},
    {"keyctl", SYS_keyctl, {0}, EPERM},
    {"add_key", SYS_add_key, {0}, EPERM},
    {"request_key", SYS_request_key, {0}, EPERM},
    {"init_module", SYS_init_module, {0}, EPERM},
    {"kexec_load", SYS_kexec_load, {0}, EPERM},
    {"reboot", SYS_reboot, {0}, EPERM},
    {"syslog", SYS_syslog, {3, 0, 0}, EPERM},
    {"settimeofday", SYS_settimeofday, {0}, EPERM},
    {"unknown call of a newer kernel", 999, {0}, ENOSYS},
    /* families */
    {"unix", SYS_socket, {AF_UNIX, SOCK_STREAM}, 0},
    {"inet", SYS_socket, {AF_INET, SOCK_STREAM}, 0},
    {"inet6", SYS_socket, {AF_INET6, SOCK_DGRAM}, ANY},
    {"netlink route", SYS_socket, {AF_NETLINK, SOCK_RAW, 0}, 0},
    {"netlink audit", SYS_socket, {AF_NETLINK, SOCK_RAW, 9}, EAFNOSUPPORT},
    {"netlink netfilter", SYS_socket, {AF_NETLINK, SOCK_RAW, 12}, EAFNOSUPPORT},
    {"vsock", SYS_socket, {AF_VSOCK, SOCK_STREAM}, EAFNOSUPPORT},
    {"vsock, high bit", SYS_socket, {AF_VSOCK | HIGH, SOCK_STREAM}, EAFNOSUPPORT},
    {"alg", SYS_socket, {AF_ALG, SOCK_SEQPACKET}, EAFNOSUPPORT},
    {"packet", SYS_socket, {AF_PACKET, SOCK_RAW}, EAFNOSUPPORT},
    {"xdp", SYS_socket, {44, SOCK_RAW}, EAFNOSUPPORT},
    {"pair of tipc", SYS_socketpair, {AF_TIPC, SOCK_STREAM}, EAFNOSUPPORT},
    /* terminals */
    {"tiocsti", SYS_ioctl, {0, TIOCSTI, 0}, EPERM},
    {"tiocsti, high bit", SYS_ioctl, {0, TIOCSTI | HIGH, 0}, EPERM},
    {"tioclinux", SYS_ioctl, {0, TIOCLINUX, 0}, EPERM},
    {"other ioctl", SYS_ioctl, {999, TIOCGWINSZ, 0}, EBADF},
    /* leases: the kernel's own EBADF otherwise */
    {"lease", SYS_fcntl, {999, F_SETLEASE, F_WRLCK}, EINVAL},
    {"lease, high bit", SYS_fcntl, {999, F_SETLEASE | HIGH, F_WRLCK}, EINVAL},
    {"delegation", SYS_fcntl, {999, F_SETLEASE + 16, 0}, EINVAL},
    {"other fcntl", SYS_fcntl, {999, F_GETLEASE, 0}, EBADF},
    {"flags", SYS_fcntl, {999, F_GETFL, 0}, EBADF},
    /* what makes storage that cannot be removed, and its neighbours that cp and git use */
    {"btrfs subvolume", SYS_ioctl, {999, BTRFS_IOC_SUBVOL_CREATE, 0}, ENOTTY},
    {"btrfs read-only snapshot", SYS_ioctl, {999, BTRFS_IOC_SNAP_CREATE_V2, 0}, ENOTTY},
    {"btrfs subvolume flags, high bit",
     SYS_ioctl,
     {999, BTRFS_IOC_SUBVOL_SETFLAGS | HIGH, 0},
     ENOTTY},
    {"fscrypt policy", SYS_ioctl, {999, FS_IOC_SET_ENCRYPTION_POLICY, 0}, ENOTTY},
    {"fscrypt key", SYS_ioctl, {999, FS_IOC_ADD_ENCRYPTION_KEY, 0}, ENOTTY},
    {"clone of a file", SYS_ioctl, {999, FICLONE, 0}, EBADF},
    {"clone of a range", SYS_ioctl, {999, FICLONERANGE, 0}, EBADF},
    {"inode flags", SYS_ioctl, {999, FS_IOC_GETFLAGS, 0}, EBADF},
    /* personality */
    {"personality query", SYS_personality, {0xffffffff}, 0},
    {"personality no randomisation", SYS_personality, {0x0040000}, 0},
    {"personality read implies exec", SYS_personality, {0x0400000}, EPERM},
    {"personality, high bit", SYS_personality, {0x0400000 | HIGH}, EPERM},
#ifdef __x86_64__
    {"x32 getpid", 0x40000000 | SYS_getpid, {0}, KILLED},
#endif
};

/* The errno of one call under the filter, or KILLED. */
static int under_filter(long nr, const uint64_t *a)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		long r;

		if (seccomp_install_guest() < 0)
			_exit(200);
		r = syscall(nr, a[0], a[1], a[2], a[3], a[4]);
		_exit(r < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGSYS ? KILLED : 250;
	return WEXITSTATUS(status);
}

static void test_calls(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		int got = under_filter(calls[i].nr, calls[i].a);

		if (calls[i].want == ANY ? got == EPERM || got == ENOSYS : got != calls[i].want)
			fail_msg("%s: %d, want %d", calls[i].name, got, calls[i].want);
	}
}

/* The monitor's filter ends a process that opens a file, and lets it wait and speak. */
static void test_monitor(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0) {
		if (seccomp_install_monitor() < 0)
			_exit(200);
		(void)syscall(SYS_poll, NULL, 0, 0);
		_exit(7);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	pid = fork();
	if (pid == 0) {
		if (seccomp_install_monitor() < 0)
			_exit(200);
		(void)open("/etc/passwd", O_RDONLY | O_CLOEXEC);
		_exit(7);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_calls),
	    cmocka_unit_test(test_monitor),
	};

	return cmocka_run_group_tests_name("seccomp", tests, NULL, NULL);
}
