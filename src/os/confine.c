/*
 * Policy: a confined helper reads and writes only below the trees it was given, runs no
 * program, opens no socket, traces nobody, changes no identity, mounts nothing.
 * It may still use every descriptor it holds: handing over the right ones is the parent's duty.
 */
#include "os/confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Rights newer than the oldest kernel headers that we build with, from the kernel's uapi. */
#define LL_REFER (UINT64_C(1) << 13)	 /* ABI 2 */
#define LL_TRUNCATE (UINT64_C(1) << 14)	 /* ABI 3 */
#define LL_IOCTL_DEV (UINT64_C(1) << 15) /* ABI 5 */
#define LL_NET_ALL UINT64_C(3)		 /* ABI 4: bind, connect TCP */
#define LL_SCOPE_ALL UINT64_C(3)	 /* ABI 6: abstract unix sockets, signals */
#define LL_FS_ABI1 ((UINT64_C(1) << 13) - 1)

#define LL_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define LL_WRITE                                                         \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |  \
	 LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM | LL_REFER | LL_TRUNCATE)

#define LL_NET_CONNECT UINT64_C(2)
#define LL_RULE_NET_PORT 2

struct net_port_attr {
	uint64_t access, port;
};

struct ruleset_attr { /* as of ABI 6; older kernels take the shorter sizes */
	uint64_t fs, net, scoped;
};

int confine_landlock_abi(void)
{
	long r = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return r > 0 ? (int)r : 0;
}

static uint64_t handled_fs(int abi)
{
	uint64_t fs = LL_FS_ABI1;

	if (abi >= 2)
		fs |= LL_REFER;
	if (abi >= 3)
		fs |= LL_TRUNCATE;
	if (abi >= 5)
		fs |= LL_IOCTL_DEV;
	return fs;
}

static int restrict_files(const struct confine_opts *o, struct err *e)
{
	int abi = confine_landlock_abi();
	struct ruleset_attr attr = {.fs = handled_fs(abi)};
	size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
	_cleanup_fd_ int rules = -1;

	/* Without REFER (ABI 2) a rename between directories is impossible: nothing could be published. */
	if (abi < 2)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "Landlock %s; use Linux 5.19 or newer with "
		    "CONFIG_SECURITY_LANDLOCK and \"landlock\" in the lsm= list, or name "
		    "the layer to do without: --without landlock",
		    abi ? "of this kernel is too old (level 1)" : "is missing");
	attr.net = abi >= 4 ? LL_NET_ALL : 0;
	attr.scoped = abi >= 6 ? LL_SCOPE_ALL : 0;
	rules = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (rules < 0)
		return err_sys(e, errno, "Landlock: create rules");
	for (size_t i = 0; i < o->paths_len; i++) {
		struct landlock_path_beneath_attr p = {.parent_fd = o->paths[i].fd};

		p.allowed_access = LL_READ;
		if (o->paths[i].access & CONFINE_WRITE)
			p.allowed_access |= LL_WRITE & attr.fs;
		if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &p, 0) < 0)
			return err_sys(e, errno, "Landlock: allow tree %zu", i);
	}
	for (size_t i = 0; abi >= 4 && i < o->connect_ports_len; i++) {
		struct net_port_attr p = {.access = LL_NET_CONNECT, .port = o->connect_ports[i]};

		if (syscall(SYS_landlock_add_rule, rules, LL_RULE_NET_PORT, &p, 0) < 0)
			return err_sys(e, errno, "Landlock: allow port %u", o->connect_ports[i]);
	}
	/* Safe because: it only takes rights away, from this process and whatever it might start. */
	if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		return err_sys(e, errno, "Landlock: restrict");
	return 0;
}

/* Enough for files, the channel to the parent, memory, time. Nothing makes a descriptor that is not a file. */
static const int allowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(dup),
    SCMP_SYS(fcntl),
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(fstatfs),
    SCMP_SYS(getdents64),
    SCMP_SYS(readlinkat),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(mkdirat),
    SCMP_SYS(unlinkat),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(linkat),
    SCMP_SYS(symlinkat),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(fchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(utimensat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fallocate),
    SCMP_SYS(fadvise64),
    SCMP_SYS(copy_file_range),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(syncfs),
    SCMP_SYS(sync_file_range),
    SCMP_SYS(flock),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    SCMP_SYS(futex),
    SCMP_SYS(getrandom),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(setitimer),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getrusage),
    SCMP_SYS(sysinfo),
    SCMP_SYS(sched_yield),
    SCMP_SYS(umask),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* An attempt at one of these is an attack in progress, not a missing feature: end at once. */
static const int deadly[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(connect),
    SCMP_SYS(bpf),
    SCMP_SYS(mount),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(kexec_load),
};

static int add_rules(scmp_filter_ctx ctx)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(allowed) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; i < ARRAY_LEN(deadly) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, deadly[i], 0);
	/* Page protection may change (malloc arenas, RELRO of a late library), but never to executable. */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* abort() must be able to report our own bug, to this process only. */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				     SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
	if (r == 0) /* a large copy that shares blocks */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_EQ, FICLONE, 0));
	return r;
}

static int restrict_calls(bool threads, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!ctx)
		return err_set(e, ERR_NOMEM, "seccomp: out of memory");
	/* A process that switches to a foreign call table (x32, i386) would step around the list. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0 && threads) /* else they would keep what this one loses */
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = add_rules(ctx);
	/* Safe because: the filter only takes system calls away and cannot be removed. */
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	if (r < 0)
		return err_sys(e, -r, "seccomp: load the allow-list (CONFIG_SECCOMP_FILTER)");
	return 0;
}

static int drop_caps(uint64_t keep, struct err *e)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d) < 0)
		return err_sys(e, errno, "read own capabilities");
	for (int i = 0; i < 2; i++) {
		uint32_t k = (uint32_t)(keep >> (32 * i));

		d[i].permitted &= k;
		d[i].effective = d[i].permitted;
		d[i].inheritable = 0;
	}
	/* The bounding set needs CAP_SETPCAP, which an ordinary user lacks: there it is moot. */
	for (int c = 0; c < 64; c++)
		if (!(keep >> c & 1))
			(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	/* Safe because: sets are only ever made smaller. */
	if (syscall(SYS_capset, &h, d) < 0)
		return err_sys(e, errno, "drop capabilities");
	return 0;
}

static int cap_limit(int what, uint64_t max, const char *name, struct err *e)
{
	struct rlimit l;

	if (getrlimit(what, &l) < 0)
		return err_sys(e, errno, "read limit %s", name);
	if (l.rlim_max == RLIM_INFINITY || l.rlim_max > max)
		l.rlim_max = max;
	l.rlim_cur = l.rlim_max;
	if (setrlimit(what, &l) < 0)
		return err_sys(e, errno, "set limit %s to %llu", name, (unsigned long long)max);
	return 0;
}

/*
 * A sanitizer's run-time maps terabytes and makes calls that no helper needs. Such a build exists for
 * debugging in place: every program says so to --version, and meson refuses to install it.
 */
#ifdef AIRLOCK_INSECURE_NO_CONFINEMENT
#define CONFINEMENT_OFF true
#else
#define CONFINEMENT_OFF false
#endif

/* Shadow memory is private memory, terabytes of it: under a cap the first allocation ends the helper. All other layers stay. */
#if defined(__SANITIZE_ADDRESS__)
#define SHADOW true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHADOW true
#endif
#endif
#ifndef SHADOW
#define SHADOW false
#endif

int confine_self(const struct confine_opts *o, struct err *e)
{
	int r;

	if (CONFINEMENT_OFF)
		return o->threads ? o->threads(o->threads_arg, e) : 0;
	r = cap_limit(RLIMIT_CORE, 0, "core size", e);
	if (r == 0 && o->data_max && !SHADOW)
		r = cap_limit(RLIMIT_DATA, o->data_max, "memory", e);
	if (r == 0 && o->nofile_max)
		r = cap_limit(RLIMIT_NOFILE, o->nofile_max, "open files", e);
	/* Not dumpable: another process of the same user cannot attach and borrow our descriptors. */
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		r = err_sys(e, errno, "become undumpable");
	if (r == 0)
		r = drop_caps(o->keep_caps, e);
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = err_sys(e, errno, "give up new privileges");
	if (r == 0 && !(o->without & CONFINE_NO_LANDLOCK))
		r = restrict_files(o, e);
	if (r == 0 && o->threads)
		r = o->threads(o->threads_arg, e);
	if (r == 0 && !(o->without & CONFINE_NO_SECCOMP))
		r = restrict_calls(o->threads != NULL, e);
	return r;
}
