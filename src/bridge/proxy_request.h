/*
 * proxy_request.h: what a client asks of the network proxy, from a request that wire/http1 has read; no I/O.
 *
 * Two forms. CONNECT HOST:PORT, without a body. Or METHOD http://HOST[:PORT]/path with a Host header that names the same
 * place; https:// in this form would have the proxy see what TLS is to hide, and is refused. What is forwarded is written
 * anew: the path as it came, one Host, framing headers made here, everything that belongs to one connection (and what
 * Connection names) left out. A websocket over plain http does not get through; over CONNECT it does.
 */
#ifndef AIRLOCK_BRIDGE_PROXY_REQUEST_H
#define AIRLOCK_BRIDGE_PROXY_REQUEST_H

#include <stdbool.h>

#include "base/buf.h"
#include "policy/netrule.h"
#include "wire/http1.h"

struct proxy_request {
	bool connect;
	struct net_target to;
	struct view path; /* in h->target; empty: "/" */
	/* when it is refused: status, word for audit lines, text for people */
	int status;
	const char *rule, *why;
};

/* 0 or -EINVAL. h: after HTTP1_HEAD; *ret points into it. */
int proxy_request_parse(const struct http1 *h, struct proxy_request *ret);
/* The head for the server: HTTP/1.1 and "Connection: close", body framed as in h. 0, or as buf_put. */
int proxy_request_head(const struct http1 *h, const struct proxy_request *r, struct buf *out);

#endif
