/*
 * queueserver_internal.h: what the two files of the queue server share: queueserver.c finds requests and says when one begins,
 * queuejob.c is one request from its file to its answer.
 */
#ifndef AIRLOCK_BRIDGE_QUEUESERVER_INTERNAL_H
#define AIRLOCK_BRIDGE_QUEUESERVER_INTERNAL_H

#include "bridge/queuedir.h"
#include "bridge/queueserver.h"

/* How a request came to be taken. */
enum job_kind {
	JOB_NEW,
	JOB_CLAIMED, /* by a process before this one */
	JOB_TOO_MANY,
};

struct job;

/* Ids that wait, oldest first. */
struct queue_ids {
	char (*id)[QUEUE_ID_LEN + 1]; /* owned */
	unsigned n, max;
};

struct queueserver {
	struct bridge *b;
	struct queuedir d;
	struct bridge_shared *shared;
	struct loop_watch watch;
	struct job *jobs;
	unsigned under_way;   /* but for those refused because they were too many, */
	unsigned refusing;    /* which are these */
	unsigned unpublished; /* jobs whose answer found no place, and is tried again */
	uint64_t held;	      /* bytes of the envelopes of those under way */
	struct queue_ids claimed, wait, large, refuse;
	bool stale; /* a listing is to begin from the start, */
	bool more;  /* or to go on */
	bool left;  /* large ones lie there that found no place among those that wait */
	bool stopping, begun;
	int64_t
	    short_ns; /* when those for which there was no memory are looked for again; INT64_MAX: none */
	int64_t poll_ns, poll_gap_ns, alive_ns;
	uint64_t alive_count;
};

/* Reads it and begins. 0 with the bytes that that took; -ENOMEM: there is no room, and a new one lies where it lay. */
int queuejob_take(struct queueserver *s, const char *id, enum job_kind kind, uint64_t *ret_bytes);
/* Tries again what could not be published, frees what is over. Returns when to be called next. */
int64_t queuejob_tick(struct queueserver *s, int64_t now);
/* Their ids, a line each. */
void queuejob_names(const struct queueserver *s, struct buf *out);
/* All of them, with an answer that says so. */
void queuejob_end_all(struct queueserver *s);

#endif
