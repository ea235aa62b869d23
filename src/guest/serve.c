#include "guest/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "guest/holder.h"
#include "guest/pack.h"
#include "guest/tree.h"
#include "os/chan.h"
#include "wire/guest.h"

#define OUTBOX_HIGH 65536 /* bytes of unsent events: above it no request and no holder is read */
#define OUTBOX_MAX (1 << 20)
#define BUFFER_KEEP 65536 /* a larger input buffer is given back after its frame */
#define REQUESTS_A_TURN 64
#define SWEEP_MS 10
#define SMALL_BUF 64	      /* the first capacity of a struct buf */
#define SLOTS (EXECS_MAX + 1) /* and one pack */

struct slot {
	uint32_t id;
	int ctl;   /* -1: free slot, or lost */
	pid_t pid; /* holder or packer; 0 once reaped */
	bool pack;
	bool said;    /* its last event is out */
	bool lost;    /* the holder was killed: its tree is being swept */
	bool winsize; /* rows, cols wait to be sent */
	uint32_t rows, cols;
	uint64_t signals;   /* to be sent, as a set: a flood of requests stays small */
	int64_t kill_by_ns; /* after a KILL the holder has until then */
};

struct guest {
	struct chan chan;
	struct buf outbox;
	int sigfd, upper;
	bool ending, gone, broken;
	int64_t end_ns; /* when asking ends and KILL begins */
	bool sweep;
	int64_t sweep_due_ns, sweep_until_ns;
	size_t swept;
	struct slot slots[SLOTS];
	size_t used; /* slots in use lie below this index */
	size_t execs;
	void *held;
};

static int64_t after_ms(int64_t ms)
{
	return clock_mono_ns() + ms * NS_PER_MS;
}

/* Events. ---------------------------------------------------------------------------------- */

static void emit(struct guest *g, uint8_t type, const struct buf *payload)
{
	/* The bound is far above what OUTBOX_HIGH lets through; beyond it is a bug of ours. */
	if (!g->gone && frame_put(&g->outbox, type, 0, buf_text(payload), payload->len) < 0)
		g->broken = true;
}

static void emit_failed(struct guest *g, uint32_t id, int error, const char *step)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);
	struct gm_failed m = {.id = id, .error = (uint32_t)error};

	(void)snprintf(m.step, sizeof(m.step), "%s", step);
	if (gm_failed_put(&b, &m) == 0)
		emit(g, GM_FAILED, &b);
}

static void emit_packed(struct guest *g, const struct gm_packed *m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);

	if (gm_packed_put(&b, m) == 0)
		emit(g, GM_PACKED, &b);
}

static void emit_exited(struct guest *g, const struct gm_exited *m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);

	if (gm_exited_put(&b, m) == 0)
		emit(g, GM_EXITED, &b);
}

static void flush(struct guest *g)
{
	size_t at = 0;

	while (!g->gone && at < g->outbox.len) {
		ssize_t n = send(g->chan.fd, g->outbox.data + at, g->outbox.len - at,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			at += (size_t)n;
		else if (errno == EAGAIN || errno == ENOBUFS)
			break;
		else if (errno != EINTR)
			g->gone = true;
	}
	buf_drop(&g->outbox, g->gone ? g->outbox.len : at);
}

/* Slots. ----------------------------------------------------------------------------------- */

static struct slot *find(struct guest *g, uint32_t id)
{
	for (size_t i = 0; i < g->used; i++)
		if ((g->slots[i].ctl >= 0 || g->slots[i].lost) && g->slots[i].id == id)
			return &g->slots[i];
	return NULL;
}

static struct slot *take_slot(struct guest *g)
{
	size_t i = 0;

	while (i < g->used && (g->slots[i].ctl >= 0 || g->slots[i].lost || g->slots[i].pid))
		i++;
	if (i == SLOTS)
		return NULL;
	if (i == g->used)
		g->used++;
	g->slots[i] = (struct slot){.ctl = -1};
	return &g->slots[i];
}

static void free_slot(struct guest *g, struct slot *s)
{
	if (!s->pack)
		g->execs--;
	s->lost = false;
	s->signals = 0;
	s->winsize = false;
	s->kill_by_ns = 0;
	cleanup_fd(&s->ctl);
	while (g->used && g->slots[g->used - 1].ctl < 0 && !g->slots[g->used - 1].lost &&
	       !g->slots[g->used - 1].pid)
		g->used--;
}

/* Closes every descriptor above 2 but those; `keep` is sorted in place. */
static void close_others(int *keep, size_t n)
{
	unsigned from = 3;

	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k && keep[k] < keep[k - 1]; k--) {
			int t = keep[k];

			keep[k] = keep[k - 1];
			keep[k - 1] = t;
		}
	for (size_t i = 0; i < n; i++) {
		if (keep[i] < 0)
			continue;
		if ((unsigned)keep[i] > from)
			(void)syscall(SYS_close_range, from, (unsigned)keep[i] - 1, 0u);
		from = (unsigned)keep[i] + 1;
	}
	(void)syscall(SYS_close_range, from, ~0u, 0u);
}

/* Forks the process behind a slot: 1 in the child with *ret_ctl, 0 in pid 1, or negative errno. */
static int fork_slot(struct slot *s, int *ret_ctl)
{
	int sv[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		int e = errno;

		(void)close(sv[0]);
		(void)close(sv[1]);
		return -e;
	}
	if (pid == 0) {
		*ret_ctl = sv[1];
		return 1;
	}
	(void)close(sv[1]);
	s->ctl = sv[0];
	s->pid = pid;
	return 0;
}

/* Requests. -------------------------------------------------------------------------------- */

static void start_exec(struct guest *g, const struct gm_exec *x, const int fds[FRAME_FDS_MAX])
{
	bool tty = x->flags & GX_TTY;
	struct slot *s;
	int ctl, r;

	if (g->ending) {
		emit_failed(g, x->id, ECANCELED, "shutdown");
		return;
	}
	if (find(g, x->id)) {
		emit_failed(g, x->id, EEXIST, "id");
		return;
	}
	if (fds[0] < 0 || fds[1] < 0 || (fds[2] < 0 && !tty)) {
		emit_failed(g, x->id, EBADF, "descriptors");
		return;
	}
	s = g->execs < EXECS_MAX ? take_slot(g) : NULL;
	if (!s) {
		emit_failed(g, x->id, EAGAIN, "limit");
		return;
	}
	r = fork_slot(s, &ctl);
	if (r < 0) {
		emit_failed(g, x->id, -r, "fork");
		return;
	}
	if (r == 1) {
		int keep[4] = {ctl, fds[0], fds[1], fds[2]};

		close_others(keep, ARRAY_LEN(keep));
		holder_run(ctl, x, fds);
	}
	s->id = x->id;
	g->execs++;
}

/* 0, or -EPROTO: the launcher is broken. */
static int on_exec(struct guest *g, struct view payload, const int fds[FRAME_FDS_MAX])
{
	struct gm_exec x;
	int r = gm_exec_get(payload, &x);

	if (r == 0)
		start_exec(g, &x, fds);
	else if (r == -ENOMEM)
		emit_failed(g, x.id, ENOMEM, "decode");
	gm_exec_done(&x);
	return r == -EPROTO ? r : 0;
}

static _Noreturn void run_packer(int ctl, int upper, int out)
{
	struct holder_msg m = {.type = HM_PACKED};
	struct pack_result res = {0};
	int keep[3] = {ctl, upper, out};
	int r, work;

	close_others(keep, ARRAY_LEN(keep));
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	work = open(GUEST_WORKSPACE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = pack_write(upper, work, out, &res);
	(void)close(out);
	m.a = (uint32_t)-r;
	m.n[0] = res.members;
	m.n[1] = res.unreadable;
	m.n[2] = res.shrunk;
	m.n[3] = res.left_out;
	(void)holder_say(ctl, &m);
	_exit(0);
}

static int on_pack(struct guest *g, struct view payload, const int fds[FRAME_FDS_MAX])
{
	struct gm_packed refused = {0};
	struct cursor c;
	struct slot *s = NULL;
	int ctl, r = 0;

	cursor_init(&c, payload.p, payload.n);
	refused.id = cursor_u32(&c);
	if (!cursor_end(&c))
		return -EPROTO;
	for (size_t i = 0; i < g->used; i++)
		if (g->slots[i].pack && g->slots[i].ctl >= 0 && !g->slots[i].said)
			r = -EBUSY;
	if (find(g, refused.id))
		r = -EEXIST;
	else if (fds[0] < 0 || g->upper < 0)
		r = -EBADF;
	else if (g->ending)
		r = -ECANCELED;
	else if (r == 0 && !(s = take_slot(g)))
		r = -EAGAIN;
	if (r == 0)
		r = fork_slot(s, &ctl);
	if (r == 1)
		run_packer(ctl, g->upper, fds[0]);
	if (r < 0) {
		refused.error = (uint32_t)-r;
		emit_packed(g, &refused);
		return 0;
	}
	s->id = refused.id;
	s->pack = true;
	return 0;
}

static int on_signal(struct guest *g, struct view payload)
{
	struct gm_signal m;
	struct slot *s;

	if (gm_signal_get(payload, &m) < 0)
		return -EPROTO;
	s = find(g, m.id);
	/* Unknown ids are no error: the exit event may be on its way. */
	if (!s || s->said)
		return 0;
	if (s->pack) {
		if (s->pid)
			(void)kill(s->pid, SIGKILL);
		return 0;
	}
	s->signals |= UINT64_C(1) << (m.signo - 1);
	if (m.signo == SIGKILL && !s->kill_by_ns) {
		/* The command may have stopped its holder. */
		if (s->pid)
			(void)kill(s->pid, SIGCONT);
		s->kill_by_ns = after_ms(KILL_GRACE_MS);
	}
	return 0;
}

static int on_winsize(struct guest *g, struct view payload)
{
	struct gm_winsize m;
	struct slot *s;

	if (gm_winsize_get(payload, &m) < 0)
		return -EPROTO;
	s = find(g, m.id);
	if (s && !s->pack) {
		s->winsize = true;
		s->rows = m.rows;
		s->cols = m.cols;
	}
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
		emit(g, GM_PONG, &b);
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

		if (g->gone || g->outbox.len >= OUTBOX_HIGH)
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

/* Holders. --------------------------------------------------------------------------------- */

static void start_sweep(struct guest *g)
{
	g->sweep = true;
	g->sweep_due_ns = 0;
	g->sweep_until_ns = after_ms(KILL_GRACE_MS);
	g->swept = 0;
}

static void on_holder_msg(struct guest *g, struct slot *s, const struct holder_msg *m)
{
	struct gm_exited x = {s->id, m->a, m->b, m->c, m->n[0], m->n[1]};
	struct gm_packed p = {s->id, m->a, m->n[0], m->n[1], m->n[2], m->n[3]};
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	switch (m->type) {
	case HM_STARTED:
		(void)buf_u32(&b, s->id);
		(void)buf_u32(&b, m->a);
		emit(g, GM_STARTED, &b);
		return;
	case HM_FAILED:
		emit_failed(g, s->id, (int)m->a, m->step);
		break;
	case HM_EXITED:
		emit_exited(g, &x);
		break;
	case HM_PACKED:
		emit_packed(g, &p);
		break;
	default:
		return;
	}
	s->said = true;
	if (m->orphans)
		start_sweep(g);
}

/* A holder is never gone before its last word unless somebody killed it. */
static void on_holder_end(struct guest *g, struct slot *s)
{
	struct gm_packed p = {.id = s->id, .error = ECANCELED};

	cleanup_fd(&s->ctl);
	if (s->said) {
		free_slot(g, s);
	} else if (s->pack) {
		emit_packed(g, &p);
		free_slot(g, s);
	} else {
		s->lost = true;
		start_sweep(g);
	}
}

static void hear_holder(struct guest *g, struct slot *s)
{
	struct holder_msg m;
	ssize_t n;

	do {
		n = recv(s->ctl, &m, sizeof(m), MSG_DONTWAIT);
		if (n == (ssize_t)sizeof(m) && !s->said)
			on_holder_msg(g, s, &m);
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n == 0 || errno != EAGAIN)
		on_holder_end(g, s);
}

static bool tell(int ctl, uint32_t type, uint32_t a, uint32_t b)
{
	struct holder_msg m = {.type = type, .a = a, .b = b};

	/* Full: poll says when there is room. Any other failure: its end is read next. */
	return send(ctl, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static void tell_holder(struct slot *s)
{
	if (s->winsize && tell(s->ctl, HM_WINSIZE, s->rows, s->cols))
		s->winsize = false;
	for (uint32_t sig = 1; s->signals && sig <= 64; sig++) {
		uint64_t bit = UINT64_C(1) << (sig - 1);

		if (!(s->signals & bit))
			continue;
		if (!tell(s->ctl, HM_SIGNAL, sig, 0))
			return;
		s->signals &= ~bit;
	}
}

/* What hangs directly below pid 1 without being a holder lost its holder: it is ended. ------- */

static void finish_lost(struct guest *g)
{
	for (size_t i = 0; i < g->used; i++) {
		struct slot *s = &g->slots[i];
		struct gm_exited x = {
		    .id = s->id, .signo = SIGKILL, .leftovers = (uint32_t)g->swept};

		if (!s->lost)
			continue;
		emit_exited(g, &x);
		free_slot(g, s);
	}
}

static void sweep(struct guest *g)
{
	_cleanup_pids_ struct pids ours = {.v = calloc(SLOTS, sizeof(pid_t))}, left = {0};
	int64_t now = clock_mono_ns();
	size_t n = 0;
	int r;

	/* A dying holder still has its children for a moment: one that is lost or has said all shields nothing. */
	if (!g->sweep || now < g->sweep_due_ns || !ours.v)
		return;
	for (size_t i = 0; i < g->used; i++)
		if (g->slots[i].pid && !g->slots[i].lost && !g->slots[i].said)
			ours.v[ours.n++] = g->slots[i].pid;
	pids_sort(&ours);
	r = tree_signal(getpid(), &ours, SIGKILL, &n);
	g->swept += n;
	if (r == 0)
		r = tree_living(getpid(), &ours, &left);
	g->sweep_due_ns = now + SWEEP_MS * NS_PER_MS;
	if (r < 0 || left.n == 0 || now > g->sweep_until_ns) {
		g->sweep = false;
		finish_lost(g);
	}
}

/* The loop. -------------------------------------------------------------------------------- */

/* False: no child is left at all. */
static bool reap(struct guest *g)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		for (size_t i = 0; i < g->used; i++)
			if (g->slots[i].pid == pid)
				g->slots[i].pid = 0;
	return pid == 0;
}

static void enforce_kills(struct guest *g)
{
	int64_t now = clock_mono_ns();

	for (size_t i = 0; i < g->used; i++) {
		struct slot *s = &g->slots[i];

		if (!s->kill_by_ns || s->said || s->lost || now < s->kill_by_ns)
			continue;
		if (s->pid)
			(void)kill(s->pid, SIGKILL);
		s->kill_by_ns = INT64_MAX;
	}
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
	for (size_t i = 0; i < g->used; i++)
		if (g->slots[i].kill_by_ns && !g->slots[i].said && g->slots[i].kill_by_ns < due)
			due = g->slots[i].kill_by_ns;
	return clock_poll_ms(due, clock_mono_ns());
}

static void wait_events(struct guest *g, bool more, struct pollfd *p)
{
	bool full = g->outbox.len >= OUTBOX_HIGH;
	int events = (full ? 0 : POLLIN) | (g->outbox.len ? POLLOUT : 0);

	p[0] = (struct pollfd){.fd = g->sigfd, .events = POLLIN};
	p[1] = (struct pollfd){.fd = g->gone ? -1 : g->chan.fd, .events = (short)events};
	for (size_t i = 0; i < g->used; i++) {
		const struct slot *s = &g->slots[i];

		events = (full ? 0 : POLLIN) | (s->signals || s->winsize ? POLLOUT : 0);
		/* A hang-up cannot be masked: without room for the event the slot must wait. */
		p[2 + i] = (struct pollfd){.fd = full ? -1 : s->ctl, .events = (short)events};
	}
	if (poll(p, 2 + g->used, wait_ms(g, more)) < 0)
		for (size_t i = 0; i < 2 + g->used; i++)
			p[i].revents = 0;
}

static void turn(struct guest *g, bool *more)
{
	struct pollfd p[2 + SLOTS];
	struct signalfd_siginfo si;
	size_t polled = g->used;

	wait_events(g, *more, p);
	if (p[0].revents)
		while (read(g->sigfd, &si, sizeof(si)) > 0)
			;
	/* A holder's last word is read before its number is free for another process. */
	for (size_t i = 0; i < polled; i++)
		if (p[2 + i].revents && g->slots[i].ctl >= 0 && g->outbox.len < OUTBOX_HIGH)
			hear_holder(g, &g->slots[i]);
	(void)reap(g);
	*more = hear_launcher(g);
	for (size_t i = 0; i < g->used; i++)
		if (g->slots[i].ctl >= 0 && (g->slots[i].signals || g->slots[i].winsize))
			tell_holder(&g->slots[i]);
	sweep(g);
	enforce_kills(g);
	flush(g);
	if (g->gone)
		begin_end(g);
}

/* Reaps until there is no child, killing what is left again and again. */
static void end_all(struct guest *g)
{
	struct pollfd p = {.fd = g->sigfd, .events = POLLIN};
	struct signalfd_siginfo si;

	while (reap(g)) {
		kill_everything();
		/* A child that ends while this runs has left its signal behind. */
		(void)poll(&p, 1, SWEEP_MS);
		(void)!read(g->sigfd, &si, sizeof(si));
	}
}

static int set_up(struct guest *g)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);
	sigset_t chld;

	/* musl gives an emptied size class's page back at once; one block held spares each event a mapping. */
	g->held = malloc(SMALL_BUF);
	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	g->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (g->sigfd < 0)
		return -errno;
	(void)buf_u32(&b, GUEST_PROTOCOL);
	emit(g, GM_READY, &b);
	flush(g);
	return 0;
}

int serve(int sock, int upper)
{
	static struct guest g;
	bool more = false;

	g.upper = upper;
	chan_init(&g.chan, sock, true);
	buf_init(&g.outbox, OUTBOX_MAX);
	if (set_up(&g) < 0)
		return 3;
	while (!g.ending || clock_mono_ns() < g.end_ns) {
		turn(&g, &more);
		if (g.ending && !reap(&g))
			break;
	}
	end_all(&g);
	for (size_t i = 0; i < g.used; i++)
		if (g.slots[i].ctl >= 0)
			hear_holder(&g, &g.slots[i]);
	finish_lost(&g);
	flush(&g);
	return g.broken ? 3 : 0;
}
