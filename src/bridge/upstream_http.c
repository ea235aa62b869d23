/*
 * Policy of door 2 here: bytes go to one origin, http or a unix socket, which was fixed before the first foreign byte
 * came in; no answer of the upstream makes this process connect elsewhere, send an unsafe request twice, or remember
 * anything; a connection whose last answer did not end cleanly carries no further request. Not done here: what may be
 * sent (guard.h), https (upstream_tls.c).
 *
 * Without a library: what libcurl does beside this (three polls a request, a state machine per transfer, thirty shared
 * objects) is half of the bridge's time and most of its memory.
 */
#include "bridge/upstream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "bridge/upstream_resolve.h"
#include "wire/http1.h"

#define READ_CHUNK 32768
#define HEAD_OUT_MAX 65536
#define CROWD_MS 2 /* a unix socket whose queue is full says no instead of letting us wait */

struct conn {
	struct loop_watch w; /* off while the sandbox has no room */
	int fd;
	struct upstream *u;
	struct upstream_call *call; /* NULL: idle */
	struct conn *next, **prev;  /* among the idle ones */
	struct http1 p;
	struct buf rest; /* what came behind a piece that was not taken */
	size_t piece;	 /* that many bytes of it are body already */
	int64_t idle_ns; /* since then */
	bool connecting, used, heard, eof;
};

struct upstream {
	struct loop *loop;
	struct origin origin;
	struct sockaddr_storage addr[UPSTREAM_ADDRESSES_MAX];
	socklen_t addr_len[UPSTREAM_ADDRESSES_MAX];
	unsigned addrs;
	struct conn *idle; /* the one used last comes first */
	struct upstream_call *calls;
	char *chunk;	/* where all of them read */
	int64_t due_ns; /* the earliest limit; may be too early, never too late */
};

struct upstream_call {
	struct upstream *u;
	struct upstream_call *next, **prev;
	struct upstream_request q;
	struct conn *conn; /* NULL: none yet */
	struct buf head;   /* request line and headers */
	size_t out;	   /* bytes of head and body that are sent */
	unsigned at;	   /* address to be tried next */
	int64_t started_ns, moved_ns, again_ns;
	bool to_head, sent, headed, paused, resume, waits, retried;
};

static void soon(struct upstream *u, int64_t when)
{
	if (when < u->due_ns)
		u->due_ns = when;
}

/* Connections. ----------------------------------------------------------------------------- */

static void unlist(struct conn *k)
{
	if (!k->prev)
		return;
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	k->prev = NULL;
	k->next = NULL;
}

static void hang_up(struct conn *k)
{
	unlist(k);
	if (k->call)
		k->call->conn = NULL;
	loop_del(k->u->loop, &k->w);
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
	k->next = u->idle;
	k->prev = &u->idle;
	if (k->next)
		k->next->prev = &k->next;
	u->idle = k;
	soon(u, k->idle_ns + BRIDGE_KEEPALIVE_MS * NS_PER_MS);
}

/*
 * One that nothing has come on since its last answer: neither an end, nor an answer that nobody asked for, which would be taken for the
 * next request's. The loop may know it only after the request.
 */
static struct conn *reusable(struct upstream *u, int64_t now)
{
	struct conn *k;
	char byte;

	while ((k = u->idle)) {
		if (now - k->idle_ns < BRIDGE_KEEPALIVE_MS * NS_PER_MS &&
		    recv(k->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
			break;
		hang_up(k);
	}
	return k;
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
		r = loop_add(u->loop, &k->w, fd, k->connecting ? EPOLLOUT : EPOLLIN, on_conn);
	if (r < 0) {
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

static void free_call(struct upstream_call *c)
{
	if (c->conn)
		hang_up(c->conn);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	buf_done(&c->head);
	free(c);
}

static void finish(struct upstream_call *c, enum upstream_end end)
{
	struct upstream_request q = c->q;
	bool sent = c->sent;

	free_call(c);
	q.end(q.arg, end, sent);
}

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
	finish(c, UP_OK);
}

/* Dials, or sends on what is there. False: the call is over. */
static bool connect_call(struct upstream_call *c);

/*
 * The connection ended under the call. One that had served before may have been closed by the upstream while it was idle: then a
 * safe request gets a new one, once. Anything else is not sent a second time.
 */
static void lost(struct upstream_call *c)
{
	struct conn *k = c->conn;

	if (!k->used || k->heard || c->retried || (c->sent && !c->q.safe)) {
		finish(c, c->sent ? UP_LOST : UP_UNREACHABLE);
		return;
	}
	hang_up(k);
	c->retried = true;
	c->out = 0;
	(void)connect_call(c);
}

/* Sending. --------------------------------------------------------------------------------- */

/* False: the call is over. */
static bool send_more(struct upstream_call *c)
{
	size_t all = c->head.len + c->q.body.n;
	struct conn *k = c->conn;

	while (c->out < all) {
		size_t in_body = c->out > c->head.len ? c->out - c->head.len : 0;
		struct iovec v[2] = {
		    {c->head.data + c->out, c->out < c->head.len ? c->head.len - c->out : 0},
		    {(char *)(uintptr_t)c->q.body.p + in_body, c->q.body.n - in_body}};
		bool from_body = v[0].iov_len == 0;
		const struct msghdr m = {.msg_iov = v + from_body,
					 .msg_iovlen = from_body || c->q.body.n == 0 ? 1 : 2};
		ssize_t n = sendmsg(k->fd, &m, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			/* An answer that came before the end of the request is still read. */
			if (c->out && (errno == EPIPE || errno == ECONNRESET))
				break;
			lost(c);
			return false;
		}
		c->sent = true;
		c->out += (size_t)n;
	}
	loop_mod(k->u->loop, &k->w, c->out < all ? EPOLLIN | EPOLLOUT : EPOLLIN);
	return true;
}

static bool connect_call(struct upstream_call *c)
{
	struct upstream *u = c->u;

	for (; c->at < u->addrs; c->at++) {
		int r = dial(c);

		if (r == -EAGAIN) {
			c->waits = true;
			c->again_ns = clock_mono_ns() + CROWD_MS * NS_PER_MS;
			soon(u, c->again_ns);
			return true;
		}
		if (r < 0)
			continue;
		return c->conn->connecting || send_more(c);
	}
	finish(c, c->sent ? UP_LOST : UP_UNREACHABLE);
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
		finish(c, UP_LOST);
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
				finish(c, UP_BAD);
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
			finish(c, UP_BAD);
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
	ssize_t n = recv(k->fd, k->u->chunk, READ_CHUNK, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* An idle connection has nothing to say but that it is over. */
	if (!c) {
		hang_up(k);
		return;
	}
	k->heard = k->heard || n > 0;
	if (n > 0)
		(void)take(c, k->u->chunk, (size_t)n);
	else
		on_end(c);
}

static void connected(struct conn *k)
{
	struct upstream_call *c = k->call;
	socklen_t len = sizeof(int);
	int bad = 0;

	if (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &bad, &len) == 0 && bad == 0) {
		k->connecting = false;
		(void)send_more(c);
		return;
	}
	hang_up(k);
	c->at++;
	(void)connect_call(c);
}

static void on_conn(struct loop_watch *w, uint32_t events)
{
	struct conn *k = (struct conn *)(void *)w;

	if (k->connecting) {
		connected(k);
		return;
	}
	if ((events & EPOLLOUT) && k->call && !send_more(k->call))
		return;
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		receive(k);
}

/* What waited, then the connection again. */
static void go_on(struct upstream_call *c)
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
		finish(c, UP_LOST);
	buf_done(&rest);
}

/* Requests. -------------------------------------------------------------------------------- */

static int put_head(struct upstream_call *c, const struct upstream_request *q)
{
	struct buf *b = &c->head;

	(void)buf_puts(b, q->method);
	(void)buf_putc(b, ' ');
	(void)buf_put(b, q->target.p, q->target.n);
	(void)buf_puts(b, " HTTP/1.1\r\nhost: ");
	(void)buf_puts(b, c->u->origin.authority);
	for (size_t i = 0; i < q->headers_len; i++) {
		(void)buf_puts(b, "\r\n");
		(void)buf_put(b, q->headers[i].name.p, q->headers[i].name.n);
		(void)buf_puts(b, ": ");
		(void)buf_put(b, q->headers[i].value.p, q->headers[i].value.n);
	}
	if (q->has_body)
		(void)buf_putf(b, "\r\ncontent-length: %zu", q->body.n);
	return buf_puts(b, "\r\n\r\n");
}

struct upstream_call *upstream_start(struct upstream *u, const struct upstream_request *q)
{
	struct upstream_call *c = calloc(1, sizeof(*c));
	struct conn *k;

	if (!c)
		return NULL;
	c->u = u;
	c->q = *q;
	if (!q->has_body)
		c->q.body = (struct view){0};
	c->to_head = strcmp(q->method, "HEAD") == 0;
	c->started_ns = c->moved_ns = clock_mono_ns();
	c->head = BUF_INIT(HEAD_OUT_MAX);
	/* What points into the caller's request was written out and is not looked at again. */
	c->q.headers = NULL;
	c->q.target = (struct view){0};
	if (put_head(c, q) < 0) {
		buf_done(&c->head);
		free(c);
		return NULL;
	}
	c->next = u->calls;
	c->prev = &u->calls;
	if (c->next)
		c->next->prev = &c->next;
	u->calls = c;
	k = reusable(u, c->started_ns);
	if (k) {
		unlist(k);
		k->call = c;
		k->heard = false;
		c->conn = k;
		http1_next_answer(&k->p, c->to_head);
	}
	/* Not from here: callbacks come from loop turns. */
	c->waits = true;
	u->due_ns = 0;
	return c;
}

void upstream_resume(struct upstream_call *c)
{
	if (!c->paused)
		return;
	c->resume = true;
	c->u->due_ns = 0;
}

bool upstream_cancel(struct upstream_call *c)
{
	bool sent = c->sent;

	free_call(c);
	return sent;
}

/* Limits. ---------------------------------------------------------------------------------- */

static int64_t call_due(const struct upstream_call *c)
{
	const struct bridge_limits *l = &c->q.limits;
	int64_t due = INT64_MAX, dial_by = c->started_ns + BRIDGE_CONNECT_MS * NS_PER_MS;

	if (!l->stream || !c->headed)
		due = c->started_ns + l->request_ns;
	/* A reader that is slow is not the upstream's fault. */
	if (c->headed && !c->paused && !l->stream && c->moved_ns + l->idle_ns < due)
		due = c->moved_ns + l->idle_ns;
	if ((!c->conn || c->conn->connecting) && dial_by < due)
		due = dial_by;
	return due;
}

/* Looks at the limits, sends what is new, wakes what waited for room. False: others may have ended with it. */
static bool advance(struct upstream_call *c, int64_t now)
{
	if (call_due(c) <= now) {
		finish(c, UP_TIME);
		return false;
	}
	if (c->waits && now >= c->again_ns) {
		c->waits = false;
		return c->conn ? send_more(c) : connect_call(c);
	}
	if (c->resume) {
		c->moved_ns = now;
		go_on(c);
		return false;
	}
	return true;
}

static void drop_old(struct upstream *u, int64_t now)
{
	for (struct conn *k = u->idle, *next; k; k = next) {
		next = k->next;
		if (now - k->idle_ns >= BRIDGE_KEEPALIVE_MS * NS_PER_MS)
			hang_up(k);
		else
			soon(u, k->idle_ns + BRIDGE_KEEPALIVE_MS * NS_PER_MS);
	}
}

int64_t upstream_tick(struct upstream *u, int64_t now)
{
	struct upstream_call *c, *next;

	if (now < u->due_ns)
		return u->due_ns;
	u->due_ns = INT64_MAX;
	drop_old(u, now);
	for (c = u->calls; c; c = next) {
		next = c->next;
		if (!advance(c, now)) {
			next = u->calls;
			continue;
		}
		soon(u, call_due(c));
		if (c->waits)
			soon(u, c->again_ns);
	}
	return u->due_ns;
}

/* Start. ----------------------------------------------------------------------------------- */

static int resolve(struct upstream *u, struct err *e)
{
	struct addrinfo *list = NULL;
	int r = upstream_resolve(&u->origin, &list, e);

	for (struct addrinfo *a = list; a && u->addrs < UPSTREAM_ADDRESSES_MAX; a = a->ai_next) {
		memcpy(&u->addr[u->addrs], a->ai_addr, a->ai_addrlen);
		u->addr_len[u->addrs++] = a->ai_addrlen;
	}
	if (list)
		freeaddrinfo(list);
	return r;
}

static int locate(struct upstream *u, struct err *e)
{
	struct sockaddr_un *a = (struct sockaddr_un *)&u->addr[0];

	if (u->origin.scheme == ORIGIN_HTTPS)
		return err_set(e, ERR_INVALID, "upstream %s: https is airlock-bridge-tls's",
			       u->origin.text);
	if (u->origin.scheme == ORIGIN_HTTP)
		return resolve(u, e);
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path, u->origin.path, sizeof(u->origin.path));
	u->addr_len[0] = sizeof(*a);
	u->addrs = 1;
	return 0;
}

int upstream_new(struct loop *l, const struct origin *o, struct view ca, struct upstream **ret,
		 struct err *e)
{
	struct upstream *u = calloc(1, sizeof(*u));
	int r;

	(void)ca;
	if (!u || !(u->chunk = malloc(READ_CHUNK))) {
		free(u);
		return err_set(e, ERR_NOMEM, "upstream: out of memory");
	}
	u->loop = l;
	u->origin = *o;
	u->due_ns = INT64_MAX;
	r = locate(u, e);
	if (r < 0) {
		upstream_free(u);
		return r;
	}
	*ret = u;
	return 0;
}

void upstream_free(struct upstream *u)
{
	if (!u)
		return;
	while (u->calls)
		free_call(u->calls);
	while (u->idle)
		hang_up(u->idle);
	free(u->chunk);
	free(u);
}

uint16_t upstream_port(const struct upstream *u)
{
	return u->origin.scheme == ORIGIN_UNIX ? 0 : u->origin.port;
}
