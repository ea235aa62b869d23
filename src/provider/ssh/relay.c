/*
 * Policy: bytes of a foreign machine pass through here unread: the only thing looked for is the mark, and nothing of them decides
 * anything but where the noise ends. The child keeps six descriptors and closes every other one that it was forked with. Not
 * done here: a limit for what a command prints (the reader's), the meaning of an end (plain.c).
 */
#include "provider/ssh/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define CHUNK 65536
#define KEPT 3 /* first of the descriptors that are kept */

struct flow {
	int from, to;	  /* -1: closed */
	bool skip;	  /* the mark has not come yet */
	const char *head; /* goes before all else */
	size_t head_len;
	size_t at, n, noise;
	char b[CHUNK];
};

static void shut(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void stop(struct flow *f)
{
	shut(&f->from);
	shut(&f->to);
	f->at = f->n = 0;
}

/* Up to the mark nothing counts; the end of what is there may be its begin. */
static void drop_noise(struct flow *f, const char *mark, atomic_bool *seen)
{
	size_t len = strlen(mark), keep = f->n < len ? f->n : len - 1;
	const char *p = memmem(f->b, f->n, mark, len);

	if (p) {
		f->skip = false;
		f->at = (size_t)(p - f->b) + len;
		if (seen)
			atomic_store(seen, true);
		return;
	}
	f->noise += f->n - keep;
	memmove(f->b, f->b + f->n - keep, keep);
	f->n = keep;
	if (f->noise > REMOTE_NOISE_MAX)
		stop(f);
}

static void take(struct flow *f, const char *mark, atomic_bool *seen)
{
	ssize_t k = read(f->from, f->b + f->n, sizeof(f->b) - f->n);

	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (k <= 0) {
		shut(&f->from);
		return;
	}
	f->n += (size_t)k;
	if (f->skip)
		drop_noise(f, mark, seen);
}

/* At most as much as a pipe that has room at all takes without blocking: others share the command's ends. */
static ssize_t put(int fd, const char *p, size_t n)
{
	return write(fd, p, n < PIPE_BUF ? n : PIPE_BUF);
}

static void give(struct flow *f)
{
	bool head = f->head_len;
	ssize_t k =
	    head ? put(f->to, f->head, f->head_len) : put(f->to, f->b + f->at, f->n - f->at);

	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (k < 0) { /* nobody reads it any more: who sends it is to learn that */
		f->head_len = 0;
		stop(f);
		return;
	}
	if (head) {
		f->head += k;
		f->head_len -= (size_t)k;
		return;
	}
	f->at += (size_t)k;
	if (f->at == f->n)
		f->at = f->n = 0;
}

static bool waits(const struct flow *f)
{
	return !f->skip && (f->head_len || f->n > f->at);
}

/* What is there goes before more is taken. */
static struct pollfd watched(const struct flow *f)
{
	if (waits(f))
		return (struct pollfd){.fd = f->to, .events = POLLOUT};
	return (struct pollfd){.fd = f->from, .events = POLLIN};
}

static void move(struct flow *f, const struct pollfd *p, const char *mark, atomic_bool *seen)
{
	if (p->revents && waits(f))
		give(f);
	else if (p->revents && f->from >= 0)
		take(f, mark, seen);
	if (f->from < 0 && !waits(f))
		stop(f);
}

static void carry(struct flow *in, struct flow *out, struct flow *err, const struct ssh_relay *r)
{
	int64_t say = clock_mono_ns() + REMOTE_SAY_MS * NS_PER_MS;

	while (out->from >= 0 || out->to >= 0 || err->from >= 0 || err->to >= 0) {
		struct pollfd p[3] = {watched(in), watched(out), watched(err)};
		int ms = r->alive ? clock_poll_ms(say, clock_mono_ns()) : -1;

		if (poll(p, 3, ms) < 0 && errno != EINTR)
			return;
		move(in, &p[0], NULL, NULL);
		move(out, &p[1], r->mark, r->seen);
		move(err, &p[2], r->mark, NULL);
		if (!r->alive || clock_mono_ns() < say)
			continue;
		say = clock_mono_ns() + REMOTE_SAY_MS * NS_PER_MS;
		if (in->to >= 0 && !waits(in)) {
			in->b[0] = '\n';
			in->at = 0;
			in->n = 1;
		}
	}
}

/* Only these, in this order, from KEPT on. */
static void keep_only(const struct ssh_relay *r, int fd[6])
{
	const int from[6] = {r->in, r->out, r->err, r->to, r->from, r->other};
	int null;

	for (int i = 0; i < 6; i++)
		fd[i] = fcntl(from[i], F_DUPFD_CLOEXEC, KEPT + 6);
	for (int i = 0; i < 6; i++)
		if (fd[i] < 0 || dup3(fd[i], KEPT + i, O_CLOEXEC) < 0)
			_exit(1);
	for (int i = 0; i < 6; i++)
		fd[i] = KEPT + i;
	(void)syscall(SYS_close_range, KEPT + 6U, ~0U, 0U);
	null = open("/dev/null", O_RDWR);
	for (int i = 0; i < KEPT && null >= 0; i++)
		(void)dup2(null, i);
}

static _Noreturn void child(const struct ssh_relay *r)
{
	static struct flow in, out, err;
	sigset_t none;
	int fd[6];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)sigemptyset(&none);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	keep_only(r, fd);
	/* Only ends that are ours alone are made not to block. */
	(void)fcntl(fd[4], F_SETFL, O_NONBLOCK);
	(void)fcntl(fd[5], F_SETFL, O_NONBLOCK);
	in.from = fd[0];
	in.to = fd[3];
	in.head = r->head;
	in.head_len = r->head_len;
	out = (struct flow){.from = fd[4], .to = fd[1], .skip = true};
	err = (struct flow){.from = fd[5], .to = fd[2], .skip = true};
	(void)fcntl(in.to, F_SETFL, O_NONBLOCK);
	carry(&in, &out, &err, r);
	_exit(0);
}

pid_t ssh_relay_start(const struct ssh_relay *r, struct err *e)
{
	pid_t pid = fork();

	if (pid == 0)
		child(r);
	return pid < 0 ? err_sys(e, errno, "ssh: start a process") : pid;
}
