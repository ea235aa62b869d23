/*
 * gate_h2.h: carrier over HTTP/2 on a byte stream, as client; over one stream after the other where it is told so.
 *
 * When a stream is lost, what became of each request decides: never sent, or without effect by its method, or cut off in
 * its upload (then the host has not sent it on): it waits for the next stream, as new requests do, at most
 * GATE_RECONNECT_MS; a body of which a part has gone is not kept, that request is answered 503. One that had gone whole and may
 * have an effect is answered as indeterminate (409). None is ever sent twice that may have an effect.
 */
#ifndef AIRLOCK_GUEST_GATE_H2_H
#define AIRLOCK_GUEST_GATE_H2_H

#include "os/gate.h"

struct gate_h2;

/* Carries for g. Calls wait for a stream. 0 or a negative errno. */
int gate_h2_new(struct gate *g, struct gate_h2 **ret);
/* Takes in and out, in place of a stream that is lost. The preface goes out with the next tick. 0 or a negative errno. */
int gate_h2_attach(struct gate_h2 *h, int in, int out);
/* Returns when to be called again. */
int64_t gate_h2_tick(struct gate_h2 *h, int64_t now);
/* Something waits for the next tick. */
bool gate_h2_pending(const struct gate_h2 *h);
/* True while there is a stream. */
bool gate_h2_up(const struct gate_h2 *h);
/* The other end said that it is over. */
bool gate_h2_in_order(const struct gate_h2 *h);
/* No stream will follow the one that is there or was: calls do not wait any more. */
void gate_h2_last(struct gate_h2 *h);
void gate_h2_free(struct gate_h2 *h);

#endif
