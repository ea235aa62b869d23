/*
 * gen.c: prints the seccomp programs as C arrays. A build-time tool: it links libseccomp, so that
 * airlock-launch, which installs the programs, links nothing.
 *
 * A program is a prelude of argument rules, assembled here, and behind it the list of numbers, as libseccomp
 * judges them: its program says of each run of neighbouring numbers what their verdict is, and ours searches the
 * runs. That is a third of libseccomp's instructions, which the kernel compiles anew at each start. The prelude compares the low 32 bits of an argument, because that is what
 * the kernel looks at for these calls; libseccomp compares 64, and `TIOCSTI | 1 << 32` would pass a
 * "not equal" rule.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/btrfs.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "os/seccomp/profile.h"

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no seccomp profile for this processor"
#endif

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define NEW_NAMESPACES                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

#define PROG_MAX 512
#define EXPORT_MAX 4096

#define DATA(f) ((uint32_t)offsetof(struct seccomp_data, f))
#define ARG(n) (DATA(args) + 8u * (n)) /* low half: little endian */
#define REFUSE(err) (SECCOMP_RET_ERRNO | (err))

struct prog {
	struct sock_filter f[PROG_MAX];
	unsigned n;
};

static void emit(struct prog *p, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (p->n == PROG_MAX)
		abort();
	p->f[p->n++] = (struct sock_filter){.code = code, .k = k, .jt = jt, .jf = jf};
}

/* If the accumulator equals (or has a bit of) k, end with verdict. */
static void when(struct prog *p, uint16_t op, uint32_t k, uint32_t verdict)
{
	emit(p, (uint16_t)(BPF_JMP | op | BPF_K), k, 0, 1);
	emit(p, BPF_RET | BPF_K, verdict, 0, 0);
}

/* Opens a block for call number nr; returns what rule_end needs. */
static unsigned rule(struct prog *p, uint32_t nr, unsigned arg)
{
	unsigned at = p->n;

	emit(p, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 0);
	emit(p, BPF_LD | BPF_W | BPF_ABS, ARG(arg), 0, 0);
	return at;
}

static void rule_end(struct prog *p, unsigned at, uint32_t verdict)
{
	emit(p, BPF_RET | BPF_K, verdict, 0, 0);
	p->f[at].jf = (uint8_t)(p->n - at - 1);
}

static void guest_prelude(struct prog *p)
{
	unsigned at;

	/* Another architecture is judged (killed) by the list behind. */
	emit(p, BPF_LD | BPF_W | BPF_ABS, DATA(arch), 0, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 0);
	emit(p, BPF_LD | BPF_W | BPF_ABS, DATA(nr), 0, 0);

	/* Typing into the terminal that the sandbox was started from (CVE-2017-5226). */
	at = rule(p, SYS_ioctl, 1);
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
	rule_end(p, at, SECCOMP_RET_ALLOW);

	/* A new user namespace gives all capabilities over new ones, and with them kernel attack surface. */
	at = rule(p, SYS_clone, 0);
	when(p, BPF_JSET, NEW_NAMESPACES, REFUSE(EPERM));
	rule_end(p, at, SECCOMP_RET_ALLOW);
	at = rule(p, SYS_unshare, 0);
	when(p, BPF_JSET, NEW_NAMESPACES | CLONE_NEWTIME, REFUSE(EPERM));
	rule_end(p, at, SECCOMP_RET_ALLOW);

	/*
	 * Vsock reaches the hypervisor, AF_ALG, AF_PACKET, AF_XDP and the rarer families have long
	 * lists of faults; netlink other than routing (getifaddrs needs that one) has none of use.
	 */
	at = rule(p, SYS_socket, 0);
	when(p, BPF_JEQ, AF_UNIX, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, AF_INET, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, AF_INET6, SECCOMP_RET_ALLOW);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0);
	emit(p, BPF_RET | BPF_K, REFUSE(EAFNOSUPPORT), 0, 0);
	emit(p, BPF_LD | BPF_W | BPF_ABS, ARG(2), 0, 0);
	when(p, BPF_JEQ, 0, SECCOMP_RET_ALLOW);
	rule_end(p, at, REFUSE(EAFNOSUPPORT));
	at = rule(p, SYS_socketpair, 0);
	when(p, BPF_JEQ, AF_UNIX, SECCOMP_RET_ALLOW);
	rule_end(p, at, REFUSE(EAFNOSUPPORT));

	/* Query, plain Linux, 32-bit uname, and what debuggers set; READ_IMPLIES_EXEC and the rest stay off. */
	at = rule(p, SYS_personality, 0);
	when(p, BPF_JEQ, 0xffffffffu, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, PER_LINUX, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, PER_LINUX32, SECCOMP_RET_ALLOW);
	when(p, BPF_JEQ, ADDR_NO_RANDOMIZE, SECCOMP_RET_ALLOW);
	rule_end(p, at, REFUSE(EPERM));

	/* Its flags lie in memory that a filter cannot read: C libraries fall back to clone. */
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
	emit(p, BPF_RET | BPF_K, REFUSE(ENOSYS), 0, 0);
	if (p->n - 2 > UINT8_MAX)
		abort();
	p->f[1].jf = (uint8_t)(p->n - 2);
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

static void print(const char *name, const struct sock_filter *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)printf("\t{0x%02x, %u, %u, 0x%08x},\n", f[i].code, f[i].jt, f[i].jf, f[i].k);
	(void)name;
}

/* Runs a program that looks at nothing but number and architecture; anything else is a fault of this tool. */
static uint32_t judge(const struct sock_filter *f, size_t n, uint32_t arch, uint32_t nr)
{
	uint32_t a = 0;

	for (size_t pc = 0; pc < n; pc++) {
		bool yes = false;

		switch (f[pc].code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (f[pc].k != DATA(nr) && f[pc].k != DATA(arch))
				abort();
			a = f[pc].k == DATA(nr) ? nr : arch;
			continue;
		case BPF_RET | BPF_K:
			return f[pc].k;
		case BPF_JMP | BPF_JA:
			pc += f[pc].k;
			continue;
		case BPF_JMP | BPF_JEQ | BPF_K:
			yes = a == f[pc].k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			yes = a >= f[pc].k;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			yes = a > f[pc].k;
			break;
		default:
			abort();
		}
		pc += yes ? f[pc].jt : f[pc].jf;
	}
	abort();
}

/* Numbers from `from` to the next run's have one verdict. */
struct run {
	uint32_t from, verdict;
};

static int compare_u32(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return (a > b) - (a < b);
}

/* A verdict changes only where a jump compares: at its constant and behind it. */
static size_t find_runs(const struct sock_filter *f, size_t n, struct run *ret)
{
	static uint32_t edges[2 * EXPORT_MAX + 1];
	size_t len = 0, runs = 0;

	edges[len++] = 0;
	for (size_t i = 0; i < n; i++) {
		if (BPF_CLASS(f[i].code) != BPF_JMP)
			continue;
		edges[len++] = f[i].k;
		if (f[i].k != UINT32_MAX)
			edges[len++] = f[i].k + 1;
	}
	qsort(edges, len, sizeof(edges[0]), compare_u32);
	for (size_t i = 0; i < len; i++) {
		uint32_t v = judge(f, n, ARCH, edges[i]);

		if (runs == 0 || ret[runs - 1].verdict != v)
			ret[runs++] = (struct run){edges[i], v};
	}
	return runs;
}

/* The search for one of the runs, then the verdict, behind its jump. */
static void search(struct prog *p, const struct run *r, size_t n)
{
	size_t mid = n / 2;
	unsigned at = p->n;

	if (n == 1) {
		emit(p, BPF_RET | BPF_K, r[0].verdict, 0, 0);
		return;
	}
	emit(p, BPF_JMP | BPF_JGE | BPF_K, r[mid].from, 0, 0);
	search(p, r, mid);
	if (p->n - at - 1 > UINT8_MAX)
		abort();
	p->f[at].jt = (uint8_t)(p->n - at - 1);
	search(p, r + mid, n - mid);
}

/* The same verdict for every number, on either side of each edge, and for other architectures. */
static bool same(const struct prog *p, const struct sock_filter *f, size_t n, const struct run *r,
		 size_t runs)
{
	const uint32_t archs[] = {ARCH, AUDIT_ARCH_I386, AUDIT_ARCH_ARM, 0, UINT32_MAX};

	for (size_t a = 0; a < ARRAY_LEN(archs); a++) {
		for (uint32_t nr = 0; nr < 8192; nr++)
			if (judge(p->f, p->n, archs[a], nr) != judge(f, n, archs[a], nr))
				return false;
		for (size_t i = 0; i < runs; i++)
			for (uint32_t d = 0; d < 3; d++) {
				uint32_t nr = r[i].from - 1 + d;

				if (judge(p->f, p->n, archs[a], nr) != judge(f, n, archs[a], nr))
					return false;
			}
		if (judge(p->f, p->n, archs[a], UINT32_MAX) != judge(f, n, archs[a], UINT32_MAX))
			return false;
	}
	return true;
}

static int export(const char *name, scmp_filter_ctx ctx, const struct prog *prelude)
{
	static struct sock_filter f[EXPORT_MAX];
	static struct run runs[2 * EXPORT_MAX + 1];
	_cleanup_fd_ int fd = memfd_create(name, MFD_CLOEXEC);
	struct prog p = {.n = 0};
	size_t nruns, len;
	ssize_t n;

	if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0)
		return -EIO;
	n = pread(fd, f, sizeof(f), 0);
	if (n <= 0 || (size_t)n == sizeof(f) || (size_t)n % sizeof(f[0]))
		return -EIO;
	len = (size_t)n / sizeof(f[0]);
	nruns = find_runs(f, len, runs);
	emit(&p, BPF_LD | BPF_W | BPF_ABS, DATA(arch), 0, 0);
	emit(&p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	emit(&p, BPF_RET | BPF_K, judge(f, len, 0, 0), 0, 0);
	emit(&p, BPF_LD | BPF_W | BPF_ABS, DATA(nr), 0, 0);
	search(&p, runs, nruns);
	if (!same(&p, f, len, runs, nruns)) {
		(void)fprintf(stderr, "seccomp profile: %s: the search differs from the list\n",
			      name);
		return -EINVAL;
	}
	(void)printf("static const struct sock_filter %s[] = {\n", name);
	print(name, prelude->f, prelude->n);
	print(name, p.f, p.n);
	(void)printf("};\n\n");
	return 0;
}

/* Page protection and new pages, but never executable; sockets: streams only (families: the filters below). */
static void bridge_prelude(struct prog *p)
{
	static const uint32_t memory[] = {SYS_mmap, SYS_mprotect};
	unsigned at;

	emit(p, BPF_LD | BPF_W | BPF_ABS, DATA(arch), 0, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 0);
	emit(p, BPF_LD | BPF_W | BPF_ABS, DATA(nr), 0, 0);
	for (size_t i = 0; i < ARRAY_LEN(memory); i++) {
		at = rule(p, memory[i], 2);
		when(p, BPF_JSET, PROT_EXEC, REFUSE(EPERM));
		rule_end(p, at, SECCOMP_RET_ALLOW);
	}
	at = rule(p, SYS_socket, 1);
	emit(p, BPF_ALU | BPF_AND | BPF_K, 0xf, 0, 0);
	when(p, BPF_JEQ, SOCK_STREAM, SECCOMP_RET_ALLOW);
	rule_end(p, at, REFUSE(EACCES));
	p->f[1].jf = (uint8_t)(p->n - 2);
}

/* Beside the list, which judges all else (the kernel heeds the stricter of both): no socket of another family. */
static int family_filter(const char *name, uint32_t a, uint32_t b)
{
	struct prog p = {.n = 0};
	unsigned at;

	emit(&p, BPF_LD | BPF_W | BPF_ABS, DATA(nr), 0, 0);
	at = rule(&p, SYS_socket, 0);
	when(&p, BPF_JEQ, a, SECCOMP_RET_ALLOW);
	when(&p, BPF_JEQ, b, SECCOMP_RET_ALLOW);
	rule_end(&p, at, REFUSE(EAFNOSUPPORT));
	emit(&p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	(void)printf("static const struct sock_filter %s[] = {\n", name);
	print(name, p.f, p.n);
	(void)printf("};\n\n");
	return 0;
}

struct lists {
	const char *const *allow, *const *more, *const *refuse, *const *kill;
	size_t nallow, nmore, nrefuse, nkill;
};

static int profile(const char *name, uint32_t def, const struct lists *l,
		   const struct prog *prelude)
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
		r = export(name, ctx, prelude);
	seccomp_release(ctx);
	return r;
}

int main(void)
{
	struct prog guest = {.n = 0}, bridge = {.n = 0};
	const struct prog none = {.n = 0};
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

	guest_prelude(&guest);
	bridge_prelude(&bridge);
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
	if (r == 0)
		r = family_filter("bridge_tcp_filter", AF_INET, AF_INET6);
	if (r == 0)
		r = family_filter("bridge_unix_filter", AF_UNIX, AF_UNIX);
	return r < 0 ? 1 : 0;
}
