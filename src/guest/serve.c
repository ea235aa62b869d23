#include "guest/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lazy.h"
#include "base/limits.h"
#include "guest/command.h"
#include "guest/outbox.h"
#include "guest/packer.h"
#include "guest/tree.h"
#include "os/chan.h"
#include "wire/guest.h"

#define BUFFER_KEEP 65536 /* a larger input buffer is given back after its frame */
#define REQUESTS_A_TURN 64
#define SWEEP_MS 10
#define READY_MS 5
#define READY_BYTES (FRAME_HEADER + sizeof(uint32_t))

enum { P_SIGNAL, P_WAKE, P_LAUNCHER, P_PACKER, POLLS };

struct guest {
	struct chan chan;
	struct outbox out;
	int sigfd, wake;
	struct pack_place place;
	bool ending, gone, broken;
	int64_t ready_ns; /* READY waits for company until then; 0: it is out */
	int64_t end_ns;	  /* when asking ends and KILL begins */
	bool sweep;
	int64_t sweep_due_ns, sweep_until_ns;
	size_t swept;
	struct packer packer;
	size_t used; /* commands in use lie below this index */
	/* Last, so that the first one lies beside the rest. */
	struct command commands[EXECS_MAX];
};

static int64_t after_ms(int64_t ms)
{
	return clock_mono_ns() + ms * NS_PER_MS;
}

/* Requests. -------------------------------------------------------------------------------- */

static bool is_open(const struct command *c)
{
	return c->phase != CP_FREE && c->phase != CP_SAID;
}

static struct command *find(struct guest *g, uint32_t id)
{
	for (size_t i = 0; i < g->used; i++)
		if (is_open(&g->commands[i]) && g->commands[i].id == id)
			return &g->commands[i];
	return NULL;
}

static bool id_taken(struct guest *g, uint32_t id)
{
	return find(g, id) || (g->packer.ctl >= 0 && g->packer.id == id);
}

static struct command *take_slot(struct guest *g)
{
	size_t i = 0;

	while (i < g->used && g->commands[i].phase != CP_FREE)
		i++;
	if (i == EXECS_MAX)
		return NULL;
	if (i == g->used)
		g->used++;
	return &g->commands[i];
}

static void start_exec(struct guest *g, struct gm_exec *x, const int fds[FRAME_FDS_MAX])
{
	bool tty = x->flags & GX_TTY;
	struct command *c;

	if (g->ending) {
		outbox_failed(&g->out, x->id, ECANCELED, "shutdown");
	} else if (id_taken(g, x->id)) {
		outbox_failed(&g->out, x->id, EEXIST, "id");
	} else if (fds[0] < 0 || fds[1] < 0 || (fds[2] < 0 && !tty)) {
		outbox_failed(&g->out, x->id, EBADF, "descriptors");
	} else {
		c = take_slot(g);
		if (!c)
			outbox_failed(&g->out, x->id, EAGAIN, "limit");
		else
			(void)command_start(c, x, fds, g->wake, &g->out);
	}
}

/* 0, or -EPROTO: the launcher is broken. */
static int on_exec(struct guest *g, struct view payload, const int fds[FRAME_FDS_MAX])
{
	struct gm_exec x;
	int r = gm_exec_get(payload, &x);

	if (r == 0)
		start_exec(g, &x, fds);
	else if (r == -ENOMEM)
		outbox_failed(&g->out, x.id, ENOMEM, "decode");
	gm_exec_done(&x);
	return r == -EPROTO ? r : 0;
}

static int on_pack(struct guest *g, struct view payload, const int fds[FRAME_FDS_MAX])
{
	struct gm_packed refused = {0};
	struct cursor c;
	int r;

	cursor_init(&c, payload.p, payload.n);
	refused.id = cursor_u32(&c);
	if (!cursor_end(&c))
		return -EPROTO;
	if (id_taken(g, refused.id))
		r = -EEXIST;
	else if (fds[0] < 0 || g->place.tree < 0)
		r = -EBADF;
	else if (g->ending)
		r = -ECANCELED;
	else
		r = packer_start(&g->packer, refused.id, &g->place, fds[0]);
	if (r < 0) {
		refused.error = (uint32_t)-r;
		outbox_packed(&g->out, &refused);
	}
	return 0;
}

static int on_signal(struct guest *g, struct view payload)
{
	struct gm_signal m;
	struct command *c;

	if (gm_signal_get(payload, &m) < 0)
		return -EPROTO;
	c = find(g, m.id);
	/* Unknown ids are no error: the exit event may be on its way. */
	if (c)
		command_signal(c, m.signo);
	else if (g->packer.ctl >= 0 && g->packer.id == m.id)
		packer_kill(&g->packer);
	return 0;
}

static int on_winsize(struct guest *g, struct view payload)
{
	struct gm_winsize m;
	struct command *c;

	if (gm_winsize_get(payload, &m) < 0)
		return -EPROTO;
	c = find(g, m.id);
	if (c)
		command_winsize(c, m.rows, m.cols);
	return 0;
}

static void begin_end(struct guest *g)
{
	if (g->ending)
		return;
	g->ending = true;
	g->end_ns = after_ms(LEFTOVER_GRACE_MS);
	if (getpid() == 1)
		(void)kill(-1, SIGTERM);
	else
		(void)tree_signal(getpid(), NULL, SIGTERM, NULL);
}

static int on_request(struct guest *g, const struct frame *f, const int fds[FRAME_FDS_MAX])
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	switch (f->type) {
	case GM_EXEC:
		return on_exec(g, f->payload, fds);
	case GM_SIGNAL:
		return on_signal(g, f->payload);
	case GM_WINSIZE:
		return on_winsize(g, f->payload);
	case GM_PACK:
		return on_pack(g, f->payload, fds);
	case GM_SHUTDOWN:
		begin_end(g);
		return 0;
	case GM_PING:
		if (f->payload.n != sizeof(uint64_t))
			return -EPROTO;
		(void)buf_put(&b, f->payload.p, f->payload.n);
		outbox_put(&g->out, GM_PONG, &b);
		return 0;
	default:
		return -EPROTO;
	}
}

/* Serves what has arrived. True: there may be more without a new wake-up. */
static bool hear_launcher(struct guest *g)
{
	int fds[FRAME_FDS_MAX];
	struct frame f;

	for (int i = 0; i < REQUESTS_A_TURN; i++) {
		int r;

		if (g->gone || outbox_full(&g->out))
			return false;
		r = chan_recv(&g->chan, 0, &f, fds, NULL);
		if (r == -EAGAIN)
			break;
		if (r <= 0) {
			g->gone = true;
			g->broken = r == -EPROTO;
			return false;
		}
		r = on_request(g, &f, fds);
		for (size_t k = 0; k < ARRAY_LEN(fds); k++)
			cleanup_fd(&fds[k]);
		if (r < 0) {
			g->gone = g->broken = true;
			return false;
		}
		if (i + 1 == REQUESTS_A_TURN)
			return true;
	}
	/* A command with megabytes of arguments must not stay in this process's memory. */
	if (g->chan.in.cap > BUFFER_KEEP && g->chan.in.len == g->chan.used) {
		buf_done(&g->chan.in);
		g->chan.used = 0;
	}
	return false;
}

/* What hangs directly below pid 1 without being a holder lost its holder: it is ended. ------- */

static void start_sweep(struct guest *g)
{
	g->sweep = true;
	g->sweep_due_ns = 0;
	g->sweep_until_ns = after_ms(KILL_GRACE_MS);
	g->swept = 0;
}

static void finish_lost(struct guest *g, bool gone)
{
	for (size_t i = 0; i < g->used; i++)
		if (g->commands[i].phase == CP_LOST)
			command_lost_end(&g->commands[i], g->swept, gone, &g->out);
}

static void sweep(struct guest *g)
{
	_cleanup_pids_ struct pids ours = {0}, left = {0};
	int64_t now;
	size_t n = 0;
	int r;

	if (!g->sweep)
		return;
	now = clock_mono_ns();
	if (now < g->sweep_due_ns)
		return;
	ours.v = calloc(2 * EXECS_MAX + 1, sizeof(pid_t));
	if (!ours.v)
		return;
	/* Zeros name nobody. A dying holder still has its children for a moment: one that has said its last shields nothing. */
	for (size_t i = 0; i < g->used; i++) {
		const struct command *c = &g->commands[i];

		if (is_open(c) && c->phase != CP_LOST) {
			ours.v[ours.n++] = c->holder;
			ours.v[ours.n++] = c->relay;
		}
	}
	ours.v[ours.n++] = g->packer.pid;
	pids_sort(&ours);
	r = tree_signal(getpid(), &ours, SIGKILL, &n);
	g->swept += n;
	if (r == 0)
		r = tree_living(getpid(), &ours, &left);
	g->sweep_due_ns = now + SWEEP_MS * NS_PER_MS;
	if (r < 0 || left.n == 0 || now > g->sweep_until_ns) {
		g->sweep = false;
		finish_lost(g, r == 0 && left.n == 0);
	}
}

/* The loop. -------------------------------------------------------------------------------- */

/* False: no child is left at all. */
static bool reap(struct guest *g)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		if (pid == g->packer.pid)
			g->packer.pid = 0;
		for (size_t i = 0; i < g->used; i++) {
			struct command *c = &g->commands[i];

			if ((pid == c->holder || pid == c->relay) && command_reaped(c, pid))
				start_sweep(g);
		}
	}
	return pid == 0;
}

static void step_commands(struct guest *g)
{
	int64_t now = g->used ? clock_mono_ns() : 0;

	for (size_t i = 0; i < g->used && !outbox_full(&g->out); i++)
		if (command_step(&g->commands[i], now, &g->out))
			start_sweep(g);
	while (g->used && g->commands[g->used - 1].phase == CP_FREE)
		g->used--;
}

static void kill_everything(void)
{
	/* Only as pid 1 does -1 mean the sandbox; elsewhere it would mean the machine. */
	if (getpid() == 1)
		(void)kill(-1, SIGKILL);
	else
		(void)tree_signal(getpid(), NULL, SIGKILL, NULL);
}

static int wait_ms(const struct guest *g, bool more)
{
	int64_t due = INT64_MAX;

	if (more)
		return 0;
	if (g->sweep && g->sweep_due_ns < due)
		due = g->sweep_due_ns;
	if (g->ending && g->end_ns < due)
		due = g->end_ns;
	if (g->ready_ns && g->ready_ns < due)
		due = g->ready_ns;
	for (size_t i = 0; i < g->used && !outbox_full(&g->out); i++) {
		int64_t d = command_due(&g->commands[i]);

		due = d < due ? d : due;
	}
	return due == INT64_MAX ? -1 : clock_poll_ms(due, clock_mono_ns());
}

static void drain(int fd)
{
	char b[4 * sizeof(struct signalfd_siginfo)];

	while (read(fd, b, sizeof(b)) == (ssize_t)sizeof(b))
		;
}

/*
 * Nobody waits for READY: requests are taken before it. With the first command's events it wakes the launcher once,
 * at a time when that has nothing better to do.
 */
static void send_events(struct guest *g)
{
	if (g->ready_ns && g->out.b.len == READY_BYTES && clock_mono_ns() < g->ready_ns)
		return;
	g->ready_ns = 0;
	outbox_flush(&g->out);
}

static void turn(struct guest *g, bool *more)
{
	bool full = outbox_full(&g->out);
	int events = (full ? 0 : POLLIN) | (g->out.b.len && !g->ready_ns ? POLLOUT : 0);
	struct pollfd p[POLLS] = {
	    [P_SIGNAL] = {.fd = g->sigfd, .events = POLLIN},
	    [P_WAKE] = {.fd = g->wake, .events = POLLIN},
	    [P_LAUNCHER] = {.fd = g->gone ? -1 : g->chan.fd, .events = (short)events},
	    /* A hang-up cannot be masked: without room for the event it must wait. */
	    [P_PACKER] = {.fd = full ? -1 : g->packer.ctl, .events = POLLIN},
	};

	if (poll(p, POLLS, wait_ms(g, *more)) < 0)
		memset(p, 0, sizeof(p));
	if (p[P_WAKE].revents)
		drain(g->wake);
	if (p[P_SIGNAL].revents) {
		drain(g->sigfd);
		(void)reap(g);
	}
	if (p[P_PACKER].revents)
		packer_hear(&g->packer, &g->out);
	/* What a full outbox left unread lies here and wakes nobody. */
	if (p[P_LAUNCHER].revents || *more || g->chan.in.len > g->chan.used)
		*more = hear_launcher(g);
	step_commands(g);
	sweep(g);
	send_events(g);
	g->gone |= g->out.gone;
	g->broken |= g->out.broken;
	if (g->gone)
		begin_end(g);
}

/*
 * Reaps until there is no child, killing what is left again and again. On another machine there may be one that cannot be killed
 * (it has changed its user, or hangs in the kernel): it does not hold the run for ever.
 */
static void end_all(struct guest *g)
{
	struct pollfd p = {.fd = g->sigfd, .events = POLLIN};
	int64_t until = getpid() == 1 ? INT64_MAX : after_ms(KILL_GRACE_MS);

	while (reap(g) && clock_mono_ns() < until) {
		kill_everything();
		/* A child that ends while this runs has left its signal behind. */
		(void)poll(&p, 1, SWEEP_MS);
		drain(g->sigfd);
	}
}

static int set_up(struct guest *g)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);
	sigset_t chld;

	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	g->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->sigfd < 0 || g->wake < 0)
		return -errno;
	(void)buf_u32(&b, GUEST_PROTOCOL);
	outbox_put(&g->out, GM_READY, &b);
	/* On another machine somebody does wait for it. */
	if (getpid() == 1)
		g->ready_ns = after_ms(READY_MS);
	else
		outbox_flush(&g->out);
	return 0;
}

int serve(int sock, const struct pack_place *place)
{
	static LAZY_BSS _Alignas(HOLD_ALIGN) char first_stack[HOLD_STACK];
	static LAZY_BSS struct guest g;
	bool more = false;

	g.place = *place;
	g.packer.ctl = -1;
	chan_init(&g.chan, sock, true);
	outbox_init(&g.out, sock);
	if (set_up(&g) < 0)
		return 3;
	/* Nearly always the only one; a mapping far from everything else would need page tables of its own. */
	g.commands[0].stack = hold_guard(first_stack);
	while (!g.ending || clock_mono_ns() < g.end_ns) {
		turn(&g, &more);
		if (g.ending && !reap(&g))
			break;
	}
	end_all(&g);
	packer_hear(&g.packer, &g.out);
	step_commands(&g);
	finish_lost(&g, true);
	outbox_flush(&g.out);
	return g.broken ? 3 : 0;
}
