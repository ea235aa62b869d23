/*
 * gate.h: an HTTP/1.1 server for the clients inside a sandbox, whoever carries their requests on.
 *
 * Two programs have it. airlock-gateway runs inside and carries requests to the host over one channel: it can be replaced by anything
 * there, and is never a boundary control. airlock-bridge runs outside, with the run's credential, where a sandbox's network gave it
 * a listening socket of its own; there `wary` is set, and the guard behind the carrier judges every request.
 * A client's request becomes a call of the carrier (an HTTP/2 stream, a pair of files, an exchange), header for header. What is owed to
 * clients is plain HTTP/1.1, bounded waits, and the truth about requests whose outcome is not known.
 *
 * Floods (wary). Connections take tokens from one bucket, bytes that cost their sender nothing from another, each of GATE_NOISE_BURST, which
 * fill by GATE_NOISE_RATE a second and by two for each request: a connection takes one, a read of less than 64 bytes that ends
 * neither a head nor a body a fifth, what is no request at all, or one beyond those that may wait, ten. While the first is empty
 * nothing is accepted, while the second is nothing is read, and no client's time passes.
 *
 * Memory of a connection: what one read brings (16 KiB), a head (HTTP1_LINE_MAX + HTTP1_HEAD_MAX), and of the answer what the carrier
 * gives it beyond what the client has taken (gate_conn_queued).
 */
#ifndef AIRLOCK_OS_GATE_H
#define AIRLOCK_OS_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"
#include "os/loop.h"
#include "wire/http1.h"

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
	/*
	 * NULL: *ret_fail says why; nothing was sent. h stays as it is until the call is done or dropped. It may be answered before this
	 * returns; answered whole, it is done.
	 */
	struct gate_call *(*start)(struct gate *g, struct gate_conn *c, const struct http1 *h,
				   enum gate_fail *ret_fail);
	/* Room for body bytes, now. 0: wait, gate_conn_room follows. */
	size_t (*room)(struct gate_call *k);
	void (*body)(struct gate_call *k, const char *p, size_t n);
	void (*body_end)(struct gate_call *k);
	/* The client has taken n bytes of the answer. May be NULL. */
	void (*taken)(struct gate_call *k, size_t n);
	/* The connection is gone, or done with it: no callback comes any more. */
	void (*drop)(struct gate_call *k);
	/* What came was no request, and was answered so. May be NULL. */
	void (*malformed)(struct gate *g, int status);
};

/* What is true of a connection should this process end now. */
enum gate_word {
	GATE_WORD_NONE,	  /* nothing was asked, or all of it answered */
	GATE_WORD_UNSENT, /* a request that the carrier has not whole */
	GATE_WORD_SAFE,	  /* it has; its method has no effect */
	GATE_WORD_UNSAFE, /* it has */
	GATE_WORD_CUT,	  /* a part of the answer may be out */
};

struct gate {
	struct loop *loop; /* the owner's */
	const struct gate_carrier *carrier;
	void *carrier_state;
	int listener; /* owned; -1: nothing is accepted any more */
	struct loop_watch accept_watch;
	struct gate_conn *conns;
	unsigned conns_len;
	size_t queued; /* bytes of all answers that clients have not taken, or more */
	bool pending;  /* a connection was touched since gate_tick */
	bool wary;     /* whoever connects is not trusted */
	bool last;     /* each connection ends with its answer */
	bool hushed;   /* nothing is read, since then */
	bool full; /* nothing is accepted, since then, for want of tokens, descriptors or memory */
	int64_t hushed_ns, full_ns;
	double noise, knocks; /* tokens left, for reading and for accepting */
	int64_t noise_ns;
	uint16_t port;
	unsigned char *words; /* borrowed: by descriptor, enum gate_word; NULL: nobody reads them */
	int words_len;
};

/* Listens. 0 or a negative errno. */
int gate_listen(struct gate *g, const struct gate_config *c);
/* The same with a socket that listens already; it is taken over and made non-blocking. */
int gate_serve(struct gate *g, int listener);
/* Writes what is due, looks at limits. Returns when to be called again. */
int64_t gate_tick(struct gate *g, int64_t now);
/* No new connection, and no further request on one. */
void gate_stop(struct gate *g);
/* Connections whose request is under way, or whose answer is not out. */
unsigned gate_busy(const struct gate *g);
/* Cuts every connection and drops its call. */
void gate_done(struct gate *g);

/* From the carrier, for the call of a connection. Names are lower case. */
void gate_conn_head(struct gate_conn *c, int status);
void gate_conn_header(struct gate_conn *c, const char *name, size_t name_len, const char *value,
		      size_t value_len);
void gate_conn_data(struct gate_conn *c, const char *p, size_t n);
/* Bytes of the answer that the client has not taken. */
size_t gate_conn_queued(const struct gate_conn *c);
/* The answer is complete: the call is done and will not be dropped. */
void gate_conn_end(struct gate_conn *c);
/* The call is done; with an answer of our own if none has begun. */
void gate_conn_fail(struct gate_conn *c, enum gate_fail why);
/* Not from inside of a callback of the carrier. */
void gate_conn_room(struct gate_conn *c);

#endif
