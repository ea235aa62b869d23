/*
 * gate_queue.h: carrier over files, for places that offer no stream: a request and its answer are a file each (wire/queue.h).
 *
 * Publishing is a rename, so the host never sees half a request. A request that the host has not taken yet can be taken
 * back, by the same move of a file, and then it is sure that it was not sent. Once taken it is the host's: it waits as long as
 * the host's sign of life names it, then its outcome is unknown. An answer counts if it carries the token of this gateway and
 * the request's own id; another is removed, and a few of them end the wait.
 */
#ifndef AIRLOCK_GUEST_GATE_QUEUE_H
#define AIRLOCK_GUEST_GATE_QUEUE_H

#include "os/gate.h"

struct gate_queue;

struct gate_queue_config {
	const char *dir;
	const char *token; /* of this run's bridge; copied */
};

/* 0 or a negative errno. */
int gate_queue_open(struct gate *g, const struct gate_queue_config *c, struct gate_queue **ret);
/* Returns when to be called again. */
int64_t gate_queue_tick(struct gate_queue *q, int64_t now);
bool gate_queue_pending(const struct gate_queue *q);
/* Nobody answers any more. */
void gate_queue_last(struct gate_queue *q);
void gate_queue_free(struct gate_queue *q);

#endif
