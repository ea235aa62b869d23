/*
 * The life of airlock-bridge: take the set-up from the parent, resolve, confine, serve one channel, end.
 *
 * Policy: door 2. The process holds the run's credential, one channel into the sandbox and one origin. It is
 * confined before it reads the first byte of the channel: no file can be opened (queue: only below one directory), no
 * program started, no socket but a stream socket of the upstream's family, and TCP only to its port. It ends with its
 * parent. Not done here: starting the gateway, writing the record (engine).
 */
#include "bridge/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "bridge/audit.h"
#include "bridge/bridge_proto.h"
#include "bridge/h1server.h"
#include "bridge/h2server.h"
#include "bridge/lastword.h"
#include "bridge/queueserver.h"
#include "bridge/ready.h"
#include "os/chan.h"
#include "os/confine.h"
#include "os/gate.h"
#include "os/seccomp.h"

#define DATA_MAX       \
	(UINT64_C(112) \
	 << 20) /* private memory: 64 MiB at the limits, and what malloc cannot give back */
#define NOFILE (3 * BRIDGE_STREAMS_MAX)
#define SEND_MS 1000
#define READ_CHUNK 16384
#define AUDIT_WAIT_MS 250   /* how long a line may wait for others */
#define AUDIT_LATER_MS 1000 /* until a write that failed, or a count, is looked at again */

struct host {
	struct loop loop;
	struct chan ctl;
	struct loop_watch ctl_watch, in_watch;
	struct bridge bridge;
	struct bridge_policy *policy;
	struct h2server *h2;
	struct h1server *h1;
	struct queueserver *queue;
	int queue_root;		      /* borrowed from queue */
	struct bridge_shared *shared; /* mapped, or &own */
	struct bridge_shared *own;    /* owned, or NULL */
	struct ready ready;
	int in, out, listener; /* owned until the server takes them */
	bool ready_said;       /* of a queue */
	struct lastword last;  /* of the direct way */
	struct audit audit;
	int64_t audit_by_ns; /* lines wait for a common write until then; INT64_MAX: none waits */
	char run_id[BRIDGE_IDENTITY_MAX + 1], name[UPSTREAM_NAME_MAX + 1];
	char *credential_header; /* owned, or NULL */
	unsigned streams_max;
	int64_t ready_by_ns; /* INT64_MAX: not waiting */
	int64_t stop_by_ns;  /* INT64_MAX: not stopping */
	bool lost, done, without_landlock, without_seccomp;
	struct err err;
};

static int say(struct host *h, uint8_t type, const struct buf *b)
{
	return chan_send(&h->ctl, type, b ? b->data : NULL, b ? b->len : 0, NULL, 0,
			 clock_mono_ns() + SEND_MS * NS_PER_MS, NULL);
}

static void say_text(struct host *h, uint8_t type, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	(void)buf_str(&b, text);
	(void)say(h, type, &b);
}

static void say_error(struct host *h, const struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	(void)buf_u32(&b, (uint32_t)e->code);
	(void)buf_str(&b, e->text);
	(void)say(h, BF_ERROR, &b);
}

static void close_audit(struct host *h)
{
	audit_close(&h->audit);
	if (h->bridge.counts)
		h->bridge.counts->audit_lost += h->audit.lost;
	h->audit.lost = 0;
}

static void free_servers(struct host *h)
{
	if (h->h2)
		h2server_free(h->h2);
	h->h2 = NULL;
	if (h->h1)
		h1server_free(h->h1);
	h->h1 = NULL;
	if (h->queue)
		queueserver_free(h->queue);
	h->queue = NULL;
}

static void finish(struct host *h)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);

	if (h->done)
		return;
	h->done = h->loop.stop = true;
	free_servers(h);
	close_audit(h);
	(void)bridge_put_counts(&b, h->bridge.counts);
	(void)say(h, BF_DONE, &b);
}

/* The channel is over; the process stays until it is told to stop, so that its counts are not lost. */
static void lose(struct host *h, const char *why)
{
	if (h->lost)
		return;
	h->lost = true;
	h->ready_by_ns = INT64_MAX;
	loop_del(&h->loop, &h->in_watch);
	if (h->h2)
		h2server_free(h->h2);
	h->h2 = NULL;
	if (h->out != h->in)
		cleanup_fd(&h->out);
	h->out = -1;
	cleanup_fd(&h->in);
	if (h->stop_by_ns == INT64_MAX)
		say_text(h, BF_LOST, why);
}

static struct audit_entry entry_of(const struct host *h, const struct exchange_audit *a)
{
	return (struct audit_entry){
	    .real_ns = a->began_ns,
	    .run = h->run_id,
	    .upstream = h->name,
	    .transport = a->transport,
	    .route_id = a->route,
	    .method = a->method,
	    .rule = a->rule,
	    .status = a->status,
	    .bytes_in = a->bytes_in,
	    .bytes_out = a->bytes_out,
	    .duration_ns = a->took_ns,
	    .forwarded = a->forwarded,
	    .flight = a->flight,
	};
}

static void audit(void *arg, const struct exchange_audit *a)
{
	struct host *h = arg;
	const struct audit_entry line = entry_of(h, a);
	int64_t by = clock_mono_ns() + AUDIT_WAIT_MS * NS_PER_MS;

	audit_add(&h->audit, &line);
	if (by < h->audit_by_ns)
		h->audit_by_ns = by;
}

static bool audit_out(void *arg, struct exchange_audit *a)
{
	struct host *h = arg;
	const struct audit_entry line = entry_of(h, a);

	return audit_begin(&h->audit, &line, &a->flight);
}

/* The channel. ----------------------------------------------------------------------------- */

static void begin_session(struct host *h)
{
	struct err e = ERR_INIT;
	int r;

	h->ready_by_ns = INT64_MAX;
	if (h->queue) {
		/* Its end is all that is still of interest there. */
		ready_done(&h->ready);
		h->ready_said = true;
		r = queueserver_begin(h->queue);
		if (r < 0)
			lose(h, "the queue cannot be watched");
		else
			(void)say(h, BF_READY, NULL);
		return;
	}
	if (h->listener >= 0) {
		r = h1server_new(&h->bridge, TAKE_FD(h->listener), h->last.words, LASTWORD_FDS,
				 &h->h1, &e);
		if (r < 0)
			lose(h, e.text);
		else
			(void)say(h, BF_READY, NULL);
		return;
	}
	loop_del(&h->loop, &h->in_watch);
	r = h2server_new(&h->bridge, h->in, h->out, h->streams_max, &h->h2, &e);
	/* Taken, also when it failed. */
	h->in = h->out = -1;
	if (r < 0) {
		lose(h, e.text);
		return;
	}
	(void)say(h, BF_READY, NULL);
	h2server_feed(h->h2, h->ready.in.data, h->ready.in.len);
	ready_done(&h->ready);
}

/* Before READY. Nothing is written to the channel until then. */
static void on_early(struct loop_watch *w, uint32_t events)
{
	struct host *h = (struct host *)(void *)((char *)w - offsetof(struct host, in_watch));
	char buf[READ_CHUNK];
	struct err e = ERR_INIT;
	ssize_t n = read(h->in, buf, sizeof(buf));
	int r;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		lose(h, h->ready_said ? "closed by the other end"
				      : "the gateway ended before it was ready");
		return;
	}
	if (h->ready_said)
		return;
	r = ready_feed(&h->ready, buf, (size_t)n, &e);
	if (r < 0)
		lose(h, e.text);
	else if (r > 0)
		begin_session(h);
}

static int watch_channel(struct host *h, struct err *e)
{
	int fl = fcntl(h->in, F_GETFL), r;

	if (fl < 0 || fcntl(h->in, F_SETFL, fl | O_NONBLOCK) < 0)
		return err_sys(e, errno, "bridge channel");
	r = loop_add(&h->loop, &h->in_watch, h->in, EPOLLIN, on_early);
	if (r < 0)
		return err_sys(e, -r, "bridge channel");
	h->ready_by_ns = clock_mono_ns() + BRIDGE_READY_MS * NS_PER_MS;
	return 0;
}

/* The parent. ------------------------------------------------------------------------------ */

static void set_policy(struct host *h, struct view text)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	struct err e = ERR_INIT;
	int r = bridge_policy_parse("policy", text.p, text.n, &p, &e);

	if (r == 0 && h->credential_header)
		r = bridge_policy_credential(p, h->credential_header, &e);
	if (r == 0)
		r = guard_set_policy(h->bridge.guard, p, &e);
	if (r == 0)
		(void)say(h, BF_POLICY_SET, NULL);
	else
		say_text(h, BF_POLICY_BAD, e.text);
}

static void begin_stop(struct host *h)
{
	if (h->stop_by_ns != INT64_MAX)
		return;
	h->stop_by_ns = clock_mono_ns() + BRIDGE_STOP_MS * NS_PER_MS;
	guard_stop(h->bridge.guard);
	(void)audit_flush(&h->audit);
	h->bridge.stopping = true;
	if (h->h2)
		h2server_stop(h->h2);
	if (h->h1)
		h1server_stop(h->h1);
	if (h->queue)
		queueserver_stop(h->queue);
}

static unsigned under_way(const struct host *h)
{
	return h->h2	  ? h2server_under_way(h->h2)
	       : h->h1	  ? h1server_under_way(h->h1)
	       : h->queue ? queueserver_under_way(h->queue)
			  : 0;
}

static void on_parent(struct loop_watch *w, uint32_t events)
{
	struct host *h = (struct host *)(void *)((char *)w - offsetof(struct host, ctl_watch));
	struct frame f;
	int r;

	(void)events;
	while (!h->done && (r = chan_recv(&h->ctl, 0, &f, NULL, NULL)) != -EAGAIN) {
		/* The parent is gone: so is whoever could use this bridge. */
		if (r <= 0) {
			h->done = h->loop.stop = true;
			return;
		}
		if (f.type == BF_STOP)
			begin_stop(h);
		else if (f.type == BF_PING)
			(void)say(h, BF_PONG, NULL);
		else if (f.type == BF_POLICY)
			set_policy(h, f.payload);
	}
}

static void on_turn(void *arg, int64_t now)
{
	struct host *h = arg;
	int64_t next = upstream_tick(h->bridge.upstream, now), due;

	/* Lines first: what follows may take long. */
	if (now >= h->audit_by_ns)
		h->audit_by_ns =
		    audit_flush(&h->audit) ? now + AUDIT_LATER_MS * NS_PER_MS : INT64_MAX;
	if (h->h2) {
		due = h2server_tick(h->h2, now);
		if (due < next)
			next = due;
		if (h2server_state(h->h2) != H2_OPEN)
			lose(h, h2_loss_name(h2server_state(h->h2)));
	}
	if (h->h1) {
		due = h1server_tick(h->h1, now);
		if (due < next)
			next = due;
	}
	if (h->queue) {
		due = queueserver_tick(h->queue, now);
		if (due < next)
			next = due;
	}
	if (now >= h->ready_by_ns)
		lose(h, "the gateway was not ready in time");
	if (h->stop_by_ns != INT64_MAX && (now >= h->stop_by_ns || under_way(h) == 0))
		finish(h);
	if (h->audit_by_ns < next)
		next = h->audit_by_ns;
	if (h->ready_by_ns < next)
		next = h->ready_by_ns;
	if (h->stop_by_ns < next)
		next = h->stop_by_ns;
	/* Behind whatever may have held something back in this turn. */
	due = exchange_release(&h->bridge, now);
	if (due < next)
		next = due;
	/* What the server submitted may have changed what the upstream wants. */
	if (h->h2 || h->h1 || h->queue)
		due = upstream_tick(h->bridge.upstream, now);
	else
		due = INT64_MAX;
	h->loop.wake_ns = due < next ? due : next;
	/* Or the other way round: an answer that begins only now. */
	if ((h->h2 && h2server_pending(h->h2)) || (h->h1 && h1server_pending(h->h1)))
		h->loop.wake_ns = 0;
}

/* Start. ----------------------------------------------------------------------------------- */

static int make_guard(struct host *h, const struct bridge_setup *s, const struct origin *o,
		      struct err *e)
{
	_cleanup_free_ char *name =
	    strndup(s->policy_name.n ? s->policy_name.p : "", s->policy_name.n);
	struct guard_config c = {.origin = *o,
				 .token = s->token,
				 .credential = s->credential,
				 .run_id = s->run_id,
				 .agent_id = s->agent_id,
				 .company_id = s->company_id,
				 .task_id = s->task_id};
	int r;

	if (!name)
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	r = s->policy_text.n
		? bridge_policy_parse(name, s->policy_text.p, s->policy_text.n, &h->policy, e)
		: bridge_policy_builtin(name, &h->policy, e);
	if (r == 0 && s->credential_header.n) {
		h->credential_header = strndup(s->credential_header.p, s->credential_header.n);
		r = h->credential_header
			? bridge_policy_credential(h->policy, h->credential_header, e)
			: err_set(e, ERR_NOMEM, "bridge: out of memory");
	}
	if (r < 0)
		return r;
	c.policy = h->policy;
	h->streams_max = h->policy->streams_max;
	return guard_new(&c, &h->bridge.guard, e);
}

static int confine(struct host *h, struct err *e)
{
	uint16_t port = upstream_port(h->bridge.upstream);
	const struct confine_path dir = {.fd = h->queue_root, .access = CONFINE_WRITE};
	struct confine_opts o = {
	    .paths = &dir,
	    .paths_len = h->queue ? 1 : 0,
	    .data_max = DATA_MAX,
	    .nofile_max = NOFILE + (h->listener < 0 ? 0 : GATE_CONNS_MAX),
	    .connect_ports = &port,
	    .connect_ports_len = port ? 1 : 0,
	    .without = CONFINE_NO_SECCOMP | (h->without_landlock ? CONFINE_NO_LANDLOCK : 0),
	};
	int r = confine_self(&o, e);

	/* Safe because: the filters only take system calls away and cannot be removed. */
	if (r == 0 && !h->without_seccomp) {
		r = seccomp_install_bridge(port != 0, h->queue		? SECCOMP_BRIDGE_QUEUE
						      : h->listener < 0 ? SECCOMP_BRIDGE_STREAM
									: SECCOMP_BRIDGE_LISTENER);
		if (r < 0)
			r = err_sys(e, -r,
				    "seccomp: load the bridge's list (CONFIG_SECCOMP_FILTER)");
	}
	return r;
}

/* Memory of the parent's that the next process of this run gets as well (bridge/shared.h). */
static int take_shared(struct host *h, int fd, struct err *e)
{
	struct stat st;
	void *p;

	if (fd < 0) {
		h->shared = h->own = calloc(1, sizeof(*h->own));
		if (!h->own)
			return err_set(e, ERR_NOMEM, "bridge: out of memory");
	} else {
		if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(*h->shared))
			return err_set(e, ERR_PROTOCOL, "airlock-bridge: too little memory shared");
		p = mmap(NULL, sizeof(*h->shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			return err_sys(e, errno, "airlock-bridge: map the shared memory");
		h->shared = p;
	}
	h->bridge.counts = &h->shared->counts;
	return 0;
}

static int next_fd(int fds[FRAME_FDS_MAX], size_t *k)
{
	int fd = fds[*k];

	fds[(*k)++] = -1;
	return fd;
}

static int take_fds(struct host *h, const struct bridge_setup *s, int fds[FRAME_FDS_MAX],
		    int *ret_dir, struct err *e)
{
	_cleanup_fd_ int audit = -1, shared = -1, board = -1;
	size_t k = 0;
	int r;

	if (s->has_channel) {
		h->in = next_fd(fds, &k);
		h->out = next_fd(fds, &k);
	}
	if (s->has_dir)
		*ret_dir = next_fd(fds, &k);
	if (s->has_audit)
		audit = next_fd(fds, &k);
	if (s->has_shared)
		shared = next_fd(fds, &k);
	if (s->has_board)
		board = next_fd(fds, &k);
	if (s->has_listener)
		h->listener = next_fd(fds, &k);
	pace_init(&h->bridge.pace, board, s->run_id);
	if ((s->has_channel && (h->in < 0 || h->out < 0)) || (s->has_dir && *ret_dir < 0) ||
	    (s->transport == BRIDGE_DIRECT  ? h->listener < 0
	     : s->transport == BRIDGE_QUEUE ? !s->has_dir
					    : !s->has_channel))
		return err_set(e, ERR_PROTOCOL, "airlock-bridge: a descriptor is missing");
	r = take_shared(h, shared, e);
	if (r == 0)
		r = audit_open_in(&h->audit, TAKE_FD(audit), shared < 0 ? NULL : &h->shared->audit,
				  e);
	return r;
}

/* In a process that is to have neither the credential nor what others share with us. */
static void forget(void *arg)
{
	struct host *h = arg;

	chan_forget(&h->ctl);
	if (!h->own)
		(void)munmap(h->shared, sizeof(*h->shared));
}

static int set_up(struct host *h, const struct frame *f, int fds[FRAME_FDS_MAX], struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char nonce[READY_NONCE_LEN + 1] = "";
	_cleanup_fd_ int dir = -1;
	struct bridge_setup s;
	struct origin o;
	int r;

	if (f->type != BF_SETUP || bridge_get_setup(f->payload, &s) < 0)
		return err_set(e, ERR_PROTOCOL, "airlock-bridge: not a set-up of this version");
	r = take_fds(h, &s, fds, &dir, e);
	if (r < 0)
		return r;
	h->without_landlock = s.without_landlock;
	h->without_seccomp = s.without_seccomp;
	if (s.transport == BRIDGE_DIRECT)
		r = lastword_start(&h->last, forget, h,
				   (s.without_landlock ? CONFINE_NO_LANDLOCK : 0) |
				       (s.without_seccomp ? CONFINE_NO_SECCOMP : 0),
				   e);
	if (r < 0)
		return r;
	text = strndup(s.upstream.n ? s.upstream.p : "", s.upstream.n);
	if (!text)
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	r = origin_parse(text, &o, e);
	if (r == 0)
		r = make_guard(h, &s, &o, e);
	if (r == 0)
		r = upstream_new(&h->loop, &o, s.ca, &h->bridge.upstream, e);
	if (r < 0)
		return r;
	if (s.nonce.n == READY_NONCE_LEN)
		memcpy(nonce, s.nonce.p, READY_NONCE_LEN);
	(void)snprintf(h->run_id, sizeof(h->run_id), "%.*s", (int)s.run_id.n,
		       s.run_id.n ? s.run_id.p : "");
	(void)snprintf(h->name, sizeof(h->name), "%.*s", s.name.n ? (int)s.name.n : 3,
		       s.name.n ? s.name.p : "api");
	h->bridge.audit = audit;
	h->bridge.audit_begin = audit_out;
	h->bridge.audit_arg = h;
	ready_init(&h->ready, nonce);
	h->ready.alone = s.transport == BRIDGE_QUEUE;
	h->bridge.transport = bridge_transport_name(s.transport);
	if (s.transport == BRIDGE_QUEUE) {
		h->queue_root = dir;
		r = queueserver_new(&h->bridge, TAKE_FD(dir), h->shared, &h->queue, e);
	}
	return r < 0 ? r : confine(h, e);
}

static int start(struct host *h, struct err *e)
{
	int fds[FRAME_FDS_MAX] = {-1, -1, -1, -1, -1, -1};
	struct frame f;
	int r = loop_init(&h->loop, e);

	if (r == 0 && sodium_init() < 0)
		r = err_set(e, ERR_UNAVAILABLE, "libsodium does not start");
	if (r < 0)
		return r;
	h->bridge.loop = &h->loop;
	r = chan_recv(&h->ctl, INT64_MAX, &f, fds, e);
	if (r == 0)
		return err_set(e, ERR_CANCELLED, "airlock went away");
	if (r > 0)
		r = set_up(h, &f, fds, e);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		cleanup_fd(&fds[i]);
	/* The frame held the credential: the guard has its own copy now. */
	chan_forget(&h->ctl);
	if (r == 0)
		r = loop_add(&h->loop, &h->ctl_watch, h->ctl.fd, EPOLLIN, on_parent);
	if (r == 0)
		r = say(h, BF_CONFINED, NULL);
	if (r == 0 && h->in < 0)
		begin_session(h);
	return r < 0 || h->in < 0 ? r : watch_channel(h, e);
}

static void clear(struct host *h)
{
	free_servers(h);
	cleanup_fd(&h->listener);
	upstream_free(h->bridge.upstream);
	guard_free(h->bridge.guard);
	bridge_policy_unref(h->policy);
	free(h->credential_header);
	ready_done(&h->ready);
	if (h->out != h->in)
		cleanup_fd(&h->out);
	cleanup_fd(&h->in);
	close_audit(h);
	free(h->own);
	lastword_end(&h->last);
	chan_done(&h->ctl);
	loop_done(&h->loop);
}

int bridge_serve(int fd)
{
	struct host h = {.in = -1,
			 .out = -1,
			 .listener = -1,
			 .last = {.heard = -1, .wake = -1, .self = -1},
			 .audit = {.fd = -1},
			 .audit_by_ns = INT64_MAX,
			 .ctl_watch.fd = -1,
			 .in_watch.fd = -1,
			 .ready_by_ns = INT64_MAX,
			 .stop_by_ns = INT64_MAX};
	struct err e = ERR_INIT;
	int r;

	chan_init(&h.ctl, fd, true);
	r = start(&h, &e);
	/* From here on no frame of the parent carries a descriptor. */
	h.ctl.accept_fds = false;
	if (r == 0)
		r = loop_run(&h.loop, on_turn, &h, &e);
	if (r < 0 && !h.done)
		say_error(&h, &e);
	clear(&h);
	return r;
}
