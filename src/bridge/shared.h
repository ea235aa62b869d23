/*
 * shared.h: what one process of a bridge leaves to the next, and to airlock when none follows: memory that both have mapped.
 *
 * No pointers. The helper that writes it reads the sandbox's bytes: whoever reads it after its end believes no number and
 * no text of it, and takes from it only what goes into counts and audit lines.
 */
#ifndef AIRLOCK_BRIDGE_SHARED_H
#define AIRLOCK_BRIDGE_SHARED_H

#include "bridge/audit.h"
#include "bridge/exchange.h"
#include "wire/queue.h"

struct bridge_shared {
	struct bridge_counts counts;
	struct queue_window window;
	uint64_t begun; /* bool: a queue server was here before */
	struct audit_memory audit;
};

#endif
