#include "os/files.h"
#include "provider/local_super.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "os/proc.h"

#define RELAY_CHUNK 16384
#define KEPT_FD 4 /* first of the descriptors that a supervisor keeps */

struct super {
	int ctl, sigs, master; /* master: -1 without a terminal */
	int in, out;	       /* terminal bytes */
	pid_t main;
	bool ended;
	int status;
	struct rusage usage;
	char keys[RELAY_CHUNK]; /* typed, not yet taken by the terminal */
	size_t keys_len;
};

static void tell(struct super *s, const struct sandbox_event *ev)
{
	(void)send(s->ctl, ev, sizeof(*ev), MSG_NOSIGNAL);
}

static void __attribute__((noreturn)) fail(struct super *s, const char *step, int errnum)
{
	struct sandbox_event ev = {.type = SE_FAILED, .sys = errnum};

	(void)snprintf(ev.step, sizeof(ev.step), "%s", step);
	tell(s, &ev);
	_exit(1);
}

static void signal_tree(int signo)
{
	_cleanup_free_ pid_t *v = NULL;
	size_t n = 0;

	if (proc_descendants(getpid(), &v, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		(void)kill(v[i], signo);
}

/* Reaps everything that is dead. Returns false when no child is left at all. */
static bool reap(struct super *s)
{
	struct rusage ru;
	int st;

	for (;;) {
		pid_t p = wait4(-1, &st, WNOHANG, &ru);

		if (p < 0 && errno == EINTR)
			continue;
		if (p <= 0)
			return p == 0;
		if (p == s->main) {
			s->ended = true;
			s->status = st;
			s->usage = ru;
		}
	}
}

static void kill_all(struct super *s)
{
	struct pollfd p = {.fd = s->sigs, .events = POLLIN};
	struct signalfd_siginfo si;

	while (reap(s)) {
		signal_tree(SIGKILL);
		if (poll(&p, 1, 20) > 0)
			(void)!read(s->sigs, &si, sizeof(si));
	}
}

/* Rule for one-shot commands: what the main process leaves behind is ended and counted. */
static unsigned end_leftovers(struct super *s)
{
	int64_t deadline = clock_mono_ns() + LEFTOVER_GRACE_MS * NS_PER_MS;
	struct pollfd p = {.fd = s->sigs, .events = POLLIN};
	struct signalfd_siginfo si;
	_cleanup_free_ pid_t *v = NULL;
	size_t n = 0;

	if (!reap(s))
		return 0;
	(void)proc_descendants(getpid(), &v, &n);
	signal_tree(SIGTERM);
	while (reap(s) && clock_mono_ns() < deadline) {
		if (poll(&p, 1, clock_poll_ms(deadline, clock_mono_ns())) > 0)
			(void)!read(s->sigs, &si, sizeof(si));
	}
	kill_all(s);
	return (unsigned)n;
}

static void __attribute__((noreturn))
child(struct super *s, const struct exec_spec *x, int slave, int report)
{
	struct {
		int errnum;
		char step[28];
	} bad = {0};
	sigset_t none;

	(void)sigemptyset(&none);
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	files_restore();
	(void)setsid();
	if (slave >= 0)
		(void)ioctl(slave, TIOCSCTTY, 0);
	(void)snprintf(bad.step, sizeof(bad.step), "dup2");
	if (dup2(slave >= 0 ? slave : x->in, 0) < 0 || dup2(slave >= 0 ? slave : x->out, 1) < 0 ||
	    dup2(slave >= 0 ? slave : x->err, 2) < 0)
		goto out;
	(void)snprintf(bad.step, sizeof(bad.step), "chdir");
	if (chdir(x->cwd) < 0)
		goto out;
	(void)snprintf(bad.step, sizeof(bad.step), "execve");
	/* The report pipe is close-on-exec and stays open for the failure. */
	if (report != 3 && dup3(report, 3, O_CLOEXEC) < 0)
		goto out;
	report = 3;
	(void)syscall(SYS_close_range, 4U, ~0U, 0U);
	environ = (char **)(uintptr_t)x->env;
	(void)execvp(x->argv[0], x->argv);
out:
	bad.errnum = errno;
	(void)!write(report, &bad, sizeof(bad));
	(void)s;
	_exit(127);
}

static int open_terminal(struct super *s, const struct exec_spec *x)
{
	struct winsize ws = {.ws_row = (unsigned short)x->rows, .ws_col = (unsigned short)x->cols};
	char name[64];
	int slave;

	s->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (s->master < 0 || grantpt(s->master) < 0 || unlockpt(s->master) < 0 ||
	    ptsname_r(s->master, name, sizeof(name)) != 0)
		fail(s, "terminal", errno);
	slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		fail(s, "terminal", errno);
	(void)ioctl(slave, TIOCSWINSZ, &ws);
	(void)fcntl(s->master, F_SETFL, O_NONBLOCK);
	return slave;
}

/*
 * The supervisor is a fork of Airlock: whatever else it inherited (the other ends of the command's own
 * pipes above all) would keep the command from seeing the end of its input.
 */
static void keep_only(struct super *s, struct exec_spec *x)
{
	int *const keep[] = {&s->ctl, &x->in, &x->out, &x->err};
	int up[ARRAY_LEN(keep)];

	for (size_t i = 0; i < ARRAY_LEN(keep); i++) {
		up[i] = fcntl(*keep[i], F_DUPFD_CLOEXEC, 16);
		if (up[i] < 0)
			fail(s, "dup", errno);
	}
	for (size_t i = 0; i < ARRAY_LEN(keep); i++) {
		*keep[i] = KEPT_FD + (int)i;
		if (dup3(up[i], *keep[i], O_CLOEXEC) < 0)
			_exit(1);
	}
	(void)syscall(SYS_close_range, (unsigned)(KEPT_FD + (int)ARRAY_LEN(keep)), ~0U, 0U);
	(void)syscall(SYS_close_range, 0U, (unsigned)KEPT_FD - 1, 0U);
	/* 0..3 stay taken, so that no descriptor made later is one that the child overwrites. */
	for (int fd = 0; fd < KEPT_FD; fd++)
		(void)!open("/dev/null", O_RDWR | O_CLOEXEC);
	s->in = x->in;
	s->out = x->out;
}

static void spawn(struct super *s, struct exec_spec *x)
{
	struct {
		int errnum;
		char step[28];
	} bad = {0};
	struct sandbox_event ev = {.type = SE_STARTED};
	int slave = -1, p[2];
	ssize_t k;

	if (x->tty)
		slave = open_terminal(s, x);
	if (pipe2(p, O_CLOEXEC) < 0)
		fail(s, "pipe", errno);
	s->main = fork();
	if (s->main < 0)
		fail(s, "fork", errno);
	if (s->main == 0)
		child(s, x, slave, p[1]);
	(void)close(p[1]);
	if (slave >= 0)
		(void)close(slave);
	do {
		k = read(p[0], &bad, sizeof(bad));
	} while (k < 0 && errno == EINTR);
	(void)close(p[0]);
	if (k == (ssize_t)sizeof(bad)) {
		kill_all(s);
		fail(s, bad.step, bad.errnum);
	}
	if (!x->tty) {
		/* Ours would keep the command's pipes open after it has ended. */
		(void)close(x->in);
		(void)close(x->out);
		(void)close(x->err);
		s->in = s->out = -1;
	}
	tell(s, &ev);
}

/* Terminal output to the caller; false when there is none now. */
static bool relay_out(struct super *s)
{
	char b[RELAY_CHUNK];
	ssize_t k = read(s->master, b, sizeof(b)), off = 0;

	if (k <= 0)
		return false;
	while (off < k) {
		ssize_t w = write(s->out, b + off, (size_t)(k - off));

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return false;
		off += w;
	}
	return true;
}

static void relay_in(struct super *s, short revents)
{
	ssize_t k;

	if (s->keys_len == 0 && (revents & (POLLIN | POLLHUP))) {
		k = read(s->in, s->keys, sizeof(s->keys));
		if (k <= 0) {
			/* End of input is ^D for who reads a terminal. */
			static const char eof[] = {4};

			(void)!write(s->master, eof, 1);
			(void)close(s->in);
			s->in = -1;
			return;
		}
		s->keys_len = (size_t)k;
	}
	if (!s->keys_len)
		return;
	k = write(s->master, s->keys, s->keys_len);
	if (k > 0) {
		s->keys_len -= (size_t)k;
		memmove(s->keys, s->keys + k, s->keys_len);
	}
}

/* False at the end of the life line. */
static bool request(struct super *s)
{
	struct super_msg m;
	ssize_t k = recv(s->ctl, &m, sizeof(m), MSG_DONTWAIT);

	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (k != (ssize_t)sizeof(m))
		return false;
	if (m.what == SUPER_SIGNAL) {
		signal_tree(m.signo);
	} else if (s->master >= 0) {
		struct winsize ws = {.ws_row = (unsigned short)m.rows,
				     .ws_col = (unsigned short)m.cols};

		(void)ioctl(s->master, TIOCSWINSZ, &ws);
	}
	return true;
}

static void watch(struct super *s)
{
	while (!s->ended) {
		struct pollfd p[4] = {
		    {.fd = s->ctl, .events = POLLIN},
		    {.fd = s->sigs, .events = POLLIN},
		    {.fd = s->master, .events = (short)(POLLIN | (s->keys_len ? POLLOUT : 0))},
		    {.fd = s->master >= 0 && !s->keys_len ? s->in : -1, .events = POLLIN},
		};
		struct signalfd_siginfo si;

		if (poll(p, 4, -1) < 0)
			continue;
		if (p[0].revents && !request(s)) {
			kill_all(s);
			_exit(0);
		}
		if (p[2].revents & POLLIN)
			(void)relay_out(s);
		if (s->master >= 0 && s->in >= 0 && (p[3].revents || (p[2].revents & POLLOUT)))
			relay_in(s, p[3].revents);
		if (p[1].revents) {
			(void)!read(s->sigs, &si, sizeof(si));
			(void)reap(s);
		} else if (p[2].revents == POLLHUP) {
			/* Every holder of the terminal closed it, the main process may live on. */
			struct pollfd w = {.fd = s->sigs, .events = POLLIN};

			(void)poll(&w, 1, 50);
		}
	}
}

void super_main(int ctl, const struct exec_spec *spec)
{
	struct super s = {.ctl = ctl, .master = -1, .in = -1, .out = -1};
	struct exec_spec x = *spec;
	struct sandbox_event ev = {.type = SE_EXITED};
	sigset_t mask;

	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)signal(SIGPIPE, SIG_IGN);
	/* Own session: Ctrl-C at the caller's terminal is Airlock's to judge, not ours. */
	(void)setsid();
	(void)sigfillset(&mask);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGCHLD);
	keep_only(&s, &x);
	s.sigs = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s.sigs < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		fail(&s, "supervise", errno);
	spawn(&s, &x);
	watch(&s);
	ev.leftovers = end_leftovers(&s);
	while (s.master >= 0 && relay_out(&s))
		continue;
	if (WIFSIGNALED(s.status))
		ev.signo = WTERMSIG(s.status);
	else
		ev.code = WEXITSTATUS(s.status);
	ev.cpu_ns = (uint64_t)(s.usage.ru_utime.tv_sec + s.usage.ru_stime.tv_sec) * NS_PER_S +
		    (uint64_t)(s.usage.ru_utime.tv_usec + s.usage.ru_stime.tv_usec) * 1000;
	ev.maxrss_kib = (uint64_t)s.usage.ru_maxrss;
	tell(&s, &ev);
	_exit(0);
}
