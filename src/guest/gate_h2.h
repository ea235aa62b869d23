/* gate_h2.h: carrier over HTTP/2 on a byte stream, as client. */
#ifndef AIRLOCK_GUEST_GATE_H2_H
#define AIRLOCK_GUEST_GATE_H2_H

#include "guest/gate.h"

struct gate_h2;

/* Takes in and out. The preface goes out with the first tick. 0 or a negative errno. */
int gate_h2_open(struct gate *g, int in, int out, struct gate_h2 **ret);
/* Returns when to be called again. */
int64_t gate_h2_tick(struct gate_h2 *h, int64_t now);
/* Something waits for the next tick. */
bool gate_h2_pending(const struct gate_h2 *h);
/* True once the channel is over; new calls fail then. */
bool gate_h2_lost(const struct gate_h2 *h);
/* The other end said that it is over. */
bool gate_h2_in_order(const struct gate_h2 *h);
/* Every call fails; each says whether it had left. */
void gate_h2_fail_all(struct gate_h2 *h);
void gate_h2_close(struct gate_h2 *h);

#endif
