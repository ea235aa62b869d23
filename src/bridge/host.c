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
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "bridge/bridge_proto.h"
#include "bridge/host_internal.h"

#define SEND_MS 1000
#define READ_CHUNK 16384
#define AUDIT_WAIT_MS 250   /* how long a line may wait for others */
#define AUDIT_LATER_MS 1000 /* until a write that failed, or a count, is looked at again */

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
	h->bridge.audit = audit;
	h->bridge.audit_begin = audit_out;
	h->bridge.audit_arg = h;
	r = chan_recv(&h->ctl, INT64_MAX, &f, fds, e);
	if (r == 0)
		return err_set(e, ERR_CANCELLED, "airlock went away");
	if (r > 0)
		r = host_set_up(h, &f, fds, e);
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
