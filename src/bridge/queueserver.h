/*
 * queueserver.h: transport queue_v2 on the host: requests and answers as files below one directory (queuedir.h).
 *
 * Each request is one exchange, judged as a stream of http2_v1 is. It is claimed before it is read and its number is taken
 * before it is sent on; both outlive this process (claims/, and the memory of struct bridge_shared), so that a
 * successor never runs one twice: what was claimed and has no answer is answered as indeterminate, or run again if its
 * method is safe. Answers are published whole, under the token that the request carried. Where inotify tells of the
 * directory a request is seen at once; elsewhere looks follow each other from QUEUE_POLL_MIN_MS to QUEUE_POLL_MAX_MS.
 *
 * Bounded: requests under way (streams_max of the policy), those that wait (queue_max; beyond: 503), bytes of requests in
 * memory (BRIDGE_HELD_MAX), bodies (BRIDGE_QUEUE_BODY_MAX), entries looked at in one turn.
 */
#ifndef AIRLOCK_BRIDGE_QUEUESERVER_H
#define AIRLOCK_BRIDGE_QUEUESERVER_H

#include "bridge/exchange.h"
#include "bridge/shared.h"

struct queueserver;

/* Before confinement. Takes dir. Sets b->whole_max. */
int queueserver_new(struct bridge *b, int dir, struct bridge_shared *shared,
		    struct queueserver **ret, struct err *e);
/* From now on requests are looked for. */
int queueserver_begin(struct queueserver *s);
/* After each loop turn; returns when it wants to be called next. */
int64_t queueserver_tick(struct queueserver *s, int64_t now);
/* Further requests are refused (guard_stop was called). */
void queueserver_stop(struct queueserver *s);
unsigned queueserver_under_way(const struct queueserver *s);
/* What is under way ends with an answer that says so. */
void queueserver_free(struct queueserver *s);

#endif
