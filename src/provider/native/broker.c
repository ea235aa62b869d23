/*
 * Policy: between clients (the user's own programs) and a guest (foreign). Clients may ask for what
 * the permit table lists, with the number of descriptors it lists. Each command gets an id of
 * launch's own; an event is believed only if it fits the state of that id, and goes only to the client
 * that asked. A guest that says anything else, or more than was asked for, is killed: there is
 * no flood that fits the table. Not done here: output, which goes straight from the command's
 * pipe to whoever gave it.
 */
#include "provider/native/launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "wire/guest.h"

#define CLIENTS_MAX 32		 /* connections at once; more are closed at once */
#define JOBS_MAX (EXECS_MAX + 1) /* commands and one pack */
#define FRAMES_A_TURN 64	 /* of one peer, before the others have theirs */
#define GUEST_FRAME_MAX 256	 /* no event of a guest is longer */
#define SEND_WAIT_MS 1000	 /* a peer that reads nothing for so long is given up */
#define SHUTDOWN_WAIT_MS 1500	 /* asked to end; then killed */
#define SMALL_BUF 64		 /* the first capacity of a struct buf */
#define OWNER 0

enum job_state {
	JOB_FREE = 0,
	JOB_ASKED,
	JOB_STARTED,
};

struct job {
	enum job_state state;
	bool pack;
	int client; /* index, or -1: it has gone */
	uint32_t client_id, id;
};

struct client {
	struct chan ch; /* fd -1: free */
	bool ping;	/* one at a time */
	uint64_t nonce;
};

struct broker {
	struct launch *l;
	struct client clients[CLIENTS_MAX];
	struct job jobs[JOBS_MAX];
	uint32_t next_id, oom_told;
	bool guest_ready;
	int64_t kill_ns; /* INT64_MAX: no deadline */
	bool asked, killed;
	void *held;
};

static int64_t send_deadline(void)
{
	return clock_mono_ns() + SEND_WAIT_MS * NS_PER_MS;
}

static void kill_guest(struct broker *b)
{
	/* Safe because: the pidfd is pid 1's, and with pid 1 the kernel ends every process of the sandbox. */
	if (!b->killed)
		(void)syscall(SYS_pidfd_send_signal, b->l->pidfd, SIGKILL, NULL, 0);
	b->killed = true;
	b->kill_ns = INT64_MAX;
}

static void to_guest(struct broker *b, uint8_t type, const struct buf *p, const int *fds, size_t n)
{
	if (b->killed)
		return;
	/* Half a frame may be out: there is no way on with a guest that does not read. */
	if (p->err ||
	    chan_send(&b->l->guest, type, p->data, p->len, fds, n, send_deadline(), NULL) < 0)
		kill_guest(b);
}

static void ask_end(struct broker *b)
{
	const struct buf none = BUF_INIT(1);

	if (b->asked)
		return;
	b->asked = true;
	b->kill_ns = clock_mono_ns() + SHUTDOWN_WAIT_MS * NS_PER_MS;
	to_guest(b, GM_SHUTDOWN, &none, NULL, 0);
}

static void drop_client(struct broker *b, int i)
{
	chan_done(&b->clients[i].ch);
	b->clients[i] = (struct client){.ch.fd = -1};
	for (size_t j = 0; j < JOBS_MAX; j++) {
		_cleanup_buf_ struct buf p = BUF_INIT(64);
		struct job *job = &b->jobs[j];

		if (job->state == JOB_FREE || job->client != i)
			continue;
		/* Nobody would read its end or its output: what it runs is ended. */
		job->client = -1;
		(void)gm_signal_put(&p, &(struct gm_signal){.id = job->id, .signo = SIGKILL});
		to_guest(b, GM_SIGNAL, &p, NULL, 0);
	}
	/* FR-B164: the owner's end of the socket is the life line, whatever ended the owner. */
	if (i == OWNER && !b->l->plan.keep)
		kill_guest(b);
}

static void to_client(struct broker *b, int i, uint8_t type, const struct buf *p)
{
	if (i < 0 || b->clients[i].ch.fd < 0)
		return;
	if (p->err ||
	    chan_send(&b->clients[i].ch, type, p->data, p->len, NULL, 0, send_deadline(), NULL) < 0)
		drop_client(b, i);
}

static void tell_ready(struct broker *b, int i)
{
	const struct cgroup *cg = &b->l->cgroup;
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	uint32_t limits = 0;

	if (cg->in_force & (1u << CG_MEMORY))
		limits |= GR_MEMORY;
	if (cg->in_force & (1u << CG_PIDS))
		limits |= GR_PIDS;
	if (cg->in_force & (1u << CG_CPU))
		limits |= GR_CPU;
	if (cg->v2)
		limits |= GR_V2;
	(void)buf_u32(&p, GUEST_PROTOCOL);
	(void)buf_u32(&p, (uint32_t)b->l->landlock);
	(void)buf_u32(&p, limits);
	/* The pidfd lets the client see for itself that the sandbox has ended. */
	if (p.err || chan_send(&b->clients[i].ch, GM_READY, p.data, p.len, &b->l->pidfd, 1,
			       send_deadline(), NULL) < 0)
		drop_client(b, i);
}

/* Requests of clients. --------------------------------------------------------------------- */

static struct job *job_of(struct broker *b, int client, uint32_t client_id)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (b->jobs[i].state != JOB_FREE && b->jobs[i].client == client &&
		    b->jobs[i].client_id == client_id)
			return &b->jobs[i];
	return NULL;
}

static struct job *new_job(struct broker *b, int client, uint32_t client_id, bool pack)
{
	size_t execs = 0, packs = 0;
	struct job *found = NULL;

	for (size_t i = 0; i < JOBS_MAX; i++) {
		if (b->jobs[i].state == JOB_FREE)
			found = &b->jobs[i];
		else if (b->jobs[i].pack)
			packs++;
		else
			execs++;
	}
	if (!found || (pack ? packs >= 1 : execs >= EXECS_MAX))
		return NULL;
	*found = (struct job){JOB_ASKED, pack, client, client_id, b->next_id++};
	return found;
}

static void refuse(struct broker *b, int client, uint32_t id, bool pack, int error)
{
	_cleanup_buf_ struct buf p = BUF_INIT(128);
	struct gm_failed f = {.id = id, .error = (uint32_t)error, .step = "limit"};

	if (pack)
		(void)gm_packed_put(&p, &(struct gm_packed){.id = id, .error = (uint32_t)error});
	else
		(void)gm_failed_put(&p, &f);
	to_client(b, client, pack ? GM_PACKED : GM_FAILED, &p);
}

/* All handlers: 0, or -EPROTO when the client speaks nonsense and is dropped. */
static int on_exec(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(FRAME_MAX);
	struct gm_exec x;
	struct job *job;
	int r = gm_exec_get(v, &x);

	if (r == 0 && job_of(b, i, x.id)) {
		refuse(b, i, x.id, false, EEXIST);
	} else if (r == 0 && !(job = new_job(b, i, x.id, false))) {
		refuse(b, i, x.id, false, EAGAIN);
	} else if (r == 0) {
		x.id = job->id;
		(void)gm_exec_put(&p, &x);
		to_guest(b, GM_EXEC, &p, fds, 3);
	}
	gm_exec_done(&x);
	return r == -EPROTO ? r : 0;
}

static int on_pack(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct cursor c;
	struct job *job;
	uint32_t id;

	cursor_init(&c, v.p, v.n);
	id = cursor_u32(&c);
	if (!cursor_end(&c))
		return -EPROTO;
	job = job_of(b, i, id) ? NULL : new_job(b, i, id, true);
	if (!job) {
		refuse(b, i, id, true, EBUSY);
		return 0;
	}
	(void)buf_u32(&p, job->id);
	to_guest(b, GM_PACK, &p, fds, 1);
	return 0;
}

static int on_signal(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct gm_signal m;
	struct job *job;

	(void)fds;
	if (gm_signal_get(v, &m) < 0)
		return -EPROTO;
	job = job_of(b, i, m.id);
	if (!job)
		return 0;
	m.id = job->id;
	(void)gm_signal_put(&p, &m);
	to_guest(b, GM_SIGNAL, &p, NULL, 0);
	return 0;
}

static int on_winsize(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct gm_winsize m;
	struct job *job;

	(void)fds;
	if (gm_winsize_get(v, &m) < 0)
		return -EPROTO;
	job = job_of(b, i, m.id);
	if (!job || job->pack)
		return 0;
	m.id = job->id;
	(void)gm_winsize_put(&p, &m);
	to_guest(b, GM_WINSIZE, &p, NULL, 0);
	return 0;
}

static int on_shutdown(struct broker *b, int i, struct view v, const int *fds)
{
	(void)i;
	(void)fds;
	ask_end(b);
	return v.n ? -EPROTO : 0;
}

static int on_ping(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct client *cl = &b->clients[i];
	struct cursor c;
	uint64_t nonce;

	(void)fds;
	cursor_init(&c, v.p, v.n);
	nonce = cursor_u64(&c);
	if (!cursor_end(&c) || cl->ping)
		return -EPROTO;
	cl->ping = true;
	cl->nonce = nonce;
	(void)buf_u64(&p, (uint64_t)i);
	to_guest(b, GM_PING, &p, NULL, 0);
	return 0;
}

static const struct permit {
	uint8_t type, fds;
	int (*run)(struct broker *b, int client, struct view v, const int *fds);
} permits[] = {
    {GM_EXEC, 3, on_exec}, {GM_SIGNAL, 0, on_signal},	  {GM_WINSIZE, 0, on_winsize},
    {GM_PACK, 1, on_pack}, {GM_SHUTDOWN, 0, on_shutdown}, {GM_PING, 0, on_ping},
};

static int dispatch(struct broker *b, int i, const struct frame *f, int fds[FRAME_FDS_MAX])
{
	int r = -EPROTO;

	for (size_t k = 0; k < ARRAY_LEN(permits); k++)
		if (permits[k].type == f->type && permits[k].fds == f->nfds)
			r = permits[k].run(b, i, f->payload, fds);
	for (size_t k = 0; k < FRAME_FDS_MAX; k++)
		cleanup_fd(&fds[k]);
	return r;
}

static void hear_client(struct broker *b, int i)
{
	int fds[FRAME_FDS_MAX];
	struct frame f;

	for (int n = 0; n < FRAMES_A_TURN && b->clients[i].ch.fd >= 0; n++) {
		int r = chan_recv(&b->clients[i].ch, 0, &f, fds, NULL);

		if (r == -EAGAIN)
			return;
		if (r <= 0 || dispatch(b, i, &f, fds) < 0) {
			drop_client(b, i);
			return;
		}
	}
}

/* Safe because: the socket lies in a directory of mode 0700, and the peer must be the same user. */
static void accept_client(struct broker *b)
{
	int fd = accept4(b->l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (fd < 0)
		return;
	for (int i = OWNER + 1; i < CLIENTS_MAX; i++) {
		if (b->clients[i].ch.fd >= 0)
			continue;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0 || cred.uid != geteuid())
			break;
		chan_init(&b->clients[i].ch, fd, true);
		tell_ready(b, i);
		return;
	}
	cleanup_fd(&fd);
}

/* Events of the guest. --------------------------------------------------------------------- */

static struct job *job_by_id(struct broker *b, uint32_t id)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (b->jobs[i].state != JOB_FREE && b->jobs[i].id == id)
			return &b->jobs[i];
	return NULL;
}

static void tell_oom(struct broker *b, int client)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	uint32_t n = cgroup_oom_kills(&b->l->cgroup);

	if (n == b->oom_told)
		return;
	b->oom_told = n;
	(void)buf_u32(&p, n);
	to_client(b, client, GM_OOM, &p);
}

static int on_ready(struct broker *b, struct view v)
{
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	if (b->guest_ready || cursor_u32(&c) != GUEST_PROTOCOL || !cursor_end(&c))
		return -EPROTO;
	b->guest_ready = true;
	b->kill_ns = b->asked ? b->kill_ns : INT64_MAX;
	return 0;
}

static int on_pong(struct broker *b, struct view v)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct cursor c;
	uint64_t i;

	cursor_init(&c, v.p, v.n);
	i = cursor_u64(&c);
	if (!cursor_end(&c) || i >= CLIENTS_MAX)
		return -EPROTO;
	/* The client may have gone, and another may sit in its place without having asked. */
	if (!b->clients[i].ping)
		return 0;
	b->clients[i].ping = false;
	(void)buf_u64(&p, b->clients[i].nonce);
	to_client(b, (int)i, GM_PONG, &p);
	return 0;
}

static int on_started(struct broker *b, struct view v)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct cursor c;
	struct job *job;
	uint32_t pid;

	cursor_init(&c, v.p, v.n);
	job = job_by_id(b, cursor_u32(&c));
	pid = cursor_u32(&c);
	if (!cursor_end(&c) || !job || job->pack || job->state != JOB_ASKED)
		return -EPROTO;
	job->state = JOB_STARTED;
	(void)buf_u32(&p, job->client_id);
	(void)buf_u32(&p, pid);
	to_client(b, job->client, GM_STARTED, &p);
	return 0;
}

/* The three last events of an id: decoded, judged, encoded anew. */
static int on_last(struct broker *b, uint8_t type, struct view v)
{
	_cleanup_buf_ struct buf p = BUF_INIT(512);
	struct gm_exited x;
	struct gm_failed f;
	struct gm_packed k;
	struct job *job, done;
	int r;

	r = type == GM_EXITED	? gm_exited_get(v, &x)
	    : type == GM_FAILED ? gm_failed_get(v, &f)
				: gm_packed_get(v, &k);
	if (r < 0)
		return r;
	job = job_by_id(b, type == GM_EXITED ? x.id : type == GM_FAILED ? f.id : k.id);
	if (!job || job->pack != (type == GM_PACKED) ||
	    (type == GM_EXITED && job->state != JOB_STARTED))
		return -EPROTO;
	done = *job;
	*job = (struct job){.state = JOB_FREE};
	if (type == GM_EXITED) {
		tell_oom(b, done.client);
		x.id = done.client_id;
		(void)gm_exited_put(&p, &x);
	} else if (type == GM_FAILED) {
		f.id = done.client_id;
		(void)gm_failed_put(&p, &f);
	} else {
		k.id = done.client_id;
		(void)gm_packed_put(&p, &k);
	}
	to_client(b, done.client, type, &p);
	return 0;
}

static int on_event(struct broker *b, const struct frame *f)
{
	if (f->payload.n > GUEST_FRAME_MAX || f->nfds || (f->type == GM_READY) == b->guest_ready)
		return -EPROTO;
	switch (f->type) {
	case GM_READY:
		return on_ready(b, f->payload);
	case GM_PONG:
		return on_pong(b, f->payload);
	case GM_STARTED:
		return on_started(b, f->payload);
	case GM_EXITED:
	case GM_FAILED:
	case GM_PACKED:
		return on_last(b, f->type, f->payload);
	default:
		return -EPROTO;
	}
}

/* False: the guest's side is over, by end of stream or by nonsense. */
static bool hear_guest(struct broker *b)
{
	struct frame f;

	for (int n = 0; n < FRAMES_A_TURN; n++) {
		int r = chan_recv(&b->l->guest, 0, &f, NULL, NULL);

		if (r == -EAGAIN)
			return true;
		if (r <= 0 || on_event(b, &f) < 0)
			return false;
	}
	return true;
}

static void tell_ended(struct broker *b, int status)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);

	(void)buf_u32(&p, (uint32_t)status);
	for (int i = 0; i < CLIENTS_MAX; i++)
		to_client(b, i, GM_ENDED, &p);
}

static int reap(struct broker *b)
{
	siginfo_t si = {0};

	/* The pidfd is readable only once every process of the pid namespace is gone. */
	while (waitid(P_PIDFD, (id_t)b->l->pidfd, &si, WEXITED) < 0 && errno == EINTR)
		;
	return si.si_code == CLD_EXITED ? si.si_status << 8 : si.si_status;
}

/* One turn; true when the guest has ended. */
static bool turn(struct broker *b, bool *guest_open)
{
	struct pollfd p[CLIENTS_MAX + 3];
	bool ended;

	for (int i = 0; i < CLIENTS_MAX; i++)
		p[i] = (struct pollfd){.fd = b->clients[i].ch.fd, .events = POLLIN};
	p[CLIENTS_MAX] = (struct pollfd){.fd = b->l->listen_fd, .events = POLLIN};
	p[CLIENTS_MAX + 1] =
	    (struct pollfd){.fd = *guest_open ? b->l->guest.fd : -1, .events = POLLIN};
	p[CLIENTS_MAX + 2] = (struct pollfd){.fd = b->l->pidfd, .events = POLLIN};
	if (poll(p, ARRAY_LEN(p), clock_poll_ms(b->kill_ns, clock_mono_ns())) < 0)
		return false;
	ended = p[CLIENTS_MAX + 2].revents;
	/* Events first: the last ones of a guest that has just ended belong to somebody. */
	while (*guest_open && (p[CLIENTS_MAX + 1].revents || ended)) {
		*guest_open = hear_guest(b);
		if (!*guest_open)
			kill_guest(b);
		if (!ended)
			break;
	}
	if (ended)
		return true;
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (p[i].revents && b->clients[i].ch.fd >= 0)
			hear_client(b, i);
	if (p[CLIENTS_MAX].revents)
		accept_client(b);
	if (clock_mono_ns() >= b->kill_ns)
		kill_guest(b);
	return false;
}

int broker_run(struct launch *l)
{
	struct broker *b = calloc(1, sizeof(*b));
	bool guest_open = true;
	int status;

	if (!b)
		return -ENOMEM;
	b->l = l;
	/*
	 * musl gives the page of an empty size class back at once, and each small buffer would cost a mapping: one
	 * that is held keeps the class.
	 */
	b->held = malloc(SMALL_BUF);
	b->next_id = 1;
	b->kill_ns = clock_mono_ns() + START_TIMEOUT_MS * NS_PER_MS;
	for (int i = 0; i < CLIENTS_MAX; i++)
		b->clients[i].ch.fd = -1;
	b->clients[OWNER].ch = l->owner;
	l->owner = (struct chan){.fd = -1};
	/*
	 * The guest has been started: its execve has happened. What the owner asks for meanwhile waits in the guest's
	 * socket; a guest that does not get ready, or is of another version, is killed.
	 */
	tell_ready(b, OWNER);
	launch_settle(l);
	while (!turn(b, &guest_open))
		;
	status = reap(b);
	tell_ended(b, status);
	/* The end of the process gives back the rest: to unmap it piece by piece keeps the owner waiting. */
	return status;
}
