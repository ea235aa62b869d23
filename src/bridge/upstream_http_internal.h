/*
 * upstream_http_internal.h: what the calls (upstream_http.c) and their connections (upstream_conn.c) share. Nobody else
 * includes it.
 *
 * A call owns its connection while it has one; the list of its upstream owns an idle one. A function that says "the call
 * is over" has freed it.
 */
#ifndef AIRLOCK_BRIDGE_UPSTREAM_HTTP_INTERNAL_H
#define AIRLOCK_BRIDGE_UPSTREAM_HTTP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/limits.h"
#include "bridge/upstream.h"
#include "bridge/upstream_resolve.h"
#include "bridge/upstream_wire.h"
#include "wire/http1.h"

#define READ_CHUNK 32768

struct conn {
	struct loop_watch w; /* off while the sandbox has no room */
	int fd;
	struct wire_end *wire; /* owned */
	struct upstream *u;
	struct upstream_call *call; /* NULL: idle */
	struct conn *next, **prev;  /* among the idle ones */
	struct http1 p;
	struct buf rest; /* what came behind a piece that was not taken */
	size_t piece;	 /* that many bytes of it are body already */
	int64_t idle_ns; /* since then */
	uint64_t look;	 /* of the loop, when it became idle */
	bool connecting; /* or greeting */
	bool greeting, used, heard, eof;
	bool read_writes; /* to read, something of TLS must be written first */
};

struct upstream {
	struct loop *loop;
	struct origin origin;
	struct wire *wire; /* owned; NULL in clear */
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

/* --- upstream_http.c --- */

/* The next tick comes no later than `when`. */
void upstream_http_soon(struct upstream *u, int64_t when);
/* Frees the call and its connection, then tells the caller. */
void upstream_http_finish(struct upstream_call *c, enum upstream_end end);

/* --- upstream_conn.c --- */

void upstream_conn_unlist(struct conn *k);
void upstream_conn_hang_up(struct conn *k);
/*
 * Gives the call one that nothing has come on since its last answer: neither an end, nor an answer that nobody asked for. To be called
 * when the events of the turn have been dealt with. False: there is none.
 */
bool upstream_conn_reuse(struct upstream_call *c, int64_t now);
/* Dials, or sends on what is there. False: the call is over. */
bool upstream_conn_begin(struct upstream_call *c);
/* False: the call is over. */
bool upstream_conn_send_more(struct upstream_call *c);
/* What waited, then the connection again. */
void upstream_conn_go_on(struct upstream_call *c);

#endif
