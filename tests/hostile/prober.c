/*
 * prober: run inside a sandbox, tries every known way out, one after the other.
 *
 * usage: prober --list | prober HOST_FILE HOST_PORT HOST_ABSTRACT HOST_PID
 * Prints one JSON line an attempt: {"attempt":"name","escaped":false,"errno":13}. "escaped" is true when
 * the attempt got what it must not. Facts of the host come as arguments, so that a guess of ours is not
 * what protects it. Static: it needs nothing of the sandbox. Exit 0 if all attempts were made.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <linux/limits.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct facts {
	const char *file, *abstract;
	int port, pid;
};

static bool opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0)
		return false;
	(void)close(fd);
	return true;
}

static bool reads(const char *path)
{
	char c;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool got = fd >= 0 && read(fd, &c, 1) == 1;

	if (fd >= 0)
		(void)close(fd);
	return got;
}

static bool any(const char *const *paths, size_t n, bool (*f)(const char *))
{
	for (size_t i = 0; i < n; i++)
		if (f(paths[i]))
			return true;
	return false;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static bool writes(const char *path)
{
	return opens(path, O_WRONLY);
}

/* Files of the host. ------------------------------------------------------------------------ */

static bool host_file(const struct facts *f)
{
	return exists(f->file);
}

static bool host_secrets(const struct facts *f)
{
	static const char *const p[] = {
	    "/etc/shadow",
	    "/etc/gshadow",
	    "/etc/sudoers",
	    "/etc/ssh/sshd_config",
	    "/root",
	    "/root/.ssh/id_ed25519",
	    "/root/.bashrc",
	    "/home/agent/.ssh",
	    "/etc/gitconfig",
	    "/etc/environment",
	    "/etc/machine-id",
	    "/etc/ssl/private",
	    "/etc/krb5.keytab",
	    "/boot",
	    "/var/lib/docker",
	    "/var/log/syslog",
	    "/old_root",
	    "/.dockerenv",
	    "/work",
	};

	(void)f;
	return any(p, N(p), exists);
}

static bool host_sockets(const struct facts *f)
{
	static const char *const p[] = {
	    "/run/docker.sock",
	    "/var/run/docker.sock",
	    "/run/containerd/containerd.sock",
	    "/run/podman/podman.sock",
	    "/run/crio/crio.sock",
	    "/run/dbus/system_bus_socket",
	    "/run/systemd/private",
	    "/run/user",
	    "/run/nscd/socket",
	    "/tmp/.X11-unix",
	    "/run/udev",
	};

	(void)f;
	return any(p, N(p), exists);
}

static bool other_homes(const struct facts *f)
{
	DIR *d = opendir("/home");
	struct dirent *e;
	bool other = false;

	(void)f;
	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    strcmp(e->d_name, "agent") != 0)
			other = true;
	if (d)
		(void)closedir(d);
	return other;
}

static bool proc_root(const struct facts *f)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "/proc/1/root%s", f->file);
	return exists(path) || exists("/proc/1/cwd/etc/shadow") ||
	       exists("/proc/self/root/etc/shadow");
}

static bool dotdot(const struct facts *f)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "/workspace/../../../../../..%s", f->file);
	return exists(path);
}

static bool upper_dotdot(const struct facts *f)
{
	(void)f;
	return exists("/proc/1/fd/4/..") || opens("/proc/1/fd/4", O_RDONLY | O_DIRECTORY);
}

static bool openat2_magic(const struct facts *f)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC};
	int ns = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);
	long fd = syscall(SYS_openat2, ns, "../../1/root/etc/shadow", &how, sizeof(how));

	(void)f;
	return fd >= 0;
}

static bool by_handle(const struct facts *f)
{
	struct {
		struct file_handle h;
		unsigned char data[64];
	} u = {.h = {.handle_bytes = 8, .handle_type = 1}};
	int root = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint32_t inode[2] = {2, 0};

	(void)f;
	/* Inode 2 is the root of an ext4 (the "shocker" of 2014). */
	memcpy(u.h.f_handle, inode, sizeof(inode));
	return open_by_handle_at(root, &u.h, O_RDONLY) >= 0;
}

static bool write_system(const struct facts *f)
{
	static const char *const p[] = {"/usr/bin/env", "/bin/sh", "/etc/passwd",
					"/etc/ld.so.cache"};

	(void)f;
	return any(p, N(p), writes) || opens("/usr/airlock-probe", O_WRONLY | O_CREAT) ||
	       opens("/airlock-probe", O_WRONLY | O_CREAT) ||
	       opens("/run/airlock-probe", O_WRONLY | O_CREAT) ||
	       mkdir("/etc/airlock-probe", 0755) == 0 || chmod("/usr/bin/env", 0777) == 0;
}

static bool write_guest(const struct facts *f)
{
	static const char *const p[] = {"/proc/1/exe", "/.airlock/airlock-guest", "/proc/1/mem"};

	(void)f;
	return any(p, N(p), writes) || unlink("/.airlock/airlock-guest") == 0 ||
	       chmod("/.airlock/airlock-guest", 0777) == 0;
}

static bool overlay_tricks(const struct facts *f)
{
	(void)f;
	/* trusted.* would redirect into other layers; a whiteout device is allowed, any other is not. */
	if (mkdir("probe-dir", 0755) < 0 && errno != EEXIST)
		return false;
	return setxattr("probe-dir", "trusted.overlay.redirect", "/../../etc", 10, 0) == 0 ||
	       setxattr("probe-dir", "security.capability", "x", 1, 0) == 0 ||
	       mknod("probe-null", S_IFCHR | 0666, makedev(1, 3)) == 0 ||
	       mknod("probe-disk", S_IFBLK | 0666, makedev(254, 0)) == 0;
}

static bool suid(const struct facts *f)
{
	static const char *const p[] = {"/usr/bin/su", "/bin/su", "/usr/bin/sudo",
					"/usr/bin/passwd", "/usr/bin/mount"};
	bool ran = false;

	(void)f;
	for (size_t i = 0; i < N(p); i++) {
		pid_t pid = fork();
		int status = 0;

		if (pid == 0) {
			int null = open("/dev/null", O_RDWR);

			(void)dup2(null, 0);
			(void)dup2(null, 1);
			(void)dup2(null, 2);
			execl(p[i], p[i], "-c", "test $(id -u) = 0", (char *)NULL);
			_exit(126);
		}
		if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
		    WEXITSTATUS(status) == 0 && i < 3)
			ran = true;
	}
	return ran || setuid(0) == 0 || setgid(0) == 0;
}

/* Kernel interfaces. ------------------------------------------------------------------------ */

static bool proc_write(const struct facts *f)
{
	static const char *const p[] = {
	    "/proc/sys/kernel/core_pattern",	 "/proc/sys/kernel/hostname",
	    "/proc/sys/vm/overcommit_memory",	 "/proc/sys/net/ipv4/ip_forward",
	    "/proc/sys/kernel/modprobe",	 "/proc/sysrq-trigger",
	    "/proc/sys/fs/binfmt_misc/register", "/proc/kcore",
	};

	(void)f;
	for (size_t i = 0; i < N(p); i++)
		if (strcmp(p[i], "/proc/sysrq-trigger") != 0 && strcmp(p[i], "/proc/kcore") != 0 &&
		    writes(p[i]))
			return true;
	/* Masked by /dev/null: may be opened, but must be that. */
	for (size_t i = 0; i < N(p); i++) {
		struct stat st;

		if ((strcmp(p[i], "/proc/sysrq-trigger") == 0 ||
		     strcmp(p[i], "/proc/kcore") == 0) &&
		    stat(p[i], &st) == 0 && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
			return true;
	}
	return false;
}

static bool proc_reads(const struct facts *f)
{
	static const char *const p[] = {"/proc/keys", "/proc/key-users", "/proc/kcore",
					"/proc/kmsg", "/proc/timer_list"};

	(void)f;
	return any(p, N(p), reads);
}

static bool sys_tree(const struct facts *f)
{
	(void)f;
	return exists("/sys/fs") || exists("/sys/kernel") || exists("/sys/class");
}

static bool devices(const struct facts *f)
{
	static const char *const p[] = {"/dev/sda",	"/dev/vda",   "/dev/kvm",
					"/dev/mem",	"/dev/kmsg",  "/dev/fuse",
					"/dev/net/tun", "/dev/loop0", "/dev/loop-control",
					"/dev/vsock",	"/dev/input"};

	(void)f;
	return any(p, N(p), exists);
}

static bool call(long r)
{
	return r >= 0;
}

static bool mounts(const struct facts *f)
{
	(void)f;
	return mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0 ||
	       mount("/", "/tmp", NULL, MS_BIND, NULL) == 0 ||
	       umount2("/proc/sys", MNT_DETACH) == 0 ||
	       mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL) == 0 ||
	       call(syscall(SYS_fsopen, "tmpfs", 0)) ||
	       call(syscall(SYS_open_tree, AT_FDCWD, "/", 1)) ||
	       call(syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, NULL, 0)) ||
	       chroot("/tmp") == 0 || call(syscall(SYS_pivot_root, "/tmp", "/tmp")) ||
	       call(syscall(SYS_move_mount, -1, "", AT_FDCWD, "/tmp", 4));
}

static bool namespaces(const struct facts *f)
{
	static const int kinds[] = {CLONE_NEWUSER, CLONE_NEWNS,	 CLONE_NEWPID,	  CLONE_NEWNET,
				    CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP, 0x80 /* time */};

	(void)f;
	for (size_t i = 0; i < N(kinds); i++)
		if (unshare(kinds[i]) == 0)
			return true;
	/* clone with the flag, and clone3, whose flags no filter can see */
	for (size_t i = 0; i < 2; i++) {
		struct {
			uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack,
			    stack_size, tls;
		} a = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
		long r = i ? syscall(SYS_clone3, &a, sizeof(a))
			   : syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

		if (r == 0)
			_exit(0);
		if (r > 0)
			return true;
	}
	return false;
}

static bool enter(const struct facts *f)
{
	int fd = open("/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);
	char path[64];

	if (fd >= 0 && setns(fd, 0) == 0)
		return true;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", f->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && setns(fd, 0) == 0;
}

static bool trace_init(const struct facts *f)
{
	char b[8];
	struct {
		void *p;
		size_t n;
	} l = {b, sizeof(b)}, r = {(void *)0x400000, sizeof(b)};

	(void)f;
	if (ptrace(PTRACE_ATTACH, 1, NULL, NULL) == 0 || ptrace(PTRACE_SEIZE, 1, NULL, NULL) == 0)
		return true;
	return syscall(SYS_process_vm_readv, 1, &l, 1L, &r, 1L, 0L) > 0 ||
	       opens("/proc/1/mem", O_RDONLY) || reads("/proc/1/environ");
}

static bool kill_init(const struct facts *f)
{
	(void)f;
	/* Sent or not: pid 1 must be there afterwards. */
	(void)kill(1, SIGKILL);
	(void)kill(1, SIGTERM);
	(void)kill(1, SIGSTOP);
	return kill(1, 0) < 0 && errno == ESRCH;
}

static bool host_process(const struct facts *f)
{
	char path[64];

	if (kill(f->pid, 0) == 0)
		return true;
	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", f->pid);
	return exists(path);
}

static bool steal_fd(const struct facts *f)
{
	int p = (int)syscall(SYS_pidfd_open, 1, 0);

	(void)f;
	return p >= 0 &&
	       (syscall(SYS_pidfd_getfd, p, 3, 0) >= 0 || syscall(SYS_pidfd_getfd, p, 4, 0) >= 0);
}

static bool kernel_calls(const struct facts *f)
{
	uint64_t attr[16] = {0};

	(void)f;
	return call(syscall(SYS_bpf, 0, attr, sizeof(attr))) ||
	       call(syscall(SYS_perf_event_open, attr, 0, -1, -1, 0)) ||
	       call(syscall(SYS_userfaultfd, 1)) || call(syscall(SYS_io_uring_setup, 1, attr)) ||
	       call(syscall(SYS_keyctl, 0, -3, 1)) ||
	       call(syscall(SYS_add_key, "user", "x", "y", 1, -3)) ||
	       call(syscall(SYS_kexec_load, 0, 0, 0, 0)) ||
	       call(syscall(SYS_init_module, "", 0, "")) ||
	       call(syscall(SYS_fanotify_init, 0, 0)) || call(syscall(SYS_syslog, 3, attr, 8)) ||
	       call(syscall(SYS_quotactl, 0, "", 0, attr)) ||
	       call(syscall(SYS_swapon, "/tmp/x", 0)) ||
	       call(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0)) ||
	       call(syscall(SYS_settimeofday, attr, 0)) || call(syscall(SYS_acct, 0)) ||
	       call(sethostname("x", 1));
}

/* Its own arguments are refused before the filter on other grounds: the number alone must be. */
static bool x32(const struct facts *f)
{
#ifdef __x86_64__
	int status = 0;
	pid_t pid = fork();

	(void)f;
	if (pid == 0)
		_exit(syscall(0x40000000 | SYS_getpid) > 0 ? 0 : 1);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
#else
	(void)f;
	return false;
#endif
}

static bool terminal_input(const struct facts *f)
{
	int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	char c = '\n';

	(void)f;
	return (fd >= 0 && ioctl(fd, TIOCSTI, &c) == 0) || ioctl(0, TIOCSTI, &c) == 0 ||
	       (fd >= 0 && syscall(SYS_ioctl, fd, TIOCSTI | (1UL << 32), &c) == 0);
}

static bool personality_bits(const struct facts *f)
{
	(void)f;
	return call(syscall(SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */));
}

static bool capabilities(const struct facts *f)
{
	(void)f;
	return prctl(PR_CAPBSET_READ, 21) == 1 || prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0 ||
	       prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 ||
	       prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0) == 0;
}

static bool raise_limits(const struct facts *f)
{
	struct rlimit r;

	(void)f;
	if (getrlimit(RLIMIT_NPROC, &r) < 0 || r.rlim_max == RLIM_INFINITY)
		return true;
	r.rlim_cur = r.rlim_max = r.rlim_max + 1;
	return setrlimit(RLIMIT_NPROC, &r) == 0;
}

/* Networks. --------------------------------------------------------------------------------- */

static bool families(const struct facts *f)
{
	static const int bad[] = {AF_VSOCK, AF_ALG, AF_PACKET, AF_BLUETOOTH, AF_CAN, AF_TIPC,
				  AF_RDS,   AF_X25, AF_AX25,   AF_KEY,	     AF_NFC, 44 /* XDP */};

	(void)f;
	for (size_t i = 0; i < N(bad); i++)
		if (socket(bad[i], SOCK_DGRAM, 0) >= 0 || socket(bad[i], SOCK_STREAM, 0) >= 0 ||
		    socket(bad[i], SOCK_SEQPACKET, 0) >= 0 || socket(bad[i], SOCK_RAW, 0) >= 0)
			return true;
	return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0 ||
	       socket(AF_NETLINK, SOCK_RAW, 9 /* audit */) >= 0 ||
	       socket(AF_NETLINK, SOCK_RAW, 12 /* netfilter */) >= 0;
}

static bool connects(const char *ip, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval t = {.tv_sec = 1};
	bool ok;

	(void)inet_pton(AF_INET, ip, &a.sin_addr);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	ok = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
	(void)close(fd);
	return ok;
}

static bool loopback(const struct facts *f)
{
	return connects("127.0.0.1", f->port);
}

static bool metadata(const struct facts *f)
{
	(void)f;
	return connects("169.254.169.254", 80) || connects("10.0.2.2", 22) ||
	       connects("1.1.1.1", 53);
}

static bool abstract(const struct facts *f)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t n = strlen(f->abstract);
	bool ok;

	memcpy(a.sun_path + 1, f->abstract, n);
	ok = connect(fd, (struct sockaddr *)&a,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0;
	(void)close(fd);
	return ok;
}

/* What a command inherits. ------------------------------------------------------------------ */

static bool descriptors(const struct facts *f)
{
	(void)f;
	for (int fd = 3; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			return true;
	return false;
}

static bool environment(const struct facts *f)
{
	extern char **environ;

	(void)f;
	for (char **e = environ; *e; e++)
		if (strncmp(*e, "PATH=", 5) != 0 && strncmp(*e, "HOME=", 5) != 0 &&
		    strncmp(*e, "LANG=", 5) != 0)
			return true;
	return false;
}

static const struct attempt {
	const char *name;
	bool (*run)(const struct facts *f);
} attempts[] = {
    /* First: later attempts open descriptors. */
    {"descriptors", descriptors},
    {"environment", environment},
    {"host-file", host_file},
    {"host-secrets", host_secrets},
    {"host-sockets", host_sockets},
    {"other-homes", other_homes},
    {"proc-root", proc_root},
    {"dotdot", dotdot},
    {"upper-dotdot", upper_dotdot},
    {"openat2-magic", openat2_magic},
    {"open-by-handle", by_handle},
    {"write-system", write_system},
    {"write-guest", write_guest},
    {"overlay-tricks", overlay_tricks},
    {"setuid", suid},
    {"proc-write", proc_write},
    {"proc-read", proc_reads},
    {"sys", sys_tree},
    {"devices", devices},
    {"mount", mounts},
    {"namespaces", namespaces},
    {"setns", enter},
    {"ptrace-init", trace_init},
    {"kill-init", kill_init},
    {"host-process", host_process},
    {"pidfd-getfd", steal_fd},
    {"kernel-calls", kernel_calls},
    {"x32", x32},
    {"tiocsti", terminal_input},
    {"personality", personality_bits},
    {"capabilities", capabilities},
    {"raise-limits", raise_limits},
    {"socket-families", families},
    {"host-loopback", loopback},
    {"metadata-service", metadata},
    {"host-abstract", abstract},
};

int main(int argc, char **argv)
{
	struct facts f;

	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < N(attempts); i++)
			(void)printf("%s\n", attempts[i].name);
		return 0;
	}
	if (argc != 5)
		return 2;
	f = (struct facts){argv[1], argv[3], (int)strtol(argv[2], NULL, 10),
			   (int)strtol(argv[4], NULL, 10)};
	for (size_t i = 0; i < N(attempts); i++) {
		bool escaped;

		errno = 0;
		escaped = attempts[i].run(&f);
		(void)printf("{\"attempt\":\"%s\",\"escaped\":%s,\"errno\":%d}\n", attempts[i].name,
			     escaped ? "true" : "false", errno);
		(void)fflush(stdout);
	}
	return 0;
}
