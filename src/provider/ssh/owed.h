/*
 * owed.h: how many answers a guest on another machine may still give.
 *
 * Every event of the protocol answers a request, so their number is bounded by what we have asked; more is a flood, and the
 * session ends. Of RM_FAULT, which answers whatever went wrong, there is one.
 */
#ifndef AIRLOCK_PROVIDER_SSH_OWED_H
#define AIRLOCK_PROVIDER_SSH_OWED_H

#include <stdbool.h>
#include <stdint.h>

enum owed_kind {
	OWED_OPEN,
	OWED_LAND,
	OWED_START,
	OWED_STARTED, /* of a command; one that failed may have none */
	OWED_LAST,    /* of a command: its last event */
	OWED_PACK,
	OWED_PING,
	OWED_BOX,
	OWED_HOLD,
	OWED_OOM, /* of a command at most one */
	OWED_KINDS
};

struct owed {
	uint32_t n[OWED_KINDS];
	bool faulted;
};

/* A request goes out. */
void owed_request(struct owed *o, uint8_t type);
/* An event came: false, nobody asked for it. */
bool owed_event(struct owed *o, uint8_t type);

#endif
