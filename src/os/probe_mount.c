/* Mounts of a sandbox: tmpfs, a fresh /proc, devpts, the read-only system image, pivot_root. */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define RAMFS_MAGIC_NUMBER 0x858458f6
#define TMPFS_MAGIC_NUMBER 0x01021994

bool probe_filtered_mount(void)
{
	/* The kernel copies the type string before it asks for any permission: a bad address is EFAULT. */
	const void *bad = (const void *)1;

	return syscall(SYS_mount, bad, bad, bad, 0, NULL) < 0 && errno != EFAULT;
}

/* A mount call failed with err: a filter, a missing file system, or a security module. */
static void blame_mount(struct probe_result *r, int err, const char *fs)
{
	char what[64];

	(void)snprintf(what, sizeof(what), "mount %s", fs);
	if (probe_filtered_mount())
		probe_missing(r, CAUSE_SECCOMP_OUTER, err, what, "mount");
	else if (err == ENODEV)
		probe_missing(r, CAUSE_FS_KERNEL, err, what, fs);
	else if (err == EACCES)
		probe_missing(r, CAUSE_MOUNT_REFUSED, err, what, what);
	else
		probe_missing(r, CAUSE_UNKNOWN, err, what, NULL);
}

int probe_enter_mounts(const struct probe_env *env, int more, struct probe_result *r)
{
	static const char *const places[] = {"/tmp", "/mnt", "/var", "/usr"};
	const char *at = "/";
	int err;

	err = probe_enter(env, CLONE_NEWNS | more, r);
	if (err < 0)
		return err;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 && errno != EINVAL) {
		err = errno;
		blame_mount(r, err, "propagation");
		return -err;
	}
	for (size_t i = 0; i < ARRAY_LEN(places) && at[1] == '\0'; i++)
		if (access(places[i], X_OK) == 0)
			at = places[i];
	if (mount("tmpfs", at, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755") < 0 ||
	    chdir(at) < 0) {
		err = errno;
		blame_mount(r, err, "tmpfs");
		return -err;
	}
	return 0;
}

void probe_tmpfs(const struct probe_env *env, struct probe_result *r)
{
	_cleanup_fd_ int fd = -1;

	if (probe_enter_mounts(env, 0, r) < 0)
		return;
	fd = open("file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1)
		probe_missing(r, CAUSE_UNKNOWN, errno, "write to tmpfs", NULL);
}

/* What covers parts of /proc, as "/proc/kcore /proc/keys ..."; binfmt_misc's own place does not count. */
static size_t proc_covers(char *out, size_t n)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], at[1024];
	size_t count = 0, len = 0;

	out[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*d %*d %*s %*s %1023s", at) != 1 || !str_starts(at, "/proc/") ||
		    str_starts(at, "/proc/sys/fs/binfmt_misc"))
			continue;
		if (++count <= 4 && len < n)
			len += (size_t)snprintf(out + len, n - len, "%s%s", len ? " " : "", at);
	}
	if (count > 4 && len < n)
		(void)snprintf(out + len, n - len, " and %zu more", count - 4);
	return count;
}

static void mount_proc(struct probe_result *r)
{
	char covers[PROBE_TEXT_MAX];
	int err;

	if (mkdir("proc", 0755) == 0 &&
	    mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0) {
		if (access("proc/1/status", F_OK) < 0)
			probe_missing(r, CAUSE_UNKNOWN, errno, "read the fresh /proc", NULL);
		return;
	}
	err = errno;
	if (err != EPERM || probe_filtered_mount())
		blame_mount(r, err, "proc");
	else if (proc_covers(covers, sizeof(covers)) > 0)
		probe_missing(r, CAUSE_PROC_MASKED, err, "mount proc", covers);
	else
		probe_missing(r, CAUSE_PROC_HIDDEN, err, "mount proc", NULL);
}

void probe_proc(const struct probe_env *env, struct probe_result *r)
{
	struct probe_result got;
	ssize_t n = -1;
	pid_t pid;
	int p[2];

	if (probe_enter_mounts(env, CLONE_NEWPID, r) < 0)
		return;
	/* A process view belongs to a pid namespace, and only a member of it may mount it. */
	if (pipe2(p, O_CLOEXEC) < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "pipe", NULL);
		return;
	}
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		mount_proc(r);
		_exit(write(p[1], r, sizeof(*r)) == (ssize_t)sizeof(*r) ? 0 : 1);
	}
	(void)close(p[1]);
	if (pid > 0)
		n = read(p[0], &got, sizeof(got));
	if (n == (ssize_t)sizeof(got))
		*r = got;
	else
		probe_missing(r, CAUSE_UNKNOWN, EIO, "start process 1", NULL);
	(void)close(p[0]);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
}

void probe_devpts(const struct probe_env *env, struct probe_result *r)
{
	_cleanup_fd_ int fd = -1;
	int zero = 0, number;

	if (probe_enter_mounts(env, 0, r) < 0)
		return;
	if (mkdir("pts", 0755) < 0 || mount("devpts", "pts", "devpts", MS_NOSUID | MS_NOEXEC,
					    "newinstance,ptmxmode=0666,mode=620") < 0) {
		blame_mount(r, errno, "devpts");
		return;
	}
	fd = open("pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TIOCSPTLCK, &zero) < 0 || ioctl(fd, TIOCGPTN, &number) < 0)
		probe_missing(r, CAUSE_UNKNOWN, errno, "open a terminal", NULL);
}

/* A call that was missing or refused before any permission matters: an old kernel, or a filter. */
static void blame_mount_api(struct probe_result *r, int err, const char *call)
{
	if (err == ENOSYS && !probe_kernel_is(5, 12))
		probe_missing(r, CAUSE_KERNEL_OLD, err, call, call);
	else if (err == EPERM || err == ENOSYS)
		probe_missing(r, CAUSE_SECCOMP_OUTER, err, call, call);
	else
		probe_missing(r, CAUSE_UNKNOWN, err, call, NULL);
}

void probe_robind(const struct probe_env *env, struct probe_result *r)
{
	struct mount_attr ro = {.attr_set =
				    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
	_cleanup_fd_ int tree = -1, fd = -1;

	if (probe_enter_mounts(env, 0, r) < 0)
		return;
	tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/usr",
			    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)AT_RECURSIVE);
	if (tree < 0) {
		blame_mount_api(r, errno, "open_tree");
		return;
	}
	if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &ro, sizeof(ro)) <
	    0) {
		blame_mount_api(r, errno, "mount_setattr");
		return;
	}
	if (mkdir("usr", 0755) < 0 ||
	    syscall(SYS_move_mount, tree, "", AT_FDCWD, "usr", MOVE_MOUNT_F_EMPTY_PATH) < 0) {
		blame_mount_api(r, errno, "move_mount");
		return;
	}
	fd = open("usr/.airlock-doctor", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 || errno != EROFS) {
		if (fd >= 0)
			(void)unlink("usr/.airlock-doctor");
		probe_missing(r, CAUSE_UNKNOWN, 0, "write",
			      "the image is writable although it was made read-only");
	}
}

void probe_pivot(const struct probe_env *env, struct probe_result *r)
{
	struct statfs fs;
	int err;

	/* Asked before the trial mounts anything over a part of it. */
	bool initramfs = statfs("/", &fs) == 0 && fs.f_type == RAMFS_MAGIC_NUMBER;

	if (probe_enter_mounts(env, 0, r) < 0)
		return;
	/* Old root stacked under the new one, then dropped: needs no directory for it. */
	if (syscall(SYS_pivot_root, ".", ".") < 0) {
		err = errno;
		if (err == EINVAL && initramfs)
			probe_missing(r, CAUSE_ROOT_IS_INITRAMFS, err, "pivot_root", NULL);
		else if (err == EPERM)
			probe_missing(r, CAUSE_SECCOMP_OUTER, err, "pivot_root", "pivot_root");
		else
			probe_missing(r, CAUSE_UNKNOWN, err, "pivot_root", NULL);
		return;
	}
	if (umount2(".", MNT_DETACH) < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "drop the old root", NULL);
		return;
	}
	if (chdir("/") < 0 || statfs("/", &fs) < 0 || fs.f_type != TMPFS_MAGIC_NUMBER ||
	    access("/usr", F_OK) == 0)
		probe_missing(r, CAUSE_UNKNOWN, 0, "pivot_root", "the old root is still reachable");
}
