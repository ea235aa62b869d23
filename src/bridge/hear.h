/*
 * hear.h: how the engine's side listens to a helper, airlock-bridge or airlock-proxy: frame by frame, to its end.
 *
 * The words differ (bridge_proto.h, proxy_proto.h) and so are their client's; that a channel which ends is a helper which is
 * lost, and that one which is not ready in time is lost as well, is the same.
 */
#ifndef AIRLOCK_BRIDGE_HEAR_H
#define AIRLOCK_BRIDGE_HEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "os/chan.h"

/* Everything is borrowed. */
struct hear {
	struct chan *ch;
	const char *name; /* of the program */
	void *client;
	void (*take)(void *client, const struct frame *f);
	void (*lose)(void *client, const char *why); /* sets *lost, if it was not */
	const bool *ready, *lost;
};

/* One frame, or the end. False: nothing until the deadline, or the end (then it is lost). */
bool hear_frame(const struct hear *h, int64_t deadline, struct frame *f);
/* Until it is ready. False: it is lost; late says why, where nothing else does. */
bool hear_ready(const struct hear *h, int64_t deadline, const char *late);

#endif
