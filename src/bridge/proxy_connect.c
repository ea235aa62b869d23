/*
 * The way from an allowed target to its server: look the name up, judge its addresses, connect.
 *
 * Policy: no address that is not public is connected to unless the operator wrote that address down; the address that
 * was judged is the one that is connected to. Not done here: which names are allowed (proxy_conn.c).
 */
#include "bridge/proxy_conn_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "bridge/ownaddr.h"

#define ESTABLISHED "HTTP/1.1 200 Connection established\r\n\r\n"

void proxy_connect_made(struct proxy_conn *c)
{
	const int on = 1;

	loop_del(&c->p->loop, &c->server_watch);
	(void)setsockopt(c->server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(c->server, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (!c->req.connect) {
		proxy_carry_begin_send(c);
	} else if (c->req.to.port != NET_DEFAULT_PORT || c->req.to.literal) {
		proxy_carry_tunnel(c, ESTABLISHED, false);
	} else {
		(void)!send(c->client, ESTABLISHED, strlen(ESTABLISHED),
			    MSG_DONTWAIT | MSG_NOSIGNAL);
		c->state = C_HELLO;
		proxy_conn_set_deadline(c, PROXY_HEAD_MS);
		proxy_conn_watch(c, &c->client_watch, c->client, EPOLLIN);
		if (c->in.len)
			proxy_carry_judge_hello(c);
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

void proxy_connect_try_next(struct proxy_conn *c)
{
	loop_del(&c->p->loop, &c->server_watch);
	cleanup_fd(&c->server);
	c->state = C_CONNECT;
	while (c->addr < c->addrs_len) {
		const struct netaddr *a = &c->addrs[c->addr++];

		/* Once more: the one before may have taken its time, and this one be ours since. */
		if ((!c->written && ownaddr_ask(c->p->own, a) != 0) ||
		    dial(a, c->req.to.port, &c->server) < 0)
			continue;
		proxy_conn_set_deadline(c, PROXY_CONNECT_MS);
		proxy_conn_watch(c, &c->server_watch, c->server, EPOLLOUT);
		return;
	}
	proxy_conn_fail(c, 502, "proxy.unreachable", "the server cannot be reached");
}

/* addrs are all there are. What may not be connected to is dropped; nothing left: refused. */
static void judge_addresses(struct proxy_conn *c)
{
	char text[NETADDR_TEXT] = "", why[200], flag[NET_TARGET_TEXT + NETADDR_TEXT + 32];
	const char *kind = "";
	unsigned kept = 0;

	for (unsigned i = 0; i < c->addrs_len; i++) {
		const struct netaddr *a = &c->addrs[i];
		enum netaddr_class class = netaddr_classify(a);
		bool may = c->written || class == NETADDR_PUBLIC;
		int own = may && !c->written ? ownaddr_ask(c->p->own, a) : 0;

		if (may && own == 0) {
			c->addrs[kept++] = *a;
		} else if (!*text) {
			netaddr_text(a, text);
			kind = own > 0	 ? "this machine's own"
			       : own < 0 ? "not known whether it is this machine's own"
					 : netaddr_class_name(class);
		}
	}
	if (c->addrs_len == 0) {
		proxy_conn_fail(c, 502, "proxy.name", "the name has no address");
		return;
	}
	c->addrs_len = kept;
	if (kept) {
		proxy_connect_try_next(c);
		return;
	}
	(void)snprintf(why, sizeof(why), "resolves to %s, an address of kind: %s", text, kind);
	(void)snprintf(flag, sizeof(flag), "--resolve %s:%u:%s", c->req.to.host, c->req.to.port,
		       text);
	proxy_conn_refuse(c, "net.address", flag, why);
}

static void use_answer(struct proxy_conn *c, const struct resolver_answer *a)
{
	memcpy(c->addrs, a->addrs, sizeof(c->addrs));
	c->addrs_len = a->n;
	judge_addresses(c);
}

void proxy_connect_answer(struct proxy *p, const struct resolver_answer *a)
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

void proxy_connect_look_up(struct proxy_conn *c)
{
	struct proxy *p = c->p;
	int64_t now = clock_mono_ns();

	c->state = C_LOOKUP;
	for (size_t i = 0; i < p->pins_len; i++)
		if (p->pins[i].from.port == c->req.to.port &&
		    strcmp(p->pins[i].from.host, c->req.to.host) == 0 &&
		    c->addrs_len < RESOLVER_ADDRS_MAX) {
			c->written = true;
			c->addrs[c->addrs_len++] = p->pins[i].addr;
		}
	if (c->req.to.literal) {
		c->written = true;
		c->addrs[c->addrs_len++] = c->req.to.addr;
	}
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
		proxy_conn_fail(c, 503, "proxy.busy", "too many names are being looked up");
		return;
	}
	/* 0 is nobody's. */
	c->lookup = ++p->next_id ? p->next_id : ++p->next_id;
	p->asking++;
	proxy_conn_set_deadline(c, RESOLVER_TRY_MS);
	if (resolver_ask(p->resolver, c->lookup, c->req.to.host) < 0)
		proxy_conn_fail(c, 502, "proxy.name", "the name cannot be looked up");
}
