/*
 * ready.h: where a sandbox's byte stream becomes HTTP/2 (sans-I/O).
 *
 * A gateway says one line, {"version":2,"type":"ready","nonce":"..."}, and right after it the client preface of
 * HTTP/2. Before that line a terminal may have echoed the command: lines that are no JSON object are skipped, at most
 * READY_SKIP_MAX bytes. The first object must be exactly that line, and the preface must follow at once.
 * Until then the host says nothing. Skipped bytes are never shown to anybody.
 */
#ifndef AIRLOCK_BRIDGE_READY_H
#define AIRLOCK_BRIDGE_READY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define READY_NONCE_LEN 32    /* hex digits */
#define READY_SKIP_MAX 266240 /* bytes before the preface (as the peer: 262144 + 4096) */

struct ready {
	char nonce[READY_NONCE_LEN + 1];
	struct buf in; /* what came and is not judged yet */
	size_t seen;
	bool said;  /* the line is accepted; the preface is awaited */
	bool alone; /* no preface follows: of a queue */
};

void ready_init(struct ready *r, const char *nonce);
void ready_done(struct ready *r);
/*
 * Takes n more bytes. 1: r->in holds the preface and whatever follows it; 0: more is needed; negative with e:
 * this stream will never be a session.
 */
int ready_feed(struct ready *r, const void *p, size_t n, struct err *e);

#endif
