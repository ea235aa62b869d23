/*
 * upstream.h: the forwarder: requests to the one configured origin.
 *
 * Calls are upstream_http.c, their connections upstream_conn.c, and what these write and read is upstream_wire.h: in clear in
 * airlock-bridge, TLS in airlock-bridge-tls.
 *
 * Fixed for its life: origin, addresses (resolved once, before confinement), certificates, no redirects, no
 * proxy, no cookies, HTTP/1.1. Connections are used again. When one of these dies under a request before any answer, a
 * safe request is sent once more on a new one; an unsafe one ends as UP_LOST, it is never repeated. The target is sent
 * byte for byte. One thread; callbacks come from loop turns, never from upstream_start.
 */
#ifndef AIRLOCK_BRIDGE_UPSTREAM_H
#define AIRLOCK_BRIDGE_UPSTREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/err.h"
#include "os/loop.h"
#include "policy/headers.h"
#include "policy/origin.h"
#include "policy/route.h"

struct upstream;
struct upstream_call;

enum upstream_end {
	UP_OK,
	UP_UNREACHABLE, /* no connection: nothing was sent */
	UP_LOST,	/* ended after the first byte was sent */
	UP_TIME,	/* a limit of the request passed */
	UP_BAD,		/* the answer is no HTTP, or its head is too large */
};

enum upstream_data {
	UPSTREAM_TAKEN,
	UPSTREAM_WAIT, /* not taken; again after upstream_resume */
	UPSTREAM_ABORT
};

struct upstream_request {
	const char *method;
	bool safe;
	struct view target;
	const struct header *headers;
	size_t headers_len;
	struct view body; /* borrowed until the end */
	bool has_body;
	struct bridge_limits limits;
	void *arg;
	/* Final status and headers; the views live for the call only. False: give the request up, end() follows. */
	bool (*head)(void *arg, int status, const struct header *h, size_t n);
	enum upstream_data (*data)(void *arg, const char *p, size_t n);
	/* Last. sent: the request, or part of it, went out. */
	void (*end)(void *arg, enum upstream_end end, bool sent);
};

/* Before confinement: name look-up, libraries, certificates. ca: PEM bundle, used for https only. */
int upstream_new(struct loop *l, const struct origin *o, struct view ca, struct upstream **ret,
		 struct err *e);
void upstream_free(struct upstream *u);
/* TCP port that it connects to; 0: none (unix socket). */
uint16_t upstream_port(const struct upstream *u);
/* NULL: out of memory. Everything but body is copied. */
struct upstream_call *upstream_start(struct upstream *u, const struct upstream_request *q);
/* data() is called again, from upstream_tick. */
void upstream_resume(struct upstream_call *c);
/* No callback comes any more. Not from head() or data(). Returns whether part of the request went out. */
bool upstream_cancel(struct upstream_call *c);
/* To be called after each loop turn; returns when it wants to be called next. */
int64_t upstream_tick(struct upstream *u, int64_t now);

#endif
