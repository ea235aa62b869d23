#include "guest/front.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lazy.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest/fork.h"
#include "guest/front_base.h"
#include "guest/front_internal.h"
#include "guest/front_lock.h"
#include "guest/land.h"
#include "guest/serve.h"
#include "guest/tree.h"
#include "guest/vouch.h"
#include "wire/guest.h"
#include "wire/remote.h"

#define SEND_MS 10000
#define LAST_WORD_MS 2000
#define STUCK_S 30 /* beyond REMOTE_SILENT_MS: its own loop must be stuck then */

enum { P_SIGNAL, P_SERVE, P_BOX, P_WORKER, P_JOIN, P_MUX = P_JOIN + FRONT_JOIN_FDS };

/* What takes long is a process's own: this one goes on hearing, and giving signs of life. */
struct worker_said {
	int error;
	struct rm_cleaned cleaned;
	struct rm_index index;
	char what[RM_WHAT_MAX + 1];
};

void front_put(struct front *f, uint8_t type, const struct buf *b)
{
	if (b->err || mux_put(&f->mux, type, b->data, b->len) < 0)
		f->gone = true;
}

/* Nothing follows. */
void front_fault(struct front *f, int error, const char *what)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	(void)rm_fault_put(&b, (uint32_t)(error < 0 ? -error : error), what);
	front_put(f, RM_FAULT, &b);
	f->said_fault = f->ending = true;
}

static void hello(struct front *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	struct utsname u = {0};

	(void)uname(&u);
	(void)buf_u32(&b, REMOTE_PROTOCOL);
	(void)buf_u32(&b, (uint32_t)geteuid());
	(void)buf_str(&b, u.nodename);
	front_put(f, RM_HELLO, &b);
}

/* Workers. ------------------------------------------------------------------------------------ */

/* The stream is the front's alone: its end must be its end. */
static void leave_stream(void)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		(void)dup2(null, fd);
}

/* in: of a landing; -1: m is to be removed. */
static _Noreturn void run_worker(struct front *f, int ctl, int in, int want,
				 const struct rm_open *m)
{
	struct worker_said said = {0};
	struct err e = ERR_INIT;

	leave_stream();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (in >= 0) {
		fork_close((int[]){ctl, in, want, f->place.run}, 4);
		said.error = -land(in, want, f->place.run, f->place.owner, &e);
		(void)snprintf(said.what, sizeof(said.what), "%.*s", RM_WHAT_MAX, e.text);
		if (front_place_full(said.error) && front_place_room(&f->place)) {
			said.error = EAGAIN;
			(void)snprintf(said.what, sizeof(said.what), REMOTE_MADE_ROOM " it");
		}
		if (!said.error)
			(void)vouch_sum(f->place.run, "index", said.index.sum);
	} else {
		fork_close((int[]){ctl, f->place.programs}, 2);
		said.error = m->flags & RO_CLEAN
				 ? -front_place_clean(&f->place, m->root, &said.cleaned, said.what)
				 : -front_place_open(&f->place, m, said.what);
	}
	(void)send(ctl, &said, sizeof(said), MSG_NOSIGNAL);
	(void)close(ctl);
	if (in >= 0 && !said.error) {
		land_flush(f->place.run);
		front_base_thin(f->place.run);
	}
	_exit(0);
}

static void start_worker(struct front *f, int in, int want, const struct rm_open *m)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0) {
		front_fault(f, errno, "start a worker");
		return;
	}
	f->worker_ctl = sv[0];
	f->worker = fork();
	if (f->worker == 0)
		run_worker(f, sv[1], in, want, m);
	(void)close(sv[1]);
	if (f->worker < 0)
		front_fault(f, errno, "start a worker");
}

static void removed(struct front *f, const struct worker_said *said)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (said->error) {
		front_fault(f, said->error, said->what);
		return;
	}
	(void)rm_cleaned_put(&b, &said->cleaned);
	front_put(f, RM_REMOVED, &b);
	f->ending = true;
}

static void landed(struct front *f, const struct worker_said *said)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	int error = said->error ? said->error : -front_place_landed(&f->place);

	(void)rm_landed_put(&b, (uint32_t)error, said->what, &said->index);
	front_put(f, RM_LANDED, &b);
	mux_end_group(&f->mux, f->land_id);
}

static void hear_worker(struct front *f)
{
	struct worker_said said = {0};
	ssize_t n = recv(f->worker_ctl, &said, sizeof(said), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	cleanup_fd(&f->worker_ctl);
	if (n != (ssize_t)sizeof(said))
		said.error = ECANCELED;
	said.what[RM_WHAT_MAX] = '\0';
	if (f->land_id)
		landed(f, &said);
	else
		removed(f, &said);
}

/* Requests before the start. ----------------------------------------------------------------- */

static int open_place(struct front *f, const struct rm_open *m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);
	char what[RM_WHAT_MAX + 1] = "";
	int r = front_place_open(&f->place, m, what);

	if (r < 0) {
		front_fault(f, r, what);
		return 0;
	}
	(void)buf_u32(&b, f->place.pack.index >= 0 || f->place.alone >= 0);
	front_put(f, RM_OPENED, &b);
	return 0;
}

static int on_open(struct front *f, struct view v)
{
	struct rm_open m;
	int r = f->opened ? -EPROTO : rm_open_get(v, &m);

	if (r < 0)
		return r;
	f->opened = true;
	if (m.flags & RO_REMOVE)
		start_worker(f, -1, -1, &m);
	else
		r = open_place(f, &m);
	rm_open_done(&m);
	return r;
}

static int on_land(struct front *f, struct view v)
{
	_cleanup_free_ char *base = NULL;
	int fds[2] = {-1, -1}, r = -EPROTO;
	struct rm_index index = {0};
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	f->land_id = cursor_u32(&c);
	base = cursor_strdup(&c, RM_BASE_MAX);
	if (c.left == sizeof(index.sum))
		memcpy(index.sum, c.p, sizeof(index.sum));
	if (base && !c.failed && c.left == sizeof(index.sum) && rm_base_fits(base) && f->land_id &&
	    f->place.run >= 0 && f->worker_ctl < 0 && f->place.pack.index < 0 &&
	    mux_take_peers(&f->mux, f->land_id, fds, 2) == 2) {
		front_base_take(f->place.run, base, &index);
		start_worker(f, fds[0], fds[1], NULL);
		r = 0;
	}
	cleanup_fd(&fds[0]);
	cleanup_fd(&fds[1]);
	return r;
}

static _Noreturn void run_serve(struct front *f, int sock)
{
	leave_stream();
	fork_close((int[]){sock, f->place.pack.tree, f->place.pack.index, f->place.lock}, 4);
	_exit(serve(sock, &f->place.pack));
}

static int on_start(struct front *f, struct view v)
{
	int sv[2];

	if (v.n || f->serve_pid || (f->place.pack.index < 0 && f->place.alone < 0) ||
	    f->worker_ctl >= 0)
		return -EPROTO;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0) {
		front_fault(f, errno, "start");
		return 0;
	}
	f->serve_pid = fork();
	if (f->serve_pid == 0)
		run_serve(f, sv[1]);
	(void)close(sv[1]);
	chan_init(&f->serve, sv[0], false);
	if (f->serve_pid < 0)
		front_fault(f, errno, "start");
	else
		(void)front_lock_sign(f->place.lock, f->serve_pid);
	return 0;
}

/* Commands. ---------------------------------------------------------------------------------- */

static void to_serve(struct front *f, uint8_t type, struct view v, const int *fds, size_t n)
{
	int64_t until = clock_mono_ns() + SEND_MS * NS_PER_MS;
	struct chan *to = f->box.up ? &f->box.ch : &f->serve;

	if (to->fd < 0 || chan_send(to, type, v.p, v.n, fds, n, until, NULL) < 0)
		f->ending = true;
}

static bool has_name(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return true;
	return false;
}

/* What is true on this machine alone. */
static int add_own(char ***env)
{
	static const char *const names[] = {"PATH",
					    "HOME",
					    "USER",
					    "LOGNAME",
					    "SHELL",
					    "TMPDIR",
					    "XDG_CONFIG_HOME",
					    "XDG_CACHE_HOME",
					    "XDG_DATA_HOME",
					    "XDG_STATE_HOME",
					    "XDG_RUNTIME_DIR"};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);
		_cleanup_buf_ struct buf b = BUF_INIT(ENV_VALUE_MAX);

		if (!value || has_name(*env, names[i]))
			continue;
		(void)buf_putf(&b, "%s=%s", names[i], value);
		r = b.err ? b.err : strv_add(env, buf_text(&b));
	}
	return r;
}

static int on_exec(struct front *f, struct view v)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	int fds[3] = {-1, -1, -1}, r;
	struct gm_exec x;
	size_t n;

	r = gm_exec_get(v, &x);
	if (r == 0) {
		n = mux_take_peers(&f->mux, x.id, fds, 3);
		/* A sandbox gets what airlock says alone. More variables than a command may have are left as they came. */
		if (f->box.up || add_own(&x.env) < 0 || gm_exec_put(&b, &x) < 0)
			(void)(buf_reset(&b), buf_put(&b, v.p, v.n));
		to_serve(f, GM_EXEC, (struct view){b.data, b.len}, fds, n);
		for (size_t i = 0; i < 3; i++)
			cleanup_fd(&fds[i]);
	}
	gm_exec_done(&x);
	return r;
}

static int on_pack(struct front *f, struct view v)
{
	int fd = -1;
	struct cursor c;
	uint32_t id;

	cursor_init(&c, v.p, v.n);
	id = cursor_u32(&c);
	if (!cursor_end(&c))
		return -EPROTO;
	to_serve(f, GM_PACK, v, &fd, mux_take_peers(&f->mux, id, &fd, 1));
	cleanup_fd(&fd);
	return 0;
}

/* Once, and before it nothing is asked of a sandbox that is on its way. */
static int on_box(struct front *f, struct view v)
{
	char what[RM_WHAT_MAX + 1] = "";
	int r = f->box.pid ? -EPROTO : front_box_start(&f->box, &f->place, v, what);

	if (r < 0 && r != -EPROTO) {
		front_fault(f, r, what);
		r = 0;
	}
	return r;
}

static int on_request(struct front *f, const struct frame *m)
{
	switch (m->type) {
	case RM_OPEN:
		return on_open(f, m->payload);
	case RM_LAND:
		return on_land(f, m->payload);
	case RM_START:
		return on_start(f, m->payload);
	case RM_ATTACH:
		return front_attach(f, m->payload);
	case GM_SHUTDOWN:
		f->ending = true;
		return 0;
	default:
		break;
	}
	if (!f->serve_pid || (f->box.pid && !f->box.up))
		return -EPROTO;
	switch (m->type) {
	case RM_BOX:
		return on_box(f, m->payload);
	case RM_HOLD:
		return front_hold(f, m->payload);
	case GM_EXEC:
		return on_exec(f, m->payload);
	case GM_PACK:
		return on_pack(f, m->payload);
	case GM_SIGNAL:
	case GM_WINSIZE:
	case GM_PING:
		to_serve(f, m->type, m->payload, NULL, 0);
		return 0;
	default:
		return -EPROTO;
	}
}

static void hear_stream(struct front *f)
{
	struct frame m;
	int r = 0;

	while (!f->ending && r == 0 && (r = mux_next(&f->mux, &m)) > 0)
		r = on_request(f, &m);
	if (r < 0) {
		f->gone = true;
		f->status = 3;
	}
}

/* One event of serve() or the launcher. The last one of a command waits for the command's output. */
static void on_event(struct front *f, const struct frame *m)
{
	int64_t until = clock_mono_ns() + DRAIN_GRACE_MS * NS_PER_MS;
	struct buf b = {.data = (char *)(uintptr_t)m->payload.p, .len = m->payload.n};
	struct cursor c;

	cursor_init(&c, m->payload.p, m->payload.n);
	if (m->type != GM_EXITED && m->type != GM_FAILED && m->type != GM_PACKED)
		front_put(f, m->type, &b);
	else if (mux_hold(&f->mux, cursor_u32(&c), m->type, m->payload, until) < 0)
		f->gone = true;
}

static void hear_serve(struct front *f)
{
	struct frame m;
	int r;

	while ((r = chan_recv(&f->serve, 0, &m, NULL, NULL)) > 0)
		on_event(f, &m);
	if (r != -EAGAIN) {
		chan_done(&f->serve);
		f->ending = true;
	}
}

/* False: it is no answer. */
static bool hear_box_first(struct front *f, const struct frame *m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2048);
	uint8_t type;

	if (!front_box_answer(&f->box, m, &type, &b))
		return false;
	front_put(f, type, &b);
	return true;
}

/* Its end is that of everything: nobody is to run on what the sandbox was. */
static void hear_box(struct front *f)
{
	struct frame m;
	int r;

	while ((r = chan_recv(&f->box.ch, 0, &m, NULL, NULL)) > 0) {
		if (f->box.up && m.type != GM_ENDED)
			on_event(f, &m);
		else if (f->box.up || !hear_box_first(f, &m))
			break;
	}
	if (r == -EAGAIN)
		return;
	chan_done(&f->box.ch);
	if (!f->box.up && !f->ending)
		front_fault(f, r < 0 ? r : EPIPE, "start the launcher of the sandbox");
	f->ending = true;
}

static void say_due(struct front *f)
{
	struct buf b;
	uint8_t type;

	while (mux_due(&f->mux, clock_mono_ns(), &type, &b)) {
		front_put(f, type, &b);
		buf_done(&b);
	}
}

/* The loop. ---------------------------------------------------------------------------------- */

/*
 * The deadline for silence holds even if this process hangs in a call of its own (a file system that does not answer): the kernel
 * ends it then, and serve() ends the rest. 0: it is at its end.
 */
static void watch_self(struct front *f, int64_t now)
{
	if (f->ending) {
		(void)alarm(0);
	} else if (now >= f->watched_ns) {
		f->watched_ns = now + NS_PER_S;
		(void)alarm(REMOTE_SILENT_MS / 1000 + STUCK_S);
	}
}

/* False: no child is left. */
static bool reap(struct front *f)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		if (pid == f->serve_pid) {
			f->serve_pid = -1;
			f->ending = true;
		} else if (pid == f->box.pid) {
			f->box.pid = -1;
		} else if (pid == f->worker) {
			f->worker = -1;
		}
	}
	return pid == 0;
}

static void hear_signals(struct front *f)
{
	struct signalfd_siginfo si;

	while (read(f->sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo == SIGHUP)
			front_lose(f);
		else if (si.ssi_signo != SIGCHLD)
			f->ending = true;
	}
	(void)reap(f);
}

static int wait_ms(const struct front *f)
{
	int64_t due = f->mux.heard_ns + REMOTE_SILENT_MS * NS_PER_MS, held = mux_due_ns(&f->mux);
	int64_t say = mux_alive_ns(&f->mux);

	if (f->mux.away || f->mux.eof)
		due = front_away_ns(f, clock_mono_ns());
	due = held < due ? held : due;
	return clock_poll_ms(say < due ? say : due, clock_mono_ns());
}

static void turn(struct front *f, int ms)
{
	struct pollfd p[P_MUX + MUX_FDS];
	size_t n;

	p[P_SIGNAL] = (struct pollfd){.fd = f->sigfd, .events = POLLIN};
	p[P_SERVE] = (struct pollfd){.fd = mux_roomy(&f->mux) ? f->serve.fd : -1, .events = POLLIN};
	p[P_BOX] = (struct pollfd){.fd = mux_roomy(&f->mux) ? f->box.ch.fd : -1, .events = POLLIN};
	p[P_WORKER] = (struct pollfd){.fd = f->worker_ctl, .events = POLLIN};
	front_join_poll(&f->join, p + P_JOIN);
	n = mux_poll(&f->mux, p + P_MUX);
	if (f->gone)
		for (size_t i = P_MUX; i < P_MUX + n; i++)
			p[i].fd = -1;
	if (poll(p, P_MUX + n, ms) < 0)
		return;
	if (p[P_SIGNAL].revents)
		hear_signals(f);
	if (!f->gone && mux_run(&f->mux, p + P_MUX, n) < 0)
		front_lose(f);
	if (!f->gone)
		hear_stream(f);
	if (p[P_SERVE].revents)
		hear_serve(f);
	if (p[P_BOX].revents)
		hear_box(f);
	if (p[P_WORKER].revents)
		hear_worker(f);
	say_due(f);
	if (!f->gone)
		mux_alive(&f->mux, clock_mono_ns());
	front_judge(f, clock_mono_ns());
	front_hear_join(f, p + P_JOIN);
	f->ending |= f->gone;
	watch_self(f, clock_mono_ns());
}

/* serve() ends its own; what its death or a landing left is ended here. */
static void end_all(struct front *f)
{
	int64_t until = clock_mono_ns() + KILL_GRACE_MS * NS_PER_MS;

	if (f->worker > 0)
		(void)kill(f->worker, SIGKILL);
	chan_done(&f->serve);
	chan_done(&f->box.ch);
	/* serve() itself gives up after KILL_GRACE_MS on what cannot be killed; the launcher kills at once. */
	while ((f->serve_pid > 0 || f->box.pid > 0) &&
	       clock_mono_ns() < until + KILL_GRACE_MS * NS_PER_MS)
		turn(f, 50);
	until = clock_mono_ns() + KILL_GRACE_MS * NS_PER_MS;
	while (reap(f) && clock_mono_ns() < until) {
		(void)tree_signal(getpid(), NULL, SIGKILL, NULL);
		turn(f, 10);
	}
	if (reap(f))
		f->survivors = true;
}

static void last_word(struct front *f)
{
	int64_t until = clock_mono_ns() + LAST_WORD_MS * NS_PER_MS;
	struct buf none = BUF_INIT(0);

	say_due(f);
	/* "Every process has ended" is said only where it is true. */
	if (!f->survivors)
		front_put(f, RM_ENDED, &none);
	while (!f->gone && !f->mux.away && f->mux.tx.len > f->mux.tx_off && clock_mono_ns() < until)
		turn(f, 50);
}

int front(void)
{
	static LAZY_BSS struct front f;
	sigset_t set;

	f.sigfd = f.worker_ctl = f.serve.fd = -1;
	front_box_init(&f.box);
	front_place_init(&f.place);
	front_join_init(&f.join);
	mux_init(&f.mux, STDIN_FILENO, STDOUT_FILENO, false);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGHUP);
	(void)sigaddset(&set, SIGINT);
	f.sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (f.sigfd < 0)
		return 3;
	/* Every signal is blocked: this one is to end us. */
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGALRM);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	hello(&f);
	while (!f.ending)
		turn(&f, wait_ms(&f));
	end_all(&f);
	front_join_done(&f.join);
	last_word(&f);
	return f.status;
}
