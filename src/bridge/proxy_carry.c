/*
 * The bytes of a connection of the network proxy: a tunnel, and the request of a plain HTTP client on to its server.
 *
 * Policy: on port 443 the first message of the client must be TLS and ask for the name that was allowed; of a plain
 * request nothing but this one is ever sent. Not done: looking into TLS. What an allowed server does with the request
 * (another virtual host behind the same name, a service that forwards) is out of sight.
 */
#include "bridge/proxy_conn_internal.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/limits.h"

/* --- the tunnel --------------------------------------------------------------------------- */

static void on_over(struct tunnel *t)
{
	proxy_conn_end((struct proxy_conn *)(void *)((char *)t - offsetof(struct proxy_conn, t)));
}

void proxy_carry_tunnel(struct proxy_conn *c, const char *hello, bool muted)
{
	int client = TAKE_FD(c->client), server = TAKE_FD(c->server);
	int r;

	proxy_conn_unwatch(c);
	c->state = C_TUNNEL;
	c->status = 200;
	c->verdict = "allow";
	c->p->counts.allowed++;
	r = tunnel_start(&c->t, &c->p->loop, client, server, on_over);
	if (r == 0 && muted)
		tunnel_mute(&c->t, 0);
	else if (r == 0 && c->in.len)
		r = tunnel_preload(&c->t, 0, c->in.data, c->in.len);
	if (r == 0 && hello)
		r = tunnel_preload(&c->t, 1, hello, strlen(hello));
	buf_done(&c->in);
	buf_done(&c->up);
	if (r < 0) {
		proxy_conn_end(c);
		return;
	}
	proxy_conn_set_deadline(c, PROXY_IDLE_MS);
	tunnel_kick(&c->t);
}

/* A fatal alert, unrecognized_name: what a TLS client can show. */
static void refuse_tls(struct proxy_conn *c, const char *rule)
{
	static const char alert[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70};
	char place[NET_TARGET_TEXT];

	net_target_text(&c->req.to, place);
	(void)!send(c->client, alert, sizeof(alert), MSG_DONTWAIT | MSG_NOSIGNAL);
	proxy_conn_drain(c->client);
	c->p->counts.refused++;
	proxy_tell_refused(c->p, place, rule);
	c->status = 403;
	c->verdict = rule;
	proxy_conn_end(c);
}

void proxy_carry_judge_hello(struct proxy_conn *c)
{
	char name[TLSHELLO_NAME_MAX + 1];
	size_t n;

	switch (tlshello_name(buf_text(&c->in), c->in.len, name)) {
	case TLSHELLO_MORE:
		return;
	case TLSHELLO_NAME:
		n = strlen(name);
		if (n && name[n - 1] == '.')
			name[n - 1] = '\0';
		if (strcasecmp(name, c->req.to.host) == 0)
			proxy_carry_tunnel(c, NULL, false);
		else
			refuse_tls(c, "tls.name");
		return;
	case TLSHELLO_NONE:
		refuse_tls(c, "tls.no_name");
		return;
	default:
		refuse_tls(c, "tls.not_tls");
	}
}

/* --- the request of a plain HTTP client, on to its server ---------------------------------- */

/* Takes what is there of the body; framed anew, so that nothing but this one request is ever sent. */
static int feed_body(struct proxy_conn *c)
{
	/* The end of a body is an event of its own, which needs no bytes. */
	while (!c->whole && c->up.len < UP_MAX) {
		struct view piece = {NULL, 0};
		size_t used = 0;
		enum http1_event ev = http1_feed(&c->h, buf_text(&c->in), c->in.len, &used, &piece);

		if (ev == HTTP1_BODY) {
			if (c->h.content_length < 0)
				(void)buf_putf(&c->up, "%zx\r\n", piece.n);
			(void)buf_put(&c->up, piece.p, piece.n);
			if (c->h.content_length < 0)
				(void)buf_puts(&c->up, "\r\n");
			c->sent += piece.n;
		} else if (ev == HTTP1_END) {
			c->whole = true;
			if (c->h.content_length < 0)
				(void)buf_puts(&c->up, "0\r\n\r\n");
		} else if (ev == HTTP1_ERROR) {
			return -EPROTO;
		}
		buf_drop(&c->in, used);
		if (ev == HTTP1_MORE)
			break;
	}
	return c->up.err;
}

void proxy_carry_send_on(struct proxy_conn *c)
{
	ssize_t n;

	if (feed_body(c) < 0) {
		proxy_conn_fail(c, 400, "proxy.body", "the body is malformed");
		return;
	}
	while (c->up.len) {
		n = send(c->server, c->up.data, c->up.len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		/* A server may answer and close before it has read all: its answer is what counts. */
		if (n < 0) {
			proxy_carry_tunnel(c, NULL, true);
			return;
		}
		buf_drop(&c->up, (size_t)n);
		proxy_conn_set_deadline(c, PROXY_IDLE_MS);
	}
	if (c->whole && c->up.len == 0) {
		proxy_carry_tunnel(c, NULL, true);
		return;
	}
	proxy_conn_watch(c, &c->server_watch, c->server, c->up.len ? EPOLLOUT : 0);
	if (!c->whole && c->in.len < READ_CHUNK && c->up.len < UP_MAX)
		proxy_conn_watch(c, &c->client_watch, c->client, EPOLLIN);
	else
		loop_del(&c->p->loop, &c->client_watch);
}

void proxy_carry_begin_send(struct proxy_conn *c)
{
	c->state = C_SEND;
	if (proxy_request_head(&c->h, &c->req, &c->up) < 0) {
		proxy_conn_fail(c, 431, "proxy.head", "the head is too long");
		return;
	}
	if (c->h.expect_continue)
		(void)!send(c->client, HTTP1_CONTINUE, strlen(HTTP1_CONTINUE),
			    MSG_DONTWAIT | MSG_NOSIGNAL);
	proxy_conn_set_deadline(c, PROXY_IDLE_MS);
	proxy_carry_send_on(c);
}
