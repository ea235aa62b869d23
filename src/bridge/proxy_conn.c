/*
 * One connection of the network proxy: read a request, judge it, resolve and connect (proxy_connect.c), carry bytes
 * (proxy_carry.c).
 *
 * Policy: nothing is connected to that no rule names. Not done here: which addresses a name may have, and what the
 * client may say on port 443.
 */
#include "bridge/proxy_conn_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

static void on_client(struct loop_watch *w, uint32_t events);
static void on_server(struct loop_watch *w, uint32_t events);

void proxy_conn_unwatch(struct proxy_conn *c)
{
	loop_del(&c->p->loop, &c->client_watch);
	loop_del(&c->p->loop, &c->server_watch);
}

void proxy_conn_watch(struct proxy_conn *c, struct loop_watch *w, int fd, uint32_t events)
{
	if (w->fd >= 0)
		loop_mod(&c->p->loop, w, events);
	else
		(void)loop_add(&c->p->loop, w, fd, events,
			       w == &c->client_watch ? on_client : on_server);
}

void proxy_conn_set_deadline(struct proxy_conn *c, int64_t ms)
{
	c->deadline_ns = clock_mono_ns() + ms * NS_PER_MS;
	if (c->deadline_ns < c->p->due_ns)
		c->p->due_ns = c->deadline_ns;
}

static void write_audit(struct proxy_conn *c)
{
	char place[NET_TARGET_TEXT] = "", method[17] = "";
	uint64_t up = c->sent + c->t.side[0].bytes, down = c->t.side[1].bytes;
	const struct audit_entry line = {
	    .real_ns = c->began_real_ns,
	    .run = c->p->run_id,
	    .upstream = "net",
	    .transport = "proxy",
	    .route_id = c->rule ? c->p->rule_words[c->rule - c->p->rules] : NULL,
	    .target = c->req.to.host[0] ? place : NULL,
	    .method = c->asked ? method : NULL,
	    .rule = c->verdict ? c->verdict : "proxy.gone",
	    .status = c->status,
	    .bytes_in = up,
	    .bytes_out = down,
	    .duration_ns = clock_mono_ns() - c->began_ns,
	    /* Also one that was given up on the way: its server has seen some of it. */
	    .forwarded = c->state == C_TUNNEL || c->state == C_SEND,
	};

	if (c->req.to.host[0])
		net_target_text(&c->req.to, place);
	if (c->asked)
		(void)snprintf(method, sizeof(method), "%.*s", (int)c->h.method.n, c->h.method.p);
	c->p->counts.bytes_up += up;
	c->p->counts.bytes_down += down;
	audit_add(&c->p->audit, &line);
	if (c->p->audit_by_ns == INT64_MAX)
		c->p->audit_by_ns = clock_mono_ns() + 250 * NS_PER_MS;
}

void proxy_conn_end(struct proxy_conn *c)
{
	proxy_conn_unwatch(c);
	if (c->asked || c->verdict)
		write_audit(c);
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	c->p->conns_len--;
	if (c->state == C_LOOKUP && c->lookup)
		c->p->asking--;
	tunnel_done(&c->t);
	cleanup_fd(&c->client);
	cleanup_fd(&c->server);
	http1_done(&c->h);
	buf_done(&c->in);
	buf_done(&c->up);
	free(c);
}

void proxy_conn_drain(int fd)
{
	char sink[4096];

	for (int i = 0; i < 16 && recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0; i++)
		;
}

static void answer(struct proxy_conn *c, int status, const char *rule, const char *why)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8192);

	c->status = status;
	c->verdict = rule;
	if (http1_put_error(&b, NULL, status, rule, why) == 0)
		(void)!send(c->client, b.data, b.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	proxy_conn_drain(c->client);
	proxy_conn_end(c);
}

void proxy_conn_fail(struct proxy_conn *c, int status, const char *rule, const char *why)
{
	c->p->counts.failed++;
	answer(c, status, rule, why);
}

void proxy_conn_refuse(struct proxy_conn *c, const char *rule, const char *flag, const char *why)
{
	char place[NET_TARGET_TEXT], text[1024];

	net_target_text(&c->req.to, place);
	(void)snprintf(text, sizeof(text), "%s %s; allowed by: %s", place, why, flag);
	c->p->counts.refused++;
	proxy_tell_refused(c->p, place, rule);
	answer(c, 403, rule, text);
}

/* --- the request -------------------------------------------------------------------------- */

static void judge(struct proxy_conn *c)
{
	char place[NET_TARGET_TEXT], flag[NET_TARGET_TEXT + 32];

	c->asked = true;
	c->p->counts.connections++;
	if (proxy_request_parse(&c->h, &c->req) < 0) {
		c->p->counts.refused++;
		c->req.to.host[0] = '\0';
		answer(c, c->req.status, c->req.rule, c->req.why);
		return;
	}
	for (size_t i = 0; i < c->p->rules_len && !c->rule; i++)
		if (net_rule_matches(&c->p->rules[i], &c->req.to))
			c->rule = &c->p->rules[i];
	if (!c->rule) {
		net_target_text(&c->req.to, place);
		(void)snprintf(flag, sizeof(flag), "--net allow=%s", place);
		proxy_conn_refuse(c, "net.host", flag, "is not in the allow-list of this run");
		return;
	}
	if (!audit_ready(&c->p->audit)) {
		proxy_conn_fail(c, 503, "audit.full",
				"it could not be recorded: the audit file of this run is full");
		return;
	}
	proxy_connect_look_up(c);
}

static void feed_head(struct proxy_conn *c)
{
	while (c->in.len) {
		struct view piece;
		size_t used = 0;
		enum http1_event ev = http1_feed(&c->h, c->in.data, c->in.len, &used, &piece);

		buf_drop(&c->in, used);
		if (ev == HTTP1_MORE)
			return;
		if (ev == HTTP1_ERROR) {
			c->p->counts.connections++;
			c->p->counts.refused++;
			answer(c, c->h.status, "proxy.syntax", c->h.why);
			return;
		}
		if (ev != HTTP1_HEAD)
			return;
		/* Without a body the end comes at once; what is behind it belongs to the tunnel, or to nobody. */
		if (c->h.content_length == 0) {
			(void)http1_feed(&c->h, "", 0, &used, &piece);
			c->whole = true;
		}
		loop_del(&c->p->loop, &c->client_watch);
		judge(c);
		return;
	}
}

static void on_client(struct loop_watch *w, uint32_t events)
{
	struct proxy_conn *c =
	    (struct proxy_conn *)(void *)((char *)w - offsetof(struct proxy_conn, client_watch));
	/* What a tunnel begins with must have room in its buffer. */
	size_t room = c->state == C_HELLO ? TUNNEL_BUF - c->in.len : READ_CHUNK;
	char *to = buf_room(&c->in, READ_CHUNK);
	ssize_t n =
	    to ? recv(c->client, to, room < READ_CHUNK ? room : READ_CHUNK, MSG_DONTWAIT) : 0;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		if (c->asked)
			c->p->counts.failed++;
		proxy_conn_end(c);
		return;
	}
	buf_add(&c->in, (size_t)n);
	if (c->state == C_HEAD)
		feed_head(c);
	else if (c->state == C_HELLO)
		proxy_carry_judge_hello(c);
	else
		proxy_carry_send_on(c);
}

static void on_server(struct loop_watch *w, uint32_t events)
{
	struct proxy_conn *c =
	    (struct proxy_conn *)(void *)((char *)w - offsetof(struct proxy_conn, server_watch));
	socklen_t len = sizeof(int);
	int error = 0;

	(void)events;
	if (c->state == C_SEND) {
		proxy_carry_send_on(c);
		return;
	}
	if (getsockopt(c->server, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error)
		proxy_connect_try_next(c);
	else
		proxy_connect_made(c);
}

int proxy_conn_new(struct proxy *p, int fd)
{
	struct proxy_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		(void)close(fd);
		return -ENOMEM;
	}
	c->p = p;
	c->client = fd;
	c->server = -1;
	c->client_watch.fd = c->server_watch.fd = -1;
	http1_init(&c->h);
	buf_init(&c->in, 3 * READ_CHUNK);
	buf_init(&c->up, UP_MAX + 3 * READ_CHUNK + HTTP1_LINE_MAX + HTTP1_HEAD_MAX);
	c->began_ns = clock_mono_ns();
	c->began_real_ns = clock_real_ns();
	c->next = p->conns;
	c->link = &p->conns;
	if (c->next)
		c->next->link = &c->next;
	p->conns = c;
	p->conns_len++;
	proxy_conn_set_deadline(c, PROXY_HEAD_MS);
	r = loop_add(&p->loop, &c->client_watch, fd, EPOLLIN, on_client);
	if (r < 0)
		proxy_conn_end(c);
	return r;
}

/* --- time --------------------------------------------------------------------------------- */

static int64_t deadline(const struct proxy_conn *c)
{
	if (c->state != C_TUNNEL)
		return c->deadline_ns;
	return c->t.active_ns +
	       (tunnel_half(&c->t) && c->req.connect ? PROXY_HALF_MS : PROXY_IDLE_MS) * NS_PER_MS;
}

static void expire(struct proxy_conn *c)
{
	switch (c->state) {
	case C_LOOKUP:
		proxy_conn_fail(c, 504, "proxy.name", "the name was not resolved in time");
		return;
	case C_CONNECT:
		proxy_connect_try_next(c);
		return;
	case C_HELLO:
		c->verdict = "tls.time";
		c->p->counts.failed++;
		proxy_conn_end(c);
		return;
	default:
		if (c->state != C_TUNNEL && c->asked)
			c->p->counts.failed++;
		proxy_conn_end(c);
	}
}

int64_t proxy_conns_tick(struct proxy *p, int64_t now)
{
	if (now < p->due_ns)
		return p->due_ns;
	p->due_ns = INT64_MAX;
	for (struct proxy_conn *c = p->conns, *next; c; c = next) {
		next = c->next;
		if (deadline(c) <= now)
			expire(c);
		else if (deadline(c) < p->due_ns)
			p->due_ns = deadline(c);
	}
	return p->due_ns;
}

void proxy_conns_end(struct proxy *p)
{
	while (p->conns)
		proxy_conn_end(p->conns);
}
