/*
 * proxy_conn_internal.h: one connection of the network proxy, as its parts see it: its life, request and verdict
 * (proxy_conn.c), the way to its server (proxy_connect.c), its bytes (proxy_carry.c). Nobody else includes it.
 *
 * Most calls may end the connection and free it: the caller returns after them and does not touch it again.
 */
#ifndef AIRLOCK_BRIDGE_PROXY_CONN_INTERNAL_H
#define AIRLOCK_BRIDGE_PROXY_CONN_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge/proxy.h"

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
	bool written; /* the operator wrote its addresses down */
	struct netaddr addrs[RESOLVER_ADDRS_MAX];
	unsigned addrs_len, addr;
	uint32_t lookup;
	struct tunnel t;
	int64_t deadline_ns, began_ns, began_real_ns;
	int status;
	const char *verdict; /* word for the audit line */
	uint64_t sent;	     /* body bytes before the tunnel */
};

/* --- proxy_conn.c --- */

void proxy_conn_unwatch(struct proxy_conn *c);
void proxy_conn_watch(struct proxy_conn *c, struct loop_watch *w, int fd, uint32_t events);
void proxy_conn_set_deadline(struct proxy_conn *c, int64_t ms);
void proxy_conn_end(struct proxy_conn *c);
/* Bytes of a request that nobody reads would make the end of this socket an error at the other end. */
void proxy_conn_drain(int fd);
void proxy_conn_fail(struct proxy_conn *c, int status, const char *rule, const char *why);
/* What the operator would have to write is part of the answer. */
void proxy_conn_refuse(struct proxy_conn *c, const char *rule, const char *flag, const char *why);

/* --- proxy_connect.c --- */

/* From the target that a rule allows to the first address that may be connected to. */
void proxy_connect_look_up(struct proxy_conn *c);
/* The next address; the last one's failure is the answer. */
void proxy_connect_try_next(struct proxy_conn *c);
void proxy_connect_made(struct proxy_conn *c);

/* --- proxy_carry.c --- */

/* hello: bytes for the client first; in: what it has sent already; muted: it has said all it may. */
void proxy_carry_tunnel(struct proxy_conn *c, const char *hello, bool muted);
/* Looks at what the client has sent into a tunnel to port 443, as far as it is there. */
void proxy_carry_judge_hello(struct proxy_conn *c);
/* The request of a plain HTTP client, on to its server. */
void proxy_carry_begin_send(struct proxy_conn *c);
void proxy_carry_send_on(struct proxy_conn *c);

#endif
