/*
 * gate.h: the gateway inside a sandbox: HTTP/1.1 on loopback, carried to the host over one channel.
 *
 * A client's request becomes a call of the carrier (an HTTP/2 stream, or a pair of files), header for header; the host
 * decides. It runs in the sandbox and can be replaced by anything there: never a boundary control. What it owes its
 * clients is plain HTTP/1.1, bounded waits, and the truth about requests whose outcome it does not know.
 */
#ifndef AIRLOCK_GUEST_GATE_H
#define AIRLOCK_GUEST_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "os/loop.h"
#include "wire/http1.h"

#define GATE_CONNS_MAX 256
#define GATE_WAITING_MAX 64 /* calls that wait for a free stream: 503 beyond */
#define GATE_HEAD_MS 30000  /* a request head, once begun */
#define GATE_KEEP_MS 75000  /* an idle connection; longer than the pools of common clients */
#define GATE_IDLE_MS 30000  /* a client that neither sends its body nor reads its answer */
#define GATE_LINGER_MS 10000
#define GATE_LINGER_LOST_MS 60000 /* how long a gateway without a channel answers 503 */
#define GATE_RECONNECT_MS 15000	  /* how long requests wait for another channel; then 503, 502 */
#define GATE_UP_MAX 131072	  /* bytes of a request body that wait for the channel */
#define GATE_WINDOW (1 << 20)	  /* bytes of an answer that wait for a client */

struct gate;
struct gate_conn;
struct gate_call;

struct gate_config {
	const char *host; /* numeric */
	uint16_t port;	  /* 0: any; then said in `port` of struct gate */
};

/* How a call ended before its answer was whole. */
enum gate_fail {
	GATE_UNAVAILABLE, /* never left: no channel, or too many wait */
	GATE_REFUSED,	  /* the other end did not process it */
	GATE_MALFORMED,	  /* the other end cannot take such a request */
	GATE_TOO_LARGE,	  /* ... such headers */
	GATE_BODY_SIZE,	  /* ... such a body */
	GATE_LOST,	  /* it left, and its outcome is unknown */
};

struct gate_carrier {
	/* NULL: *ret_fail says why; nothing was sent. no_body: nothing will follow. */
	struct gate_call *(*start)(struct gate *g, struct gate_conn *c, const struct http1 *h,
				   enum gate_fail *ret_fail);
	/* Room for body bytes, now. 0: wait, gate_conn_room follows. */
	size_t (*room)(struct gate_call *k);
	void (*body)(struct gate_call *k, const char *p, size_t n);
	void (*body_end)(struct gate_call *k);
	/* The client has taken n bytes of the answer. */
	void (*taken)(struct gate_call *k, size_t n);
	/* The connection is gone, or done with it: no callback comes any more. */
	void (*drop)(struct gate_call *k);
};

struct gate {
	struct loop loop;
	const struct gate_carrier *carrier;
	void *carrier_state;
	int listener;
	struct loop_watch accept_watch;
	struct gate_conn *conns;
	unsigned conns_len;
	bool pending; /* a connection was touched since gate_tick */
	uint16_t port;
};

/* Listens. 0 or a negative errno. */
int gate_listen(struct gate *g, const struct gate_config *c);
/* Writes what is due, looks at limits. Returns when to be called again. */
int64_t gate_tick(struct gate *g, int64_t now);

/* From the carrier, for the call of a connection. Names are lower case. */
void gate_conn_head(struct gate_conn *c, int status);
void gate_conn_header(struct gate_conn *c, const char *name, size_t name_len, const char *value,
		      size_t value_len);
void gate_conn_data(struct gate_conn *c, const char *p, size_t n);
/* The answer is complete: the call is done and will not be dropped. */
void gate_conn_end(struct gate_conn *c);
/* The call is done; with an answer of our own if none has begun. */
void gate_conn_fail(struct gate_conn *c, enum gate_fail why);
void gate_conn_room(struct gate_conn *c);

#endif
