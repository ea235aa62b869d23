/*
 * Connections of upstream_http.c: dialling, sending, receiving, and which of them may serve again.
 *
 * Policy of door 2 here: only the addresses that were fixed before the first foreign byte came in are dialled; a
 * request that may have been sent is sent a second time only if it is safe and its connection died idle, once; a
 * connection whose last answer did not end cleanly carries no further request. Not done here: what may be sent
 * (guard.h), limits of time (upstream_http.c).
 */
#include "bridge/upstream_http_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

#define CROWD_MS 2 /* a unix socket whose queue is full says no instead of letting us wait */

/* Connections. ----------------------------------------------------------------------------- */

void upstream_conn_unlist(struct conn *k)
{
	if (!k->prev)
		return;
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	k->prev = NULL;
	k->next = NULL;
}

void upstream_conn_hang_up(struct conn *k)
{
	upstream_conn_unlist(k);
	if (k->call)
		k->call->conn = NULL;
	loop_del(k->u->loop, &k->w);
	wire_end_free(k->wire);
	(void)close(k->fd);
	http1_done(&k->p);
	buf_done(&k->rest);
	free(k);
}

static void on_conn(struct loop_watch *w, uint32_t events);

static void retire(struct conn *k)
{
	struct upstream *u = k->u;

	k->call = NULL;
	k->idle_ns = clock_mono_ns();
	k->look = u->loop->looks;
	k->next = u->idle;
	k->prev = &u->idle;
	if (k->next)
		k->next->prev = &k->next;
	u->idle = k;
	upstream_http_soon(u, k->idle_ns + BRIDGE_KEEPALIVE_MS * NS_PER_MS);
}

/* Nothing came that nobody asked for: neither bytes, which would be taken for the next answer, nor an end. */
static bool quiet(struct conn *k)
{
	/* The loop has looked at it since, and all it saw in this turn has been dealt with: one system call less. */
	if (!k->wire && k->look != k->u->loop->looks)
		return true;
	return wire_quiet(k->wire, k->fd);
}

bool upstream_conn_reuse(struct upstream_call *c, int64_t now)
{
	struct upstream *u = c->u;
	struct conn *k = u->idle;

	/* The one that was used last of those that the loop has looked at; where there is none, the last. */
	while (k && k->look == u->loop->looks && k->next)
		k = k->next;
	for (; k; k = u->idle) {
		if (now - k->idle_ns < BRIDGE_KEEPALIVE_MS * NS_PER_MS && quiet(k))
			break;
		upstream_conn_hang_up(k);
	}
	if (!k)
		return false;
	upstream_conn_unlist(k);
	k->call = c;
	k->heard = false;
	c->conn = k;
	http1_next_answer(&k->p, c->to_head);
	return true;
}

/* Begins to connect to c->at. 0, or a negative errno: that address is no good. */
static int dial(struct upstream_call *c)
{
	struct upstream *u = c->u;
	const struct sockaddr *to = (const struct sockaddr *)&u->addr[c->at];
	struct conn *k = calloc(1, sizeof(*k));
	int fd, on = 1, r;

	if (!k)
		return -ENOMEM;
	fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	r = fd < 0 ? -errno : 0;
	if (r == 0 && to->sa_family != AF_UNIX)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (r == 0 && connect(fd, to, u->addr_len[c->at]) < 0) {
		r = errno == EINPROGRESS ? 0 : -errno;
		k->connecting = true;
	}
	if (r == 0)
		r = wire_begin(u->wire, fd, &k->wire);
	/* Where there is one to be greeted, that begins when it can be written to. */
	k->connecting = k->connecting || k->wire;
	if (r == 0)
		r = loop_add(u->loop, &k->w, fd, k->connecting ? EPOLLOUT : EPOLLIN, on_conn);
	if (r < 0) {
		wire_end_free(k->wire);
		if (fd >= 0)
			(void)close(fd);
		free(k);
		return r;
	}
	k->fd = fd;
	k->u = u;
	k->call = c;
	http1_init_answer(&k->p, BRIDGE_UPSTREAM_HEADERS_MAX);
	http1_next_answer(&k->p, c->to_head);
	k->rest = BUF_INIT(READ_CHUNK + 1);
	c->conn = k;
	return 0;
}

/* Ends. ------------------------------------------------------------------------------------ */

/* The answer is whole: the connection may serve again, if nothing is left of either message. */
static void complete(struct upstream_call *c)
{
	struct conn *k = c->conn;
	bool reuse =
	    k->p.keep_alive && k->rest.len == 0 && !k->eof && c->out == c->head.len + c->q.body.n;

	/* Its last piece may have waited for room, unwatched. */
	if (reuse && k->w.fd < 0)
		reuse = loop_add(k->u->loop, &k->w, k->fd, EPOLLIN, on_conn) == 0;
	if (reuse) {
		c->conn = NULL;
		loop_mod(k->u->loop, &k->w, EPOLLIN);
		k->used = true;
		retire(k);
	}
	upstream_http_finish(c, UP_OK);
}

/*
 * The connection ended under the call. One that had served before may have been closed by the upstream while it was idle: then a
 * safe request gets a new one, once. Anything else is not sent a second time.
 */
static void lost(struct upstream_call *c)
{
	struct conn *k = c->conn;

	if (!k->used || k->heard || c->retried || (c->sent && !c->q.safe)) {
		upstream_http_finish(c, c->sent ? UP_LOST : UP_UNREACHABLE);
		return;
	}
	upstream_conn_hang_up(k);
	c->retried = true;
	c->out = 0;
	(void)upstream_conn_begin(c);
}

/* Sending. --------------------------------------------------------------------------------- */

bool upstream_conn_send_more(struct upstream_call *c)
{
	size_t all = c->head.len + c->q.body.n;
	struct conn *k = c->conn;
	uint32_t events = 0;

	while (c->out < all) {
		size_t in_body = c->out > c->head.len ? c->out - c->head.len : 0;
		struct iovec v[2] = {
		    {c->head.data + c->out, c->out < c->head.len ? c->head.len - c->out : 0},
		    {(char *)(uintptr_t)c->q.body.p + in_body, c->q.body.n - in_body}};
		bool from_body = v[0].iov_len == 0;
		ssize_t n = wire_send(k->wire, k->fd, v + from_body,
				      from_body || c->q.body.n == 0 ? 1 : 2, &events);

		if (n == -EAGAIN)
			break;
		if (n < 0) {
			/* An answer that came before the end of the request is still read. */
			if (c->out && (n == -EPIPE || n == -ECONNRESET))
				break;
			lost(c);
			return false;
		}
		c->sent = true;
		c->out += (size_t)n;
	}
	loop_mod(k->u->loop, &k->w, c->out < all ? EPOLLIN | events : EPOLLIN);
	return true;
}

bool upstream_conn_begin(struct upstream_call *c)
{
	struct upstream *u = c->u;

	for (; c->at < u->addrs; c->at++) {
		int r = dial(c);

		if (r == -EAGAIN) {
			c->waits = true;
			c->again_ns = clock_mono_ns() + CROWD_MS * NS_PER_MS;
			upstream_http_soon(u, c->again_ns);
			return true;
		}
		if (r < 0)
			continue;
		return c->conn->connecting || upstream_conn_send_more(c);
	}
	upstream_http_finish(c, c->sent ? UP_LOST : UP_UNREACHABLE);
	return false;
}

/* Receiving. ------------------------------------------------------------------------------- */

static void wait_for_room(struct upstream_call *c, struct view piece, const char *rest, size_t n)
{
	struct conn *k = c->conn;

	c->paused = true;
	(void)buf_put(&k->rest, piece.p, piece.n);
	(void)buf_put(&k->rest, rest, n);
	k->piece = piece.n;
	/* Not only no events: a hang-up would be reported again and again. */
	loop_del(k->u->loop, &k->w);
}

/* False: the call is over, or waits. */
static bool give(struct upstream_call *c, struct view piece, const char *rest, size_t n)
{
	c->moved_ns = clock_mono_ns();
	switch (c->q.data(c->q.arg, piece.p, piece.n)) {
	case UPSTREAM_TAKEN:
		return true;
	case UPSTREAM_WAIT:
		wait_for_room(c, piece, rest, n);
		return false;
	default:
		upstream_http_finish(c, UP_LOST);
		return false;
	}
}

/* False: the call is over, or waits. */
static bool take(struct upstream_call *c, const char *p, size_t n)
{
	struct conn *k = c->conn;
	struct view piece;
	size_t used;

	for (;;) {
		enum http1_event ev = http1_feed(&k->p, p, n, &used, &piece);

		p += used;
		n -= used;
		switch (ev) {
		case HTTP1_HEAD:
			c->headed = true;
			c->moved_ns = clock_mono_ns();
			if (!c->q.head(c->q.arg, k->p.code, k->p.headers, k->p.headers_len)) {
				upstream_http_finish(c, UP_BAD);
				return false;
			}
			break;
		case HTTP1_BODY:
			if (!give(c, piece, p, n))
				return false;
			break;
		case HTTP1_END:
			/* More than was announced: whatever it is, it is no answer to the next request. */
			k->eof = k->eof || n > 0;
			complete(c);
			return false;
		case HTTP1_ERROR:
			upstream_http_finish(c, UP_BAD);
			return false;
		default:
			return true;
		}
	}
}

static void on_end(struct upstream_call *c)
{
	struct conn *k = c->conn;

	k->eof = true;
	if (c->headed && http1_eof(&k->p) == HTTP1_END)
		complete(c);
	else
		lost(c);
}

static void receive(struct conn *k)
{
	struct upstream_call *c = k->call;
	uint32_t events = 0;
	ssize_t n;

	/* An idle connection has nothing to say but that it is over. */
	if (!c) {
		if (!wire_quiet(k->wire, k->fd))
			upstream_conn_hang_up(k);
		return;
	}
	n = wire_recv(k->wire, k->fd, k->u->chunk, READ_CHUNK, &events);
	k->read_writes = n == -EAGAIN && events == EPOLLOUT;
	if (k->read_writes)
		loop_mod(k->u->loop, &k->w, EPOLLIN | EPOLLOUT);
	if (n == -EAGAIN)
		return;
	k->heard = k->heard || n > 0;
	if (n > 0)
		(void)take(c, k->u->chunk, (size_t)n);
	else if (n == 0)
		on_end(c);
	else
		lost(c);
}

/* That address is no good. */
static void next_address(struct conn *k)
{
	struct upstream_call *c = k->call;

	upstream_conn_hang_up(k);
	c->at++;
	(void)upstream_conn_begin(c);
}

static void connected(struct conn *k)
{
	socklen_t len = sizeof(int);
	uint32_t events = 0;
	int r = 0;

	if (!k->greeting && (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &r, &len) < 0 || r != 0)) {
		next_address(k);
		return;
	}
	k->greeting = true;
	r = wire_greet(k->wire, &events);
	if (r == -EAGAIN) {
		loop_mod(k->u->loop, &k->w, events);
		return;
	}
	if (r < 0) {
		next_address(k);
		return;
	}
	k->connecting = false;
	(void)upstream_conn_send_more(k->call);
}

static void on_conn(struct loop_watch *w, uint32_t events)
{
	struct conn *k = (struct conn *)(void *)w;

	if (k->connecting) {
		connected(k);
		return;
	}
	if ((events & EPOLLOUT) && k->call && !upstream_conn_send_more(k->call))
		return;
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || k->read_writes)
		receive(k);
}

void upstream_conn_go_on(struct upstream_call *c)
{
	struct conn *k = c->conn;
	struct buf rest = k->rest;
	size_t piece = k->piece;

	c->resume = c->paused = false;
	k->rest = BUF_INIT(READ_CHUNK + 1);
	k->piece = 0;
	if (give(c, (struct view){rest.data, piece}, rest.data + piece, rest.len - piece) &&
	    take(c, rest.data + piece, rest.len - piece) &&
	    loop_add(k->u->loop, &k->w, k->fd,
		     c->out < c->head.len + c->q.body.n ? EPOLLIN | EPOLLOUT : EPOLLIN,
		     on_conn) < 0)
		upstream_http_finish(c, UP_LOST);
	buf_done(&rest);
}
