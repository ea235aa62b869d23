#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"

#define CANCEL_POLL_NS (100 * NS_PER_MS)
#define READ_PIECE 65536

struct ends {
	int child[3]; /* what becomes 0, 1, 2 */
	int ours[3];
};

static void close_fd(int *fd)
{
	cleanup_fd(fd);
}

static int null_fd(int flags)
{
	return open("/dev/null", flags | O_CLOEXEC);
}

static int pipe_end(struct ends *x, int slot)
{
	int p[2], child = slot == 0 ? 0 : 1;

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	x->child[slot] = p[child];
	x->ours[slot] = p[1 - child];
	if (fcntl(x->ours[slot], F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

static int given(struct ends *x, int slot, int fd, int flags)
{
	/* A copy above 2, so that the dup2 sequence of the child never meets its own source. */
	x->child[slot] = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : null_fd(flags);
	return x->child[slot] < 0 ? -errno : 0;
}

static int make_ends(struct ends *x, const struct process_opts *o)
{
	int r;

	r = o->in ? pipe_end(x, 0) : given(x, 0, o->in_fd, O_RDONLY);
	if (!r)
		r = o->out_fd < 0 && (o->on_out || o->out) ? pipe_end(x, 1)
							   : given(x, 1, o->out_fd, O_WRONLY);
	return r ? r : pipe_end(x, 2);
}

static int spawn(struct process *p, const struct process_opts *o, const struct ends *x)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all;
	int r;

	if (posix_spawn_file_actions_init(&fa) != 0)
		return -ENOMEM;
	if (posix_spawnattr_init(&at) != 0) {
		(void)posix_spawn_file_actions_destroy(&fa);
		return -ENOMEM;
	}
	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	(void)posix_spawnattr_setflags(
	    &at, (short)((o->session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP) |
			 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
	(void)posix_spawnattr_setpgroup(&at, 0);
	(void)posix_spawnattr_setsigmask(&at, &none);
	(void)posix_spawnattr_setsigdefault(&at, &all);
	r = 0;
	for (int i = 0; i < 3 && !r; i++)
		r = posix_spawn_file_actions_adddup2(&fa, x->child[i], i);
	if (!r && o->cwd_fd >= 0)
		r = posix_spawn_file_actions_addfchdir_np(&fa, o->cwd_fd);
	/* Also what somebody gave us without close-on-exec. */
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(&fa, 3);
	if (!r)
		r = posix_spawnp(&p->pid, o->argv[0], &fa, &at, (char *const *)(uintptr_t)o->argv,
				 (char *const *)(uintptr_t)o->envp);
	(void)posix_spawnattr_destroy(&at);
	(void)posix_spawn_file_actions_destroy(&fa);
	return -r;
}

/* From outside and right after the start: posix_spawn has no attribute for it. EPERM: ours is lower. */
static int limit(const struct process *p, const struct process_opts *o)
{
	const struct rlimit mem = {o->mem_max, o->mem_max}, file = {o->file_max, o->file_max};

	if (o->mem_max && prlimit(p->pid, RLIMIT_AS, &mem, NULL) < 0)
		return errno == ESRCH || errno == EPERM ? 0 : -errno;
	if (o->file_max && prlimit(p->pid, RLIMIT_FSIZE, &file, NULL) < 0)
		return errno == ESRCH || errno == EPERM ? 0 : -errno;
	return 0;
}

int process_start(struct process *p, const struct process_opts *o, struct err *e)
{
	struct ends x = {{-1, -1, -1}, {-1, -1, -1}};
	int r;

	*p = (struct process){.pid = -1, .pidfd = -1, .in = -1, .out = -1, .err = -1};
	r = make_ends(&x, o);
	if (!r)
		r = spawn(p, o, &x);
	if (!r)
		r = limit(p, o);
	for (int i = 0; i < 3; i++)
		close_fd(&x.child[i]);
	if (!r) {
		p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
		if (p->pidfd < 0)
			r = -errno;
	}
	p->in = x.ours[0];
	p->out = x.ours[1];
	p->err = x.ours[2];
	p->deadline_ns =
	    o->timeout_ms > 0 ? clock_mono_ns() + o->timeout_ms * NS_PER_MS : INT64_MAX;
	if (r < 0) {
		process_kill(p);
		return err_sys(e, -r, "cannot start %s", o->argv[0]);
	}
	return 0;
}

static int reap(struct process *p)
{
	int st = 0;
	pid_t got;

	do {
		got = waitpid(p->pid, &st, 0);
	} while (got < 0 && errno == EINTR);
	p->pid = -1;
	if (got < 0)
		return 255;
	return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

static void close_all(struct process *p)
{
	close_fd(&p->in);
	close_fd(&p->out);
	close_fd(&p->err);
	close_fd(&p->pidfd);
}

void process_kill_one(struct process *p)
{
	if (p->pid > 0) {
		(void)kill(p->pid, SIGKILL);
		(void)reap(p);
	}
	close_all(p);
}

void process_kill(struct process *p)
{
	/* Not reaped yet, so the number is still this child's group. */
	if (p->pid > 0)
		(void)kill(-p->pid, SIGKILL);
	process_kill_one(p);
}

static int feed(struct process *p, const struct process_opts *o)
{
	ssize_t n = 0;

	/* MSG_NOSIGNAL is for sockets only: SIGPIPE is held back by the caller's mask instead. */
	if (p->in_done < o->in_len)
		n = write(p->in, (const char *)o->in + p->in_done, o->in_len - p->in_done);
	if (n > 0)
		p->in_done += (size_t)n;
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		p->in_done = o->in_len; /* the reader left: its exit status says why */
	if (p->in_done == o->in_len)
		close_fd(&p->in);
	return 0;
}

static int take(struct process *p, const struct process_opts *o)
{
	char piece[READ_PIECE];
	ssize_t n = read(p->out, piece, sizeof(piece));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0) {
		close_fd(&p->out);
		return 0;
	}
	return o->on_out ? o->on_out(o->on_out_arg, piece, (size_t)n)
			 : buf_put(o->out, piece, (size_t)n);
}

static void keep_tail(struct process *p, const char *s, size_t n)
{
	size_t drop;

	if (n > PROCESS_TAIL_MAX) {
		s += n - PROCESS_TAIL_MAX;
		n = PROCESS_TAIL_MAX;
	}
	drop = p->tail_len + n > PROCESS_TAIL_MAX ? p->tail_len + n - PROCESS_TAIL_MAX : 0;
	memmove(p->tail, p->tail + drop, p->tail_len - drop);
	p->tail_len -= drop;
	memcpy(p->tail + p->tail_len, s, n);
	p->tail_len += n;
	p->tail[p->tail_len] = '\0';
}

static void listen_err(struct process *p)
{
	char piece[4096];
	ssize_t n = read(p->err, piece, sizeof(piece));

	if (n > 0)
		keep_tail(p, piece, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_fd(&p->err);
}

/* One round; 1 when the child is gone and its output is read. */
static int pump(struct process *p, const struct process_opts *o, bool *exited)
{
	struct pollfd f[4] = {
	    {.fd = p->in, .events = POLLOUT},
	    {.fd = p->out, .events = POLLIN},
	    {.fd = p->err, .events = POLLIN},
	    {.fd = *exited ? -1 : p->pidfd, .events = POLLIN},
	};
	int64_t now = clock_mono_ns(), until = p->deadline_ns;
	int r;

	if (o->cancel && *o->cancel)
		return -ECANCELED;
	if (now >= p->deadline_ns)
		return -ETIMEDOUT;
	if (o->cancel && until - now > CANCEL_POLL_NS)
		until = now + CANCEL_POLL_NS;
	/* A grandchild may hold the pipes: after the exit, only what is there already is read. */
	r = poll(f, 4, *exited ? 0 : clock_poll_ms(until, now));
	if (r < 0)
		return errno == EINTR ? 0 : -errno;
	if (*exited && !f[1].revents && !f[2].revents)
		return 1;
	if (f[3].revents)
		*exited = true;
	if (f[0].revents)
		(void)feed(p, o);
	if (f[2].revents)
		listen_err(p);
	return f[1].revents ? take(p, o) : 0;
}

int process_wait(struct process *p, const struct process_opts *o, int *ret_status, struct err *e)
{
	sigset_t block, old;
	struct timespec zero = {0, 0};
	bool exited = false;
	int r = 0;

	(void)sigemptyset(&block);
	(void)sigaddset(&block, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &block, &old);
	while (!r)
		r = pump(p, o, &exited);
	if (!sigismember(&old, SIGPIPE))
		while (sigtimedwait(&block, NULL, &zero) > 0)
			;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 1) {
		*ret_status = reap(p);
		close_all(p);
		return 0;
	}
	process_kill(p);
	if (r == -ETIMEDOUT)
		return err_set(e, ERR_TIMEOUT, "%s did not finish within %lld ms and was killed",
			       path_base(o->argv[0]), (long long)o->timeout_ms);
	if (r == -ECANCELED)
		return err_set(e, ERR_CANCELLED, "%s was stopped", path_base(o->argv[0]));
	if (r == -E2BIG && !o->on_out)
		return err_set(e, ERR_LIMIT, "%s printed more than %zu bytes and was killed",
			       path_base(o->argv[0]), o->out->max);
	return err_sys(e, -r, "reading the output of %s", path_base(o->argv[0]));
}

int process_run(const struct process_opts *o, int *ret_status, char *tail, struct err *e)
{
	struct process p;
	int r = process_start(&p, o, e);

	if (tail)
		tail[0] = '\0';
	if (r < 0)
		return r;
	r = process_wait(&p, o, ret_status, e);
	if (tail)
		memcpy(tail, p.tail, p.tail_len + 1);
	return r;
}

int process_split_nul(void *records, const char *p, size_t n)
{
	struct process_records *s = records;

	while (n) {
		const char *nul = memchr(p, '\0', n);
		size_t len = nul ? (size_t)(nul - p) : n;
		int r;

		if (!nul || s->rest.len) {
			r = buf_put(&s->rest, p, len);
			if (r < 0)
				return r;
		}
		if (!nul)
			return 0;
		r = s->rest.len ? s->on_record(s->arg, s->rest.data, s->rest.len)
				: s->on_record(s->arg, p, len);
		if (r < 0)
			return r;
		buf_reset(&s->rest);
		p += len + 1;
		n -= len + 1;
	}
	return 0;
}
