/*
 * Policy of door 2 here: bytes go to one origin, which was fixed before the first foreign byte came in; no answer of the
 * upstream makes this process connect elsewhere, send an unsafe request twice, or remember anything; a connection whose
 * last answer did not end cleanly carries no further request. Not done here: what may be sent (guard.h), TLS
 * (upstream_tls.c).
 *
 * Without a library: what libcurl does beside this (three polls a request, a state machine per transfer, thirty shared
 * objects) is half of the bridge's time and most of its memory.
 */
#include "bridge/upstream.h"
#include "bridge/upstream_http_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define HEAD_OUT_MAX 65536
#define HEAD_MOST 500

void upstream_http_soon(struct upstream *u, int64_t when)
{
	if (when < u->due_ns)
		u->due_ns = when;
}

/* Ends. ------------------------------------------------------------------------------------ */

static void free_call(struct upstream_call *c)
{
	if (c->conn)
		upstream_conn_hang_up(c->conn);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	buf_done(&c->head);
	free(c);
}

void upstream_http_finish(struct upstream_call *c, enum upstream_end end)
{
	struct upstream_request q = c->q;
	bool sent = c->sent;

	free_call(c);
	q.end(q.arg, end, sent);
}

/* Requests. -------------------------------------------------------------------------------- */

static int put_head(struct upstream_call *c, const struct upstream_request *q)
{
	struct buf *b = &c->head;

	/* Most fit: one allocation. */
	(void)buf_room(b, HEAD_MOST);
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
	/* Not from here: callbacks come from loop turns, and an idle connection may have an event in this one. */
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
		upstream_http_finish(c, UP_TIME);
		return false;
	}
	if (c->waits && now >= c->again_ns) {
		c->waits = false;
		return c->conn || (c->at == 0 && upstream_conn_reuse(c, now))
			   ? upstream_conn_send_more(c)
			   : upstream_conn_begin(c);
	}
	if (c->resume) {
		c->moved_ns = now;
		upstream_conn_go_on(c);
		return false;
	}
	return true;
}

static void drop_old(struct upstream *u, int64_t now)
{
	for (struct conn *k = u->idle, *next; k; k = next) {
		next = k->next;
		if (now - k->idle_ns >= BRIDGE_KEEPALIVE_MS * NS_PER_MS)
			upstream_conn_hang_up(k);
		else
			upstream_http_soon(u, k->idle_ns + BRIDGE_KEEPALIVE_MS * NS_PER_MS);
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
		upstream_http_soon(u, call_due(c));
		if (c->waits)
			upstream_http_soon(u, c->again_ns);
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

	if (u->origin.scheme != ORIGIN_UNIX)
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

	if (!u || !(u->chunk = malloc(READ_CHUNK))) {
		free(u);
		return err_set(e, ERR_NOMEM, "upstream: out of memory");
	}
	u->loop = l;
	u->origin = *o;
	u->due_ns = INT64_MAX;
	r = wire_new(o, ca, &u->wire, e);
	if (r == 0)
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
		upstream_conn_hang_up(u->idle);
	wire_free(u->wire);
	free(u->chunk);
	free(u);
}

uint16_t upstream_port(const struct upstream *u)
{
	return u->origin.scheme == ORIGIN_UNIX ? 0 : u->origin.port;
}
