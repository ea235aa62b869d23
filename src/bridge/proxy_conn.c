/*
 * One connection of the network proxy: read a request, judge it, resolve, judge the address, connect, carry bytes.
 *
 * Policy: nothing is connected to that no rule names, and no address that is not public unless the operator wrote that
 * address down; the address that was judged is the one that is connected to. On port 443 the first message of the client
 * must be TLS and ask for the name that was allowed. Not done: looking into TLS. What an allowed server does with the
 * request (another virtual host behind the same name, a service that forwards) is out of sight.
 */
#include "bridge/proxy.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define READ_CHUNK 16384
#define UP_MAX (4 * READ_CHUNK)

enum conn_state { C_HEAD, C_LOOKUP, C_CONNECT, C_SEND, C_HELLO, C_TUNNEL };

struct proxy_conn {
	struct proxy *p;
	struct proxy_conn *next, **link;
	enum conn_state state;
	int client, server; /* owned until the tunnel has them */
	struct loop_watch client_watch, server_watch;
	struct http1 h;
	struct proxy_request req;
	struct buf in, up; /* from the client, not yet used; for the server */
	bool asked, whole; /* whole: the request was read to its end */
	const struct net_rule *rule;
	bool pinned;
	struct netaddr addrs[RESOLVER_ADDRS_MAX];
	unsigned addrs_len, addr;
	uint32_t lookup;
	struct tunnel t;
	int64_t deadline_ns, began_ns, began_real_ns;
	int status;
	const char *verdict; /* word for the audit line */
	uint64_t sent;	     /* body bytes before the tunnel */
};

static void unwatch(struct proxy_conn *c)
{
	loop_del(&c->p->loop, &c->client_watch);
	loop_del(&c->p->loop, &c->server_watch);
}

static void set_deadline(struct proxy_conn *c, int64_t ms)
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
	    .forwarded = c->state == C_TUNNEL,
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

static void end(struct proxy_conn *c)
{
	unwatch(c);
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

/* Bytes of a request that nobody reads would make the end of this socket an error at the other end. */
static void drain(int fd)
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
	drain(c->client);
	end(c);
}

static void fail(struct proxy_conn *c, int status, const char *rule, const char *why)
{
	c->p->counts.failed++;
	answer(c, status, rule, why);
}

/* What the operator would have to write is part of the answer. */
static void refuse(struct proxy_conn *c, const char *rule, const char *flag, const char *why)
{
	char place[NET_TARGET_TEXT], text[1024];

	net_target_text(&c->req.to, place);
	(void)snprintf(text, sizeof(text), "%s %s; allowed by: %s", place, why, flag);
	c->p->counts.refused++;
	proxy_tell_refused(c->p, place, rule);
	answer(c, 403, rule, text);
}

/* --- carrying ----------------------------------------------------------------------------- */

static void on_over(struct tunnel *t)
{
	end((struct proxy_conn *)(void *)((char *)t - offsetof(struct proxy_conn, t)));
}

/* hello: bytes for the client first; in: what it has sent already; muted: it has said all it may. */
static void begin_tunnel(struct proxy_conn *c, const char *hello, bool muted)
{
	int client = TAKE_FD(c->client), server = TAKE_FD(c->server);
	int r;

	unwatch(c);
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
		end(c);
		return;
	}
	set_deadline(c, PROXY_IDLE_MS);
	tunnel_kick(&c->t);
}

#define ESTABLISHED "HTTP/1.1 200 Connection established\r\n\r\n"

/* A fatal alert, unrecognized_name: what a TLS client can show. */
static void refuse_tls(struct proxy_conn *c, const char *rule)
{
	static const char alert[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70};
	char place[NET_TARGET_TEXT];

	net_target_text(&c->req.to, place);
	(void)!send(c->client, alert, sizeof(alert), MSG_DONTWAIT | MSG_NOSIGNAL);
	drain(c->client);
	c->p->counts.refused++;
	proxy_tell_refused(c->p, place, rule);
	c->status = 403;
	c->verdict = rule;
	end(c);
}

static void judge_hello(struct proxy_conn *c)
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
			begin_tunnel(c, NULL, false);
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

static void on_client(struct loop_watch *w, uint32_t events);
static void on_server(struct loop_watch *w, uint32_t events);

/* Takes what is there of the body; framed anew, so that nothing but this one request is ever sent. */
static int feed_body(struct proxy_conn *c)
{
	/* The end of a body is an event of its own, which needs no bytes. */
	while (!c->whole && c->up.len < UP_MAX) {
		struct view piece = {NULL, 0};
		size_t used = 0;
		enum http1_event ev =
		    http1_feed(&c->h, buf_text(&c->in), c->in.len, &used, &piece);

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

static void watch(struct proxy_conn *c, struct loop_watch *w, int fd, uint32_t events)
{
	if (w->fd >= 0)
		loop_mod(&c->p->loop, w, events);
	else
		(void)loop_add(&c->p->loop, w, fd, events,
			       w == &c->client_watch ? on_client : on_server);
}

static void send_on(struct proxy_conn *c)
{
	ssize_t n;

	if (feed_body(c) < 0) {
		fail(c, 400, "proxy.body", "the body is malformed");
		return;
	}
	while (c->up.len) {
		n = send(c->server, c->up.data, c->up.len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		/* A server may answer and close before it has read all: its answer is what counts. */
		if (n < 0) {
			begin_tunnel(c, NULL, true);
			return;
		}
		buf_drop(&c->up, (size_t)n);
		set_deadline(c, PROXY_IDLE_MS);
	}
	if (c->whole && c->up.len == 0) {
		begin_tunnel(c, NULL, true);
		return;
	}
	watch(c, &c->server_watch, c->server, c->up.len ? EPOLLOUT : 0);
	if (!c->whole && c->in.len < READ_CHUNK && c->up.len < UP_MAX)
		watch(c, &c->client_watch, c->client, EPOLLIN);
	else
		loop_del(&c->p->loop, &c->client_watch);
}

static void begin_send(struct proxy_conn *c)
{
	c->state = C_SEND;
	if (proxy_request_head(&c->h, &c->req, &c->up) < 0) {
		fail(c, 431, "proxy.head", "the head is too long");
		return;
	}
	if (c->h.expect_continue)
		(void)!send(c->client, HTTP1_CONTINUE, strlen(HTTP1_CONTINUE),
			    MSG_DONTWAIT | MSG_NOSIGNAL);
	set_deadline(c, PROXY_IDLE_MS);
	send_on(c);
}

/* --- connecting --------------------------------------------------------------------------- */

static void connected(struct proxy_conn *c)
{
	const int on = 1;

	loop_del(&c->p->loop, &c->server_watch);
	(void)setsockopt(c->server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(c->server, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (!c->req.connect) {
		begin_send(c);
	} else if (c->req.to.port != NET_DEFAULT_PORT || c->req.to.literal) {
		begin_tunnel(c, ESTABLISHED, false);
	} else {
		(void)!send(c->client, ESTABLISHED, strlen(ESTABLISHED),
			    MSG_DONTWAIT | MSG_NOSIGNAL);
		c->state = C_HELLO;
		set_deadline(c, PROXY_HEAD_MS);
		watch(c, &c->client_watch, c->client, EPOLLIN);
		if (c->in.len)
			judge_hello(c);
	}
}

static int dial(const struct netaddr *a, uint16_t port, int *ret)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	_cleanup_fd_ int fd = socket(a->v6 ? AF_INET6 : AF_INET,
				     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
	int r;

	if (fd < 0)
		return -errno;
	memcpy(&v4.sin_addr, a->b, 4);
	memcpy(&v6.sin6_addr, a->b, 16);
	r = a->v6 ? connect(fd, (struct sockaddr *)&v6, sizeof(v6))
		  : connect(fd, (struct sockaddr *)&v4, sizeof(v4));
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	*ret = TAKE_FD(fd);
	return 0;
}

/* The next address; the last one's failure is the answer. */
static void try_next(struct proxy_conn *c)
{
	loop_del(&c->p->loop, &c->server_watch);
	cleanup_fd(&c->server);
	c->state = C_CONNECT;
	while (c->addr < c->addrs_len) {
		if (dial(&c->addrs[c->addr++], c->req.to.port, &c->server) < 0)
			continue;
		set_deadline(c, PROXY_CONNECT_MS);
		watch(c, &c->server_watch, c->server, EPOLLOUT);
		return;
	}
	fail(c, 502, "proxy.unreachable", "the server cannot be reached");
}

static bool own_address(const struct proxy *p, const struct netaddr *a)
{
	for (size_t i = 0; i < p->own_len; i++)
		if (netaddr_equal(&p->own[i], a))
			return true;
	return false;
}

/* addrs are all there are. What may not be connected to is dropped; nothing left: refused. */
static void judge_addresses(struct proxy_conn *c)
{
	bool written = c->pinned || c->req.to.literal;
	char text[NETADDR_TEXT] = "", why[200], flag[NET_TARGET_TEXT + NETADDR_TEXT + 32];
	const char *kind = "";
	unsigned kept = 0;

	for (unsigned i = 0; i < c->addrs_len; i++) {
		const struct netaddr *a = &c->addrs[i];
		enum netaddr_class class = netaddr_classify(a);

		if (written || (class == NETADDR_PUBLIC && !own_address(c->p, a))) {
			c->addrs[kept++] = *a;
		} else if (!*text) {
			netaddr_text(a, text);
			kind = class == NETADDR_PUBLIC ? "this machine's own"
						       : netaddr_class_name(class);
		}
	}
	if (c->addrs_len == 0) {
		fail(c, 502, "proxy.name", "the name has no address");
		return;
	}
	c->addrs_len = kept;
	if (kept) {
		try_next(c);
		return;
	}
	(void)snprintf(why, sizeof(why), "resolves to %s, an address of kind: %s", text, kind);
	(void)snprintf(flag, sizeof(flag), "--resolve %s:%u:%s", c->req.to.host, c->req.to.port,
		       text);
	refuse(c, "net.address", flag, why);
}

static void use_answer(struct proxy_conn *c, const struct resolver_answer *a)
{
	memcpy(c->addrs, a->addrs, sizeof(c->addrs));
	c->addrs_len = a->n;
	judge_addresses(c);
}

void proxy_conn_answer(struct proxy *p, const struct resolver_answer *a)
{
	for (struct proxy_conn *c = p->conns; c; c = c->next) {
		struct proxy_name *n;

		if (c->state != C_LOOKUP || c->lookup != a->id)
			continue;
		c->lookup = 0;
		p->asking--;
		if (a->n) {
			n = &p->cache[p->cache_at++ % PROXY_CACHE];
			memcpy(n->host, c->req.to.host, sizeof(n->host));
			n->answer = *a;
			n->until_ns = clock_mono_ns() + PROXY_CACHE_MS * NS_PER_MS;
		}
		use_answer(c, a);
		return;
	}
}

static void look_up(struct proxy_conn *c)
{
	struct proxy *p = c->p;
	int64_t now = clock_mono_ns();

	c->state = C_LOOKUP;
	for (size_t i = 0; i < p->pins_len; i++)
		if (p->pins[i].from.port == c->req.to.port &&
		    strcmp(p->pins[i].from.host, c->req.to.host) == 0 &&
		    c->addrs_len < RESOLVER_ADDRS_MAX) {
			c->pinned = true;
			c->addrs[c->addrs_len++] = p->pins[i].addr;
		}
	if (c->req.to.literal)
		c->addrs[c->addrs_len++] = c->req.to.addr;
	if (c->addrs_len) {
		judge_addresses(c);
		return;
	}
	for (size_t i = 0; i < PROXY_CACHE; i++)
		if (p->cache[i].until_ns > now && strcmp(p->cache[i].host, c->req.to.host) == 0) {
			use_answer(c, &p->cache[i].answer);
			return;
		}
	if (p->asking == PROXY_LOOKUPS_MAX) {
		fail(c, 503, "proxy.busy", "too many names are being looked up");
		return;
	}
	/* 0 is nobody's. */
	c->lookup = ++p->next_id ? p->next_id : ++p->next_id;
	p->asking++;
	set_deadline(c, RESOLVER_TRY_MS);
	if (resolver_ask(p->resolver, c->lookup, c->req.to.host) < 0)
		fail(c, 502, "proxy.name", "the name cannot be looked up");
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
		refuse(c, "net.host", flag, "is not in the allow-list of this run");
		return;
	}
	look_up(c);
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
	ssize_t n = to ? recv(c->client, to, room < READ_CHUNK ? room : READ_CHUNK, MSG_DONTWAIT) : 0;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		if (c->asked)
			c->p->counts.failed++;
		end(c);
		return;
	}
	buf_add(&c->in, (size_t)n);
	if (c->state == C_HEAD)
		feed_head(c);
	else if (c->state == C_HELLO)
		judge_hello(c);
	else
		send_on(c);
}

static void on_server(struct loop_watch *w, uint32_t events)
{
	struct proxy_conn *c =
	    (struct proxy_conn *)(void *)((char *)w - offsetof(struct proxy_conn, server_watch));
	socklen_t len = sizeof(int);
	int error = 0;

	(void)events;
	if (c->state == C_SEND) {
		send_on(c);
		return;
	}
	if (getsockopt(c->server, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error)
		try_next(c);
	else
		connected(c);
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
	set_deadline(c, PROXY_HEAD_MS);
	r = loop_add(&p->loop, &c->client_watch, fd, EPOLLIN, on_client);
	if (r < 0)
		end(c);
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
		fail(c, 504, "proxy.name", "the name was not resolved in time");
		return;
	case C_CONNECT:
		try_next(c);
		return;
	case C_HELLO:
		c->verdict = "tls.time";
		c->p->counts.failed++;
		end(c);
		return;
	default:
		if (c->state != C_TUNNEL && c->asked)
			c->p->counts.failed++;
		end(c);
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
		end(p->conns);
}
