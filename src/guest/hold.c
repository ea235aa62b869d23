#include "guest/hold.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "guest/raw.h"

#define STACK_GUARD 4096
#define KERNEL_SIGSET 8 /* bytes of the kernel's signal set */

/* The command's side, until execve. -------------------------------------------------------- */

static int try_exec(const struct hold *h, char *file)
{
	long r = raw3(SYS_execve, RAW_P(file), RAW_P(h->x->argv), RAW_P(h->x->env));

	if (r != -ENOEXEC)
		return (int)-r;
	h->shell_argv[1] = file;
	r = raw3(SYS_execve, RAW_P("/bin/sh"), RAW_P(h->shell_argv), RAW_P(h->x->env));
	return (int)-r;
}

/* As execvp: EACCES is remembered and the search goes on; any other surprise ends it. */
static int search(const struct hold *h)
{
	char file[PATH_MAX + NAME_MAX + 2];
	char *name = h->x->argv[0];
	size_t len = strlen(name);
	bool denied = false;

	if (!len)
		return ENOENT;
	if (memchr(name, '/', len))
		return try_exec(h, name);
	if (len > NAME_MAX)
		return ENAMETOOLONG;
	for (const char *p = h->path, *end;; p = end + 1) {
		size_t dir;
		int e;

		end = strchrnul(p, ':');
		dir = (size_t)(end - p);
		if (dir < PATH_MAX) {
			/* An empty element is the current directory. */
			memcpy(file, p, dir);
			if (dir)
				file[dir++] = '/';
			memcpy(file + dir, name, len + 1);
			e = try_exec(h, file);
			if (e == EACCES)
				denied = true;
			else if (e != ENOENT && e != ENOTDIR && e != ENAMETOOLONG && e != ELOOP &&
				 e != ESTALE && e != ENODEV && e != ETIMEDOUT)
				return e;
		}
		if (!*end)
			return denied ? EACCES : ENOENT;
	}
}

static _Noreturn void run_command(struct hold *h)
{
	const uint64_t none = 0;
	long r;

	(void)raw3(SYS_setsid, 0, 0, 0);
	h->step = "terminal";
	r = h->tty ? raw3(SYS_ioctl, h->fds[0], TIOCSCTTY, 0) : 0;
	for (int i = 0; r >= 0 && i < 3; i++) {
		h->step = "descriptors";
		r = raw3(SYS_dup3, h->fds[i], i, 0);
	}
	if (r >= 0) {
		/* A kernel before 5.9 lacks the call; every descriptor is close-on-exec all the same. */
		(void)raw3(SYS_close_range, 3, RAW(~0U), 0);
		h->step = "chdir";
		r = raw3(SYS_chdir, RAW_P(h->x->cwd), 0, 0);
	}
	if (r >= 0) {
		(void)raw5(SYS_rt_sigprocmask, SIG_SETMASK, RAW_P(&none), 0, KERNEL_SIGSET, 0);
		h->step = "execve";
		r = -search(h);
	}
	h->error = (int)-r;
	raw_exit(127);
}

/*
 * As vfork. Not inlined: the child goes on below this frame, on the same stack, and never returns
 * through it, so the holder finds its own frames as they were.
 */
static __attribute__((noinline)) long start_command(struct hold *h)
{
	long pid = raw5(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		run_command(h);
	return pid;
}

/* The holder. ------------------------------------------------------------------------------ */

static void set(struct hold *h, enum hold_state state)
{
	__atomic_store_n(&h->state, (int)state, __ATOMIC_RELEASE);
}

static void tell(struct hold *h, enum hold_state state)
{
	const uint64_t one = 1;

	set(h, state);
	(void)raw3(SYS_write, h->wake, RAW_P(&one), sizeof(one));
}

static _Noreturn void fail(struct hold *h, const char *step, long error)
{
	h->step = step;
	h->error = (int)-error;
	tell(h, HOLD_FAILED);
	raw_exit(0);
}

static void measure(struct hold *h)
{
	struct rusage u = {0};

	if (raw3(SYS_getrusage, RUSAGE_CHILDREN, RAW_P(&u), 0) < 0)
		return;
	h->cpu_ns = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
		    (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
	h->maxrss_kib = (uint64_t)u.ru_maxrss;
}

/* Reaps until nobody is left; says in between that main has ended before others. */
static void reap_all(struct hold *h)
{
	int status = 0;
	long r;

	while ((r = raw5(SYS_wait4, -1, RAW_P(&status), __WALL, 0, 0)) > 0 || r == -EINTR) {
		if (r != h->main)
			continue;
		h->status = status;
		measure(h);
		__atomic_store_n(&h->main_ended, 1, __ATOMIC_RELEASE);
		/* Nobody else, as nearly always: pid 1 need not be woken twice. */
		if (raw5(SYS_waitid, P_ALL, 0, 0, WEXITED | WNOHANG | WNOWAIT, 0) != -ECHILD)
			tell(h, HOLD_STARTED);
	}
}

static int hold_main(void *arg)
{
	struct hold *h = arg;
	long pid;

	/* As pid 1 the caller takes everything with it; elsewhere (tests) at least nobody waits for ever. */
	(void)raw5(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	pid = raw5(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);

	if (pid < 0)
		fail(h, "holder", pid);
	pid = start_command(h);
	if (pid < 0)
		fail(h, "fork", pid);
	if (h->error) {
		(void)raw5(SYS_wait4, pid, 0, __WALL, 0, 0);
		fail(h, h->step, -h->error);
	}
	/*
	 * The client sees the end of a stream when the command's own copies are closed. A terminal stays open: a
	 * program that closes and opens it must not hang it up.
	 */
	if (h->tty)
		(void)raw3(SYS_dup3, h->fds[0], 0, 0);
	if (raw3(SYS_close_range, 3, h->wake - 1, 0) < 0)
		for (int i = 0; i < 3; i++)
			(void)raw3(SYS_close, h->fds[i], 0, 0);
	(void)raw3(SYS_close_range, h->wake + 1, RAW(~0U), 0);
	h->main = (pid_t)pid;
	/* Not told: most commands end soon, and to wake pid 1 for this takes time from them. It looks by itself. */
	set(h, HOLD_STARTED);
	reap_all(h);
	measure(h);
	tell(h, HOLD_DONE);
	raw_exit(0);
}

/* pid 1's side. ---------------------------------------------------------------------------- */

/* Where a page is larger than the guard, as on some arm64 kernels, all of the lowest one becomes it. */
void *hold_guard(void *stack)
{
	if (getauxval(AT_PAGESZ) > HOLD_STACK / 2)
		return NULL;
	return mprotect(stack, STACK_GUARD, PROT_NONE) < 0 ? NULL : stack;
}

void *hold_stack(void)
{
	size_t page = getauxval(AT_PAGESZ), size = HOLD_STACK + page - STACK_GUARD;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p, page, PROT_NONE) < 0) {
		(void)munmap(p, size);
		return NULL;
	}
	return p + page - STACK_GUARD;
}

int hold_start(struct hold *h, void *stack, pid_t *ret_pid)
{
	int pid;

	h->state = HOLD_STARTING;
	h->error = h->main_ended = 0;
	pid = clone(hold_main, (char *)stack + HOLD_STACK, CLONE_VM | SIGCHLD, h);
	if (pid < 0)
		return -errno;
	*ret_pid = pid;
	return 0;
}

enum hold_state hold_state(const struct hold *h)
{
	return (enum hold_state)__atomic_load_n(&h->state, __ATOMIC_ACQUIRE);
}

bool hold_main_ended(const struct hold *h)
{
	return __atomic_load_n(&h->main_ended, __ATOMIC_ACQUIRE) != 0;
}
