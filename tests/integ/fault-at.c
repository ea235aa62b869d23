/*
 * fault-at: one fault at one system call of one program, for tests of crashes and full disks.
 *
 *   fault-at [-s] [-p NAME] [-i K] [-l LOG] [-r REPORT] [-x PROGRAM] [-f SPEC]... -- COMMAND...
 *
 * Runs COMMAND under ptrace and follows what it starts until NAME (default airlock-unpack) is
 * executed for the Kth time (default 1); only that process, all of its threads, is stopped at its system calls, and
 * what other programs start is not followed. SPEC is CALL:N=FAULT, CALL a name or "any" (Nth call of all, from 1); FAULT is
 *   kill      SIGKILL before the call is made: what a dead machine leaves, as far as a test can go
 *   ERRNO     the call is not made and says ERRNO (ENOSPC, EIO, EDQUOT, EINTR, ENOMEM, EMFILE, EPERM, EINVAL)
 *   run       PROGRAM of -x is run to its end before the call is made: somebody else acts just then
 *   ERRNO+    so do all later calls of that name; with "full" as CALL: of all that need room on a disk
 * LOG gets a line "INDEX NAME OCCURRENCE LASTS SITE" per call: LASTS is 1 for a call that can change what outlives the
 * process (a file, what another process has read), 0 for one that cannot; SITE names the chain of callers in NAME's
 * own code, the same for the same place in the program (arm64: of each call its own, since it is not known). REPORT gets a line per fault that was made, with
 * the Seccomp mode of the process at that moment: 2 once it is confined. The confinement stays in
 * force, since a call is cancelled by its number (-1), which the filter sees as any unknown one.
 *
 * -s: a seccomp filter stops the named calls only, which is twice as fast. SPEC has a name then, there is no LOG, and
 * all that COMMAND starts ends with it, since nobody may make these calls untraced.
 *
 * The exit status is COMMAND's, 128 + signal if it died of one, 127 for our own failures.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

#define SPECS_MAX 8
#define RUN 4096 /* no errno */
#define THREADS_MAX 16
#define CALLS_MAX 1024
#define SITE_FRAMES 4
#define OPTIONS                                                                                   \
	(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | \
	 PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL)

struct spec {
	int nr; /* -1: any; -2: what needs room */
	unsigned long at;
	int fault; /* errno; 0: kill; RUN */
	bool on;   /* also later ones */
	bool made;
};

struct tracer {
	const char *program;
	unsigned wanted, seen;
	struct spec spec[SPECS_MAX];
	size_t specs;
	FILE *log, *report;
	bool sieve; /* only the named calls stop */
	const char *act;
	pid_t first, target;
	pid_t thread[THREADS_MAX]; /* of the target, beside the first */
	unsigned threads;
	unsigned long count, occurrence[CALLS_MAX];
	unsigned long text, text_len; /* NAME's own code, and a copy of it */
	unsigned char *code;
	int inject;   /* errno to put into the result at the exit stop; 0: none */
	pid_t caller; /* whose call that is */
};

static const struct {
	const char *name;
	int value;
} errnos[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},	      {"EDQUOT", EDQUOT}, {"EINTR", EINTR},
	      {"ENOMEM", ENOMEM}, {"EMFILE", EMFILE}, {"EPERM", EPERM},	  {"EINVAL", EINVAL}};

/* What a full disk refuses. Reading, renaming over and removing go on. */
static const char *const needs_room[] = {"write",	   "pwrite64",	"writev",
					 "mkdirat",	   "symlinkat", "linkat",
					 "ftruncate",	   "fallocate", "fsync",
					 "syncfs",	   "fdatasync", "sync_file_range",
					 "copy_file_range"};

static _Noreturn void die(const char *what)
{
	(void)fprintf(stderr, "fault-at: %s: %s\n", what, strerror(errno));
	_exit(127);
}

static _Noreturn void usage(const char *why)
{
	(void)fprintf(stderr,
		      "fault-at: %s\nusage: fault-at [-s] [-p NAME] [-i K] [-l LOG] [-r REPORT] "
		      "[-f CALL:N=FAULT]... -- COMMAND...\n",
		      why);
	_exit(127);
}

static void add_spec(struct tracer *t, char *s)
{
	struct spec *p = &t->spec[t->specs];
	char *n = strchr(s, ':'), *f = n ? strchr(n, '=') : NULL;
	size_t k;

	if (!f || t->specs == SPECS_MAX)
		usage("a fault is CALL:N=FAULT, at most 8 of them");
	*n++ = *f++ = '\0';
	p->at = strtoul(n, NULL, 10);
	k = strlen(f);
	if (k && f[k - 1] == '+') {
		p->on = true;
		f[k - 1] = '\0';
	}
	p->fault = !strcmp(f, "kill") ? 0 : !strcmp(f, "run") ? RUN : -1;
	for (size_t i = 0; i < sizeof(errnos) / sizeof(*errnos); i++)
		if (!strcmp(f, errnos[i].name))
			p->fault = errnos[i].value;
	p->nr = !strcmp(s, "any") ? -1 : !strcmp(s, "full") ? -2 : seccomp_syscall_resolve_name(s);
	if (p->fault < 0 || !p->at || (p->nr < 0 && p->nr != -1 && p->nr != -2) ||
	    (p->nr == -1 && strcmp(s, "any") != 0))
		usage("unknown call, number or fault");
	t->specs++;
}

static bool room_call(const char *name, uint64_t flags)
{
	for (size_t i = 0; i < sizeof(needs_room) / sizeof(*needs_room); i++)
		if (!strcmp(name, needs_room[i]))
			return true;
	/* A new file needs a directory entry and an inode; opening an old one does not. */
	return !strcmp(name, "openat") && flags & O_CREAT;
}

/*
 * These leave files and other processes as they were, so a process that is killed before one of
 * them leaves the same as one killed after it. Whatever is not in the list is taken to change
 * something. The locks of a killed process are gone in any case; so are its mappings.
 */
static const char *const leaves_all[] = {"access",
					 "arch_prctl",
					 "brk",
					 "capget",
					 "clock_gettime",
					 "clock_nanosleep",
					 "clone3",
					 "close",
					 "close_range",
					 "dup",
					 "faccessat",
					 "faccessat2",
					 "fadvise64",
					 "fcntl",
					 "fdatasync",
					 "flock",
					 "fstat",
					 "fstatfs",
					 "fsync",
					 "futex",
					 "getdents64",
					 "getegid",
					 "geteuid",
					 "getpid",
					 "getrandom",
					 "gettid",
					 "getuid",
					 "getxattr",
					 "fgetxattr",
					 "landlock_add_rule",
					 "landlock_create_ruleset",
					 "landlock_restrict_self",
					 "lseek",
					 "madvise",
					 "mmap",
					 "mprotect",
					 "munmap",
					 "newfstatat",
					 "poll",
					 "ppoll",
					 "prctl",
					 "pread64",
					 "prlimit64",
					 "read",
					 "readlinkat",
					 "recvmsg",
					 "rseq",
					 "rt_sigaction",
					 "rt_sigprocmask",
					 "sched_getaffinity",
					 "seccomp",
					 "set_robust_list",
					 "set_tid_address",
					 "statx",
					 "statfs",
					 "sync_file_range",
					 "syncfs",
					 "sysinfo",
					 "umask",
					 "uname"};

static bool read_at(pid_t pid, unsigned long from, void *to, size_t len)
{
	struct iovec here = {to, len}, there = {(void *)from, len};

	return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)len;
}

static bool lasts(pid_t pid, const struct ptrace_syscall_info *in, const char *name)
{
	uint64_t flags = in->entry.args[2];

	if (!strcmp(name, "openat2") && !read_at(pid, in->entry.args[2], &flags, sizeof(flags)))
		return true;
	if (!strcmp(name, "openat") || !strcmp(name, "openat2"))
		return flags & (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY));
	for (size_t i = 0; i < sizeof(leaves_all) / sizeof(*leaves_all); i++)
		if (!strcmp(name, leaves_all[i]))
			return false;
	return true;
}

/* Where the program's own code lies, and its bytes. */
static void learn_code(struct tracer *t)
{
	char path[64], line[4352];
	unsigned long from, to;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)t->target);
	f = fopen(path, "re");
	while (f && !t->code && fgets(line, sizeof(line), f)) {
		char *name = strrchr(line, '/');
		size_t n = strlen(t->program);

		if (!name || strncmp(name + 1, t->program, n) != 0 || name[n + 1] != '\n' ||
		    !strstr(line, " r-xp ") || sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		t->text = from;
		t->text_len = to - from;
		t->code = malloc(t->text_len);
		if (!t->code || !read_at(t->target, from, t->code, t->text_len))
			die("read the program's code");
	}
	if (f)
		(void)fclose(f);
}

#if defined(__x86_64__)
/* Whether the bytes before this place are a call: relative, or through memory or a register. */
static bool after_call(const struct tracer *t, unsigned long at)
{
	const unsigned char *c = t->code + at;

	return at > 7 && (c[-5] == 0xe8 || (c[-6] == 0xff && (c[-5] & 0x38) == 0x10) ||
			  (c[-3] == 0xff && (c[-2] & 0x38) == 0x10) ||
			  (c[-2] == 0xff && (c[-1] & 0x38) == 0x10));
}
#endif

/*
 * The innermost return addresses on the stack that lie in the program's own code. A stale one among
 * them makes two places of one, which costs a test more and leaves none out.
 */
static unsigned long site(struct tracer *t, const struct ptrace_syscall_info *in)
{
#if defined(__x86_64__)
	unsigned long stack[512], hash = 5381, frames = 0;

	if (!t->code)
		learn_code(t);
	if (!t->code || !read_at(t->target, in->stack_pointer, stack, sizeof(stack)))
		return t->count;
	for (size_t i = 0; i < sizeof(stack) / sizeof(*stack) && frames < SITE_FRAMES; i++) {
		unsigned long at = stack[i] - t->text;

		if (at >= t->text_len || !after_call(t, at))
			continue;
		hash = hash * 1000003 ^ at;
		frames++;
	}
	return hash;
#else
	(void)in;
	return t->count;
#endif
}

/* Descriptors that are no files: the channel is a socket and never full of disk. */
static bool is_file(pid_t pid, uint64_t fd)
{
	char path[64], to[32];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)fd);
	n = readlink(path, to, sizeof(to));
	return n > 0 && to[0] == '/';
}

static int seccomp_mode(pid_t pid)
{
	char path[64], line[256];
	int mode = -1;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "Seccomp:", 8))
			mode = (int)strtol(line + 8, NULL, 10);
	if (f)
		(void)fclose(f);
	return mode;
}

/* The call that is about to be made will not be: its number becomes one that there is not. */
static void cancel_call(pid_t pid)
{
#if defined(__x86_64__)
	struct user_regs_struct r;

	if (ptrace(PTRACE_GETREGS, pid, NULL, &r) < 0)
		die("read registers");
	r.orig_rax = (unsigned long long)-1;
	if (ptrace(PTRACE_SETREGS, pid, NULL, &r) < 0)
		die("write registers");
#elif defined(__aarch64__)
	int nr = -1;
	struct iovec v = {&nr, sizeof(nr)};

	if (ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_SYSTEM_CALL, &v) < 0)
		die("write the call's number");
#else
#error "fault-at knows x86-64 and arm64"
#endif
}

static void set_result(pid_t pid, long value)
{
#if defined(__x86_64__)
	struct user_regs_struct r;

	if (ptrace(PTRACE_GETREGS, pid, NULL, &r) < 0)
		die("read registers");
	r.rax = (unsigned long long)value;
	if (ptrace(PTRACE_SETREGS, pid, NULL, &r) < 0)
		die("write registers");
#else
	struct user_regs_struct r;
	struct iovec v = {&r, sizeof(r)};

	if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &v) < 0)
		die("read registers");
	r.regs[0] = (unsigned long long)value;
	if (ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &v) < 0)
		die("write registers");
#endif
}

static bool matches(struct tracer *t, struct spec *s, const struct ptrace_syscall_info *in,
		    const char *name)
{
	int nr = (int)in->entry.nr;
	unsigned long n = nr >= 0 && nr < CALLS_MAX ? t->occurrence[nr] : 0;

	if (s->nr == -2) {
		/* Counted by calls that qualify, so the first full disk call is full:1. */
		if (!room_call(name, in->entry.args[2]) ||
		    (!strcmp(name, "write") && !is_file(t->target, in->entry.args[0])))
			return false;
		if (s->at > 1) {
			s->at--;
			return false;
		}
		return true;
	}
	if (s->nr == -1)
		return t->count == s->at || (s->on && t->count > s->at);
	return s->nr == nr && (n == s->at || (s->on && n > s->at));
}

/* Everything that is traced stands still meanwhile, so what happens here happens at this point. */
static void act(const struct tracer *t)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		(void)execl(t->act, t->act, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		die(t->act);
}

static bool all_made(const struct tracer *t)
{
	for (size_t i = 0; i < t->specs; i++)
		if (t->spec[i].on || !t->spec[i].made)
			return false;
	return t->specs > 0;
}

/* At an entry stop. False: the process was killed. */
static bool enter(struct tracer *t, pid_t pid, const struct ptrace_syscall_info *in)
{
	int nr = (int)in->entry.nr;
	char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);
	bool lives = true;

	t->count++;
	if (nr >= 0 && nr < CALLS_MAX)
		t->occurrence[nr]++;
	if (t->log)
		(void)fprintf(t->log, "%lu %s %lu %d %lx\n", t->count, name ? name : "?",
			      nr >= 0 && nr < CALLS_MAX ? t->occurrence[nr] : 0,
			      lasts(pid, in, name ? name : "?"), site(t, in));
	for (size_t i = 0; i < t->specs && lives && !t->inject; i++) {
		struct spec *s = &t->spec[i];

		if (!matches(t, s, in, name ? name : "?"))
			continue;
		if (t->report)
			(void)fprintf(t->report, "%lu %s %s seccomp=%d\n", t->count,
				      name ? name : "?",
				      s->fault == RUN ? "run"
				      : s->fault      ? strerror(s->fault)
						      : "killed",
				      seccomp_mode(t->target));
		s->made = true;
		if (s->fault == 0) {
			(void)kill(t->target, SIGKILL);
			lives = false;
		} else if (s->fault == RUN) {
			act(t);
		} else {
			t->inject = s->fault;
			t->caller = pid;
			cancel_call(pid);
		}
	}
	free(name);
	return lives;
}

static void at_call(struct tracer *t, pid_t pid)
{
	struct ptrace_syscall_info in;

	if (ptrace((enum __ptrace_request)PTRACE_GET_SYSCALL_INFO, pid, sizeof(in), &in) < 0)
		return; /* gone */
	if (in.op == PTRACE_SYSCALL_INFO_ENTRY) {
		(void)enter(t, pid, &in);
	} else if (in.op == PTRACE_SYSCALL_INFO_EXIT && t->inject && pid == t->caller) {
		set_result(pid, -t->inject);
		t->inject = 0;
	}
}

/* At an entry that the filter stopped: a call whose number is -1 is left out, and the result stands. */
static void at_named_call(struct tracer *t, pid_t pid)
{
	struct ptrace_syscall_info in;

	if (ptrace((enum __ptrace_request)PTRACE_GET_SYSCALL_INFO, pid, sizeof(in), &in) < 0)
		return; /* gone */
	if (enter(t, pid, &in) && t->inject) {
		set_result(pid, -t->inject);
		t->inject = 0;
	}
}

static void install_filter(const struct tracer *t)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r = ctx ? 0 : -ENOMEM;

	/* Root needs no promise about privileges, and a program that looks for it finds none. */
	if (r == 0 && geteuid() == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
	for (size_t i = 0; r == 0 && i < t->specs; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_TRACE(1), t->spec[i].nr, 0);
	if (r == 0)
		r = seccomp_load(ctx);
	if (r < 0) {
		errno = -r;
		die("filter the named calls");
	}
	seccomp_release(ctx);
}

static bool is_program(pid_t pid, const char *name)
{
	char path[64], exe[4096];
	const char *base;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n < 0)
		return false;
	exe[n] = '\0';
	base = strrchr(exe, '/');
	return !strcmp(base ? base + 1 : exe, name);
}

/* A new thread may stop for the first time before its maker says that it made one. */
static bool is_thread(struct tracer *t, pid_t pid)
{
	char path[64];

	for (unsigned i = 0; i < t->threads; i++)
		if (t->thread[i] == pid)
			return true;
	if (t->target <= 0 || t->threads == THREADS_MAX)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)t->target, (int)pid);
	if (access(path, F_OK) < 0)
		return false;
	t->thread[t->threads++] = pid;
	return true;
}

/* One stop of one process: what to do next with it. */
static void stopped(struct tracer *t, pid_t pid, int status)
{
	int sig = WSTOPSIG(status), event = status >> 16;
	bool ours = pid == t->target || is_thread(t, pid);
	int run = t->sieve ? PTRACE_CONT : PTRACE_SYSCALL, how = ours ? run : PTRACE_CONT;

	if (event == PTRACE_EVENT_SECCOMP) {
		if (ours)
			at_named_call(t, pid);
		sig = 0;
	} else if (sig == (SIGTRAP | 0x80)) {
		at_call(t, pid);
		sig = 0;
	} else if (event == PTRACE_EVENT_EXEC) {
		sig = 0;
		if (is_program(pid, t->program) && ++t->seen == t->wanted) {
			t->target = pid;
			ours = true;
			how = run;
		} else if (pid != t->first && pid != t->target && !t->sieve) {
			how = PTRACE_DETACH; /* sandboxes and the like outlive us */
		}
	} else if (event || sig == SIGSTOP) {
		/* A new child begins with SIGSTOP; nothing here sends that signal otherwise. */
		sig = 0;
	}
	/* All faults are made: the rest runs at full speed. */
	if (ours && !t->log && !t->sieve && !t->inject && all_made(t))
		how = PTRACE_DETACH;
	(void)ptrace((enum __ptrace_request)how, pid, NULL, sig);
}

static int follow(struct tracer *t)
{
	int status, result = 127;
	pid_t pid;

	while ((pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
		if (pid < 0)
			continue;
		if (WIFSTOPPED(status)) {
			stopped(t, pid, status);
			continue;
		}
		if (pid == t->target)
			t->target = -1;
		/* What it left running is ended with us (EXITKILL) or was let go by its own end. */
		if (pid == t->first) {
			result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
			if (t->target <= 0)
				break;
		}
	}
	return result;
}

int main(int argc, char **argv)
{
	static struct tracer t = {.program = "airlock-unpack", .wanted = 1, .target = -1};
	int status, c;
	pid_t pid;

	while ((c = getopt(argc, argv, "+sp:i:l:r:x:f:")) >= 0) {
		if (c == 's')
			t.sieve = true;
		else if (c == 'p')
			t.program = optarg;
		else if (c == 'i')
			t.wanted = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'l')
			t.log = fopen(optarg, "we");
		else if (c == 'r')
			t.report = fopen(optarg, "we");
		else if (c == 'x')
			t.act = optarg;
		else if (c == 'f')
			add_spec(&t, optarg);
		else
			usage("unknown option");
		if ((c == 'l' && !t.log) || (c == 'r' && !t.report))
			die(optarg);
	}
	if (optind >= argc)
		usage("no command");
	for (size_t i = 0; t.sieve && i < t.specs; i++)
		if (t.log || t.spec[i].nr < 0)
			usage("-s stops at calls that have a name, and keeps no log");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 || raise(SIGSTOP) != 0)
			die("be traced");
		if (t.sieve)
			install_filter(&t);
		execvp(argv[optind], argv + optind);
		die(argv[optind]);
	}
	if (waitpid(pid, &status, __WALL) != pid ||
	    ptrace(PTRACE_SETOPTIONS, pid, NULL, OPTIONS) < 0)
		die("trace the command");
	(void)ptrace(PTRACE_CONT, pid, NULL, 0);
	t.first = pid;
	status = follow(&t);
	if (t.log)
		(void)fclose(t.log);
	if (t.report)
		(void)fclose(t.report);
	free(t.code);
	return status;
}
