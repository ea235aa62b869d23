#include "guest/holder.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "guest/relay.h"
#include "guest/spawn.h"
#include "guest/tree.h"

/* Between two KILL passes over a tree that is still dying. */
#define KILL_PASS_MS 10

enum phase {
	PH_RUNNING,
	PH_SETTLE, /* main has ended; the rest may be about to */
	PH_TERM,   /* the rest was asked to end */
	PH_KILL,   /* the tree is being killed, every KILL_PASS_MS anew */
	PH_DRAIN,  /* nobody lives; the terminal's last bytes */
	PH_DONE,
};

struct holder {
	int ctl, sigfd, slave;
	pid_t main;
	bool main_ended, children, tty, cut;
	int status;
	enum phase phase;
	int64_t due_ns, give_up_ns;
	size_t leftovers;
	struct relay relay;
};

bool holder_say(int ctl, const struct holder_msg *m)
{
	struct pollfd p = {.fd = ctl, .events = POLLOUT};

	while (send(ctl, m, sizeof(*m), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR)
			return false;
		(void)poll(&p, 1, -1);
	}
	return true;
}

static int64_t after_ms(int64_t ms)
{
	return clock_mono_ns() + ms * NS_PER_MS;
}

static void reap(struct holder *h)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == h->main) {
			h->main_ended = true;
			h->status = status;
		}
	h->children = pid == 0;
}

static void kill_pass(struct holder *h)
{
	size_t n = 0;

	/* Without /proc only the command's own group can be named. */
	if (tree_signal(getpid(), NULL, SIGKILL, &n) < 0 && !h->main_ended)
		(void)kill(-h->main, SIGKILL);
	if (h->main_ended && n > h->leftovers && h->phase != PH_KILL)
		h->leftovers = n;
	h->due_ns = after_ms(KILL_PASS_MS);
}

static void start_killing(struct holder *h)
{
	if (h->phase >= PH_KILL) {
		h->cut |= h->phase == PH_DRAIN;
		return;
	}
	kill_pass(h);
	h->phase = PH_KILL;
	h->give_up_ns = after_ms(KILL_GRACE_MS);
}

static void deliver(struct holder *h, int signo)
{
	if (signo == SIGKILL)
		start_killing(h);
	else if (tree_signal(getpid(), NULL, signo, NULL) < 0 && !h->main_ended)
		(void)kill(-h->main, signo);
}

static void hear(struct holder *h)
{
	struct holder_msg m;
	ssize_t n = recv(h->ctl, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(m)) {
		/* pid 1 is gone, and with it whoever wanted this command. */
		cleanup_fd(&h->ctl);
		start_killing(h);
		h->cut = true;
		return;
	}
	if (m.type == HM_SIGNAL)
		deliver(h, (int)m.a);
	else if (m.type == HM_WINSIZE)
		relay_winsize(&h->relay, m.a, m.b);
}

/* What has to happen now that time has passed or somebody has ended. */
static void advance(struct holder *h)
{
	bool due = clock_mono_ns() >= h->due_ns;

	if (h->phase < PH_DRAIN && h->main_ended && !h->children) {
		cleanup_fd(&h->slave);
		cleanup_fd(&h->relay.in);
		h->relay.in_len = 0;
		h->phase = PH_DRAIN;
	}
	switch (h->phase) {
	case PH_RUNNING:
		if (!h->main_ended)
			return;
		h->phase = PH_SETTLE;
		h->due_ns = after_ms(LEFTOVER_SETTLE_MS);
		break;
	case PH_SETTLE:
		if (!due)
			return;
		(void)tree_signal(getpid(), NULL, SIGTERM, &h->leftovers);
		h->phase = PH_TERM;
		h->due_ns = after_ms(LEFTOVER_GRACE_MS);
		break;
	case PH_TERM:
		if (due)
			start_killing(h);
		break;
	case PH_KILL:
		if (!due)
			return;
		kill_pass(h);
		if (h->due_ns > h->give_up_ns && h->main_ended)
			h->phase = PH_DONE;
		break;
	case PH_DRAIN:
		if (!h->tty || h->cut || relay_drained(&h->relay))
			h->phase = PH_DONE;
		break;
	case PH_DONE:
		break;
	}
}

static int wait_ms(const struct holder *h)
{
	if (h->phase == PH_RUNNING || h->phase == PH_DRAIN)
		return -1;
	return clock_poll_ms(h->due_ns, clock_mono_ns());
}

static void watch(struct holder *h)
{
	struct signalfd_siginfo si;

	while (h->phase != PH_DONE) {
		struct pollfd p[2 + RELAY_POLLS] = {
		    {.fd = h->sigfd, .events = POLLIN},
		    {.fd = h->ctl, .events = POLLIN},
		};

		if (h->tty)
			relay_polls(&h->relay, p + 2);
		if (poll(p, h->tty ? 2 + RELAY_POLLS : 2, wait_ms(h)) < 0)
			continue;
		if (h->tty)
			relay_step(&h->relay, p + 2);
		if (p[0].revents) {
			(void)!read(h->sigfd, &si, sizeof(si));
			reap(h);
		}
		if (p[1].revents)
			hear(h);
		advance(h);
	}
}

static void report(const struct holder *h)
{
	struct holder_msg m = {
	    .type = HM_EXITED, .c = (uint32_t)h->leftovers, .orphans = h->children};
	struct rusage u;

	if (WIFSIGNALED(h->status))
		m.b = (uint32_t)WTERMSIG(h->status);
	else
		m.a = (uint32_t)WEXITSTATUS(h->status);
	if (getrusage(RUSAGE_CHILDREN, &u) == 0) {
		m.n[0] = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
			 (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
		m.n[1] = (uint64_t)u.ru_maxrss;
	}
	(void)holder_say(h->ctl, &m);
}

static _Noreturn void fail(int ctl, int error, const char *step)
{
	struct holder_msg m = {.type = HM_FAILED, .a = (uint32_t)error};

	(void)snprintf(m.step, sizeof(m.step), "%s", step);
	(void)holder_say(ctl, &m);
	_exit(0);
}

/* stdin, stdout and stderr of the command: what the client passed, or the terminal. */
static int prepare(struct holder *h, const struct gm_exec *x, const int fds[3], int ret[3])
{
	int r;

	for (int i = 0; i < 3; i++)
		ret[i] = fds[i];
	if (!(x->flags & GX_TTY))
		return 0;
	r = relay_open(&h->relay, x->rows, x->cols, &h->slave);
	if (r < 0)
		return r;
	h->tty = true;
	h->relay.in = fds[0];
	h->relay.out = fds[1];
	for (int i = 0; i < 3; i++)
		ret[i] = h->slave;
	return 0;
}

_Noreturn void holder_run(int ctl, const struct gm_exec *x, const int fds[3])
{
	struct holder h = {
	    .ctl = ctl, .slave = -1, .relay = {.in = -1, .out = -1, .master = -1, .newline = true}};
	struct holder_msg started = {.type = HM_STARTED};
	const char *step = "terminal";
	int std[3], r;
	sigset_t chld;

	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	h.sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (h.sigfd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		fail(ctl, errno, "holder");
	r = prepare(&h, x, fds, std);
	if (r == 0)
		r = spawn_command(x, std, h.tty, &h.main, &step);
	if (r < 0)
		fail(ctl, -r, step);
	/* The client sees end of file when the command's own copies are closed, not ours. */
	for (int i = h.tty ? 2 : 0; i < 3; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	h.children = true;
	started.a = (uint32_t)h.main;
	(void)holder_say(ctl, &started);
	watch(&h);
	report(&h);
	_exit(0);
}
