/*
 * outbox.h: events on their way to the launcher.
 *
 * Never waits: what the socket does not take stays here. Bounded: whoever makes events stops when outbox_full
 * says so, and OUTBOX_MAX lies far above what one turn can add after that.
 */
#ifndef AIRLOCK_GUEST_OUTBOX_H
#define AIRLOCK_GUEST_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/guest.h"

struct outbox {
	int fd;	     /* borrowed */
	bool gone;   /* nobody reads any more: events are dropped */
	bool broken; /* a bug of ours: an event that does not fit */
	struct buf b;
};

void outbox_init(struct outbox *o, int fd);
/* True: no request is to be read and no command asked until some of it has gone. */
bool outbox_full(const struct outbox *o);
void outbox_flush(struct outbox *o);
/* One frame as it is. */
void outbox_put(struct outbox *o, uint8_t type, const struct buf *payload);
void outbox_started(struct outbox *o, uint32_t id, uint32_t pid);
void outbox_failed(struct outbox *o, uint32_t id, int error, const char *step);
void outbox_exited(struct outbox *o, const struct gm_exited *m);
void outbox_packed(struct outbox *o, const struct gm_packed *m);

#endif
