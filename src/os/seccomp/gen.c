/*
 * gen.c: prints the seccomp programs as C arrays. A build-time tool: it links libseccomp, so that
 * airlock-launch, which installs the programs, links nothing.
 *
 * The lists of numbers are in profile.h; the rules here say what arguments decide. They compare the low 32 bits of an
 * argument, because that is what the kernel looks at for these calls; libseccomp compares 64, and
 * `TIOCSTI | 1 << 32` would pass a "not equal" rule.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/seccomp/profile.h"
#include "os/seccomp/program.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#ifndef F_SETDELEG
#define F_SETDELEG (F_SETLEASE + 16)
#endif

#define NEW_NAMESPACES                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

#define EXPORT_MAX 2048
#define REFUSE(err) (SECCOMP_RET_ERRNO | (err))

static void guest_rules(struct rules *rs)
{
	struct prog *p;

	/* Typing into the terminal that the sandbox was started from (CVE-2017-5226). */
	p = rule(rs, SYS_ioctl, 1);
	when(p, BPF_JEQ, TIOCSTI, REFUSE(EPERM));
	when(p, BPF_JEQ, TIOCLINUX, REFUSE(EPERM));
	/*
	 * What btrfs and fscrypt give to any owner of a directory makes storage that its owner cannot remove again: a read-only
	 * snapshot, names under a key that is gone. Of these only the clones that cp and git use are there.
	 */
	when(p, BPF_JEQ, FICLONE, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, FICLONERANGE, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, FIDEDUPERANGE, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, FS_IOC_SET_ENCRYPTION_POLICY, REFUSE(ENOTTY));
	when(p, BPF_JEQ, FS_IOC_ADD_ENCRYPTION_KEY, REFUSE(ENOTTY));
	emit(p, BPF_ALU | BPF_AND | BPF_K, 0xff << _IOC_TYPESHIFT, 0, 0);
	when(p, BPF_JEQ, BTRFS_IOCTL_MAGIC << _IOC_TYPESHIFT, REFUSE(ENOTTY));
	rule_end(rs, SECCOMP_RET_ALLOW);

	/*
	 * Who owns a file may hold a lease on it without a right to write: whoever opens it then waits for lease-break-time
	 * (45 s). Below a kept root and read-only binds lie files that are the host user's and other sandboxes' as well.
	 */
	p = rule(rs, SYS_fcntl, 1);
	when(p, BPF_JEQ, F_SETLEASE, REFUSE(EINVAL));
	when(p, BPF_JEQ, F_SETDELEG, REFUSE(EINVAL));
	rule_end(rs, SECCOMP_RET_ALLOW);

	/* A new user namespace gives all capabilities over new ones, and with them kernel attack surface. */
	p = rule(rs, SYS_clone, 0);
	when(p, BPF_JSET, NEW_NAMESPACES, REFUSE(EPERM));
	rule_end(rs, SECCOMP_RET_ALLOW);
	p = rule(rs, SYS_unshare, 0);
	when(p, BPF_JSET, NEW_NAMESPACES | CLONE_NEWTIME, REFUSE(EPERM));
	rule_end(rs, SECCOMP_RET_ALLOW);

	/*
	 * Vsock reaches the hypervisor, AF_ALG, AF_PACKET, AF_XDP and the rarer families have long
	 * lists of faults; netlink other than routing (getifaddrs needs that one) has none of use.
	 */
	p = rule(rs, SYS_socket, 0);
	when(p, BPF_JEQ, AF_UNIX, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, AF_INET, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, AF_INET6, SECCOMP_RET_ALLOW);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0);
	emit(p, BPF_RET | BPF_K, REFUSE(EAFNOSUPPORT), 0, 0);
	emit(p, BPF_LD | BPF_W | BPF_ABS, ARG(2), 0, 0);
	when(p, BPF_JEQ, 0, SECCOMP_RET_ALLOW);
	rule_end(rs, REFUSE(EAFNOSUPPORT));
	p = rule(rs, SYS_socketpair, 0);
	when(p, BPF_JEQ, AF_UNIX, SECCOMP_RET_ALLOW);
	rule_end(rs, REFUSE(EAFNOSUPPORT));

	/* Query, plain Linux, 32-bit uname, and what debuggers set; READ_IMPLIES_EXEC and the rest stay off. */
	p = rule(rs, SYS_personality, 0);
	when(p, BPF_JEQ, 0xffffffffu, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, PER_LINUX, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, PER_LINUX32, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, ADDR_NO_RANDOMIZE, SECCOMP_RET_ALLOW);
	rule_end(rs, REFUSE(EPERM));

	/* Its flags lie in memory that a filter cannot read: C libraries fall back to clone. */
	(void)rule_any(rs, SYS_clone3);
	rule_end(rs, REFUSE(ENOSYS));
}

static int add(scmp_filter_ctx ctx, uint32_t action, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);
		int r;

		/* Names of newer kernels or other architectures: nothing to allow here. */
		if (nr < 0)
			continue;
		r = seccomp_rule_add(ctx, action, nr, 0);
		if (r < 0) {
			(void)fprintf(stderr, "seccomp profile: %s: %s\n", names[i], strerror(-r));
			return r;
		}
	}
	return 0;
}

static int export(const char *name, scmp_filter_ctx ctx, const struct rules *rules)
{
	static struct sock_filter f[EXPORT_MAX];
	_cleanup_fd_ int fd = memfd_create(name, MFD_CLOEXEC);
	struct prog p = {.n = 0};
	ssize_t n;

	if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0)
		return -EIO;
	n = pread(fd, f, sizeof(f), 0);
	if (n <= 0 || (size_t)n == sizeof(f) || (size_t)n % sizeof(f[0]))
		return -EIO;
	if (!assemble(&p, f, (size_t)n / sizeof(f[0]), rules)) {
		(void)fprintf(stderr, "seccomp profile: %s: the search differs from the list\n",
			      name);
		return -EINVAL;
	}
	print(name, &p);
	return 0;
}

/* Page protection and new pages, but never executable; sockets: streams only (families: the filters below). */
static void bridge_rules(struct rules *rs)
{
	static const uint32_t memory[] = {SYS_mmap, SYS_mprotect};
	struct prog *p;

	for (size_t i = 0; i < ARRAY_LEN(memory); i++) {
		p = rule(rs, memory[i], 2);
		when(p, BPF_JSET, PROT_EXEC, REFUSE(EPERM));
		rule_end(rs, SECCOMP_RET_ALLOW);
	}
	p = rule(rs, SYS_socket, 1);
	emit(p, BPF_ALU | BPF_AND | BPF_K, 0xf, 0, 0);
	when(p, BPF_JEQ, SOCK_STREAM, SECCOMP_RET_ALLOW);
	rule_end(rs, REFUSE(EACCES));
}

/* Beside the list, which judges all else (the kernel heeds the stricter of both): no socket of another family. */
static void family_filter(const char *name, uint32_t a, uint32_t b)
{
	struct prog p = {.n = 0};

	emit(&p, BPF_LD | BPF_W | BPF_ABS, DATA(nr), 0, 0);
	emit(&p, BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0);
	emit(&p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	emit(&p, BPF_LD | BPF_W | BPF_ABS, ARG(0), 0, 0);
	when(&p, BPF_JEQ, a, SECCOMP_RET_ALLOW);
	when(&p, BPF_JEQ, b, SECCOMP_RET_ALLOW);
	emit(&p, BPF_RET | BPF_K, REFUSE(EAFNOSUPPORT), 0, 0);
	finish(&p);
	print(name, &p);
}

struct lists {
	const char *const *allow, *const *more, *const *refuse, *const *kill;
	size_t nallow, nmore, nrefuse, nkill;
};

static int profile(const char *name, uint32_t def, const struct lists *l, const struct rules *rules)
{
	scmp_filter_ctx ctx = seccomp_init(def);
	int r;

	if (!ctx)
		return -ENOMEM;
	/* A tree instead of a line: a call near the end of the list costs as much as one at its start. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = add(ctx, SCMP_ACT_ALLOW, l->allow, l->nallow);
	if (r == 0)
		r = add(ctx, SCMP_ACT_ALLOW, l->more, l->nmore);
	if (r == 0)
		r = add(ctx, SCMP_ACT_ERRNO(EPERM), l->refuse, l->nrefuse);
	if (r == 0)
		r = add(ctx, SCMP_ACT_KILL_PROCESS, l->kill, l->nkill);
	if (r == 0)
		r = export(name, ctx, rules);
	seccomp_release(ctx);
	return r;
}

int main(void)
{
	static struct rules guest, bridge;
	static const struct rules none;
	const struct lists guest_lists = {.allow = guest_allow,
					  .nallow = ARRAY_LEN(guest_allow),
					  .refuse = guest_refuse,
					  .nrefuse = ARRAY_LEN(guest_refuse)};
	const struct lists monitor_lists = {.allow = monitor_allow,
					    .nallow = ARRAY_LEN(monitor_allow)};
	const struct lists lastword_lists = {.allow = lastword_allow,
					     .nallow = ARRAY_LEN(lastword_allow)};
	struct lists bridge_lists = {.allow = bridge_allow,
				     .nallow = ARRAY_LEN(bridge_allow),
				     .kill = bridge_deadly,
				     .nkill = ARRAY_LEN(bridge_deadly)};
	struct lists proxy_lists = bridge_lists;
	int r;

	guest_rules(&guest);
	bridge_rules(&bridge);
	(void)printf("/* Generated by gen.c from profile.h. */\n");
	r = profile("guest_filter", SCMP_ACT_ERRNO(ENOSYS), &guest_lists, &guest);
	if (r == 0)
		r = profile("monitor_filter", SCMP_ACT_KILL_PROCESS, &monitor_lists, &none);
	if (r == 0)
		r = profile("bridge_filter", SCMP_ACT_ERRNO(EPERM), &bridge_lists, &bridge);
	if (r == 0)
		r = profile("lastword_filter", SCMP_ACT_KILL_PROCESS, &lastword_lists, &none);
	proxy_lists.more = proxy_allow;
	proxy_lists.nmore = ARRAY_LEN(proxy_allow);
	if (r == 0)
		r = profile("proxy_filter", SCMP_ACT_ERRNO(EPERM), &proxy_lists, &bridge);
	bridge_lists.more = bridge_queue_allow;
	bridge_lists.nmore = ARRAY_LEN(bridge_queue_allow);
	if (r == 0)
		r = profile("bridge_queue_filter", SCMP_ACT_ERRNO(EPERM), &bridge_lists, &bridge);
	bridge_lists.more = bridge_listener_allow;
	bridge_lists.nmore = ARRAY_LEN(bridge_listener_allow);
	if (r == 0)
		r = profile("bridge_listener_filter", SCMP_ACT_ERRNO(EPERM), &bridge_lists,
			    &bridge);
	family_filter("bridge_tcp_filter", AF_INET, AF_INET6);
	family_filter("bridge_unix_filter", AF_UNIX, AF_UNIX);
	return r < 0 ? 1 : 0;
}
