/*
 * exchange.h: one request through door 2, whatever carries it: judged, collected, forwarded, answered, counted.
 *
 * A request body is collected whole before a byte of it goes upstream: an upload that is cut off in the sandbox has
 * no effect. An answer passes piece by piece, but for its beginning, as long as it can still become another one, and waits while
 * the transport has no room. Every exchange ends in one audit line. Callbacks may come from inside exchange_begin, exchange_body and exchange_body_end, and from
 * loop turns; a transport must not free an exchange in one of them.
 *
 *	exchange_begin   -> judged; a refusal is answered (both: when the run's pace allows, pace.h)
 *	exchange_body *  -> counted, kept (dropped after a refusal)
 *	exchange_body_end-> forwarded
 *	head(), data() *, end()
 *	exchange_free    at any time; under way: the upstream's connection is closed
 */
#ifndef AIRLOCK_BRIDGE_EXCHANGE_H
#define AIRLOCK_BRIDGE_EXCHANGE_H

#include "base/buf.h"
#include "bridge/guard.h"
#include "bridge/pace.h"
#include "bridge/upstream.h"

struct bridge_counts {
	uint64_t requests; /* judged */
	uint64_t forwarded, refused, failed, indeterminate;
	uint64_t bytes_in, bytes_out; /* bodies: from the sandbox, to it */
	uint64_t unanswered;	      /* in a queue: their answer could not be put there */
	uint64_t audit_lost;	      /* decisions that no audit line tells of */
};

struct exchange_audit {
	const char *transport, *route, *rule, *method;
	struct view target;
	int status;
	uint64_t bytes_in, bytes_out;
	int64_t began_ns, took_ns;
	bool forwarded;	 /* it was handed to the upstream's side */
	unsigned flight; /* of audit_begin */
};

struct bridge {
	struct loop *loop;
	struct guard *guard;
	struct upstream *upstream;
	struct bridge_counts *counts; /* borrowed; they may outlive the process */
	const char *transport;	      /* "http2" or "queue" */
	/* What the transport carries at most of a body, whatever a policy allows, and then only whole; 0: no bound. */
	uint64_t whole_max;
	bool stopping;
	struct pace pace;
	struct exchange *held; /* by their pace */
	unsigned in_hand;      /* begun and not ended */
	uint64_t begun_look;   /* of the loop, when the last one began */
	/* One decision, for the audit file. May be NULL. */
	void (*audit)(void *arg, const struct exchange_audit *a);
	/* A request goes out now: a->flight comes back to audit(). False: it could not be recorded, and does not. NULL: it need not. */
	bool (*audit_begin)(void *arg, struct exchange_audit *a);
	void *audit_arg;
};

struct exchange;

struct exchange_ops {
	/* Once. Views live for the call only. */
	void (*head)(void *arg, int status, const struct header *h, size_t n);
	/* Room for n more bytes? If not, the upstream waits until exchange_resume. */
	bool (*room)(void *arg, size_t n);
	void (*data)(void *arg, const char *p, size_t n);
	/* The answer so far counts for nothing, another one follows. NULL: the transport has told it already. */
	void (*restart)(void *arg);
	/* Last. whole: the answer is complete; else it broke off after its head. */
	void (*end)(void *arg, bool whole);
};

/*
 * Judges. The request's views must live until exchange_free, except those of the body. NULL: out of
 * memory, nothing was called.
 */
struct exchange *exchange_begin(struct bridge *b, const struct guard_request *req,
				const struct exchange_ops *ops, void *arg);
/* Something that was no request at all: counted and audited. status 0: nobody hears of it. */
void exchange_refused(struct bridge *b, int status, const char *rule);
/* The request was let through and its body is wanted. */
bool exchange_wants_body(const struct exchange *x);
uint64_t exchange_body_max(const struct exchange *x);
/* Takes a piece of the body, or drops it when it is not wanted any more. */
void exchange_body(struct exchange *x, const void *p, size_t n);
/* All of the body at once; b is taken over. */
void exchange_body_give(struct exchange *x, struct buf *b);
void exchange_body_end(struct exchange *x);
/* The rest of the body waits for us, not we for it: no idle time passes. */
void exchange_body_waits(struct exchange *x, int64_t now);
/* It was let through, and its method has no effect: it may be tried again. */
bool exchange_safe(const struct exchange *x);
/* The transport has room again. */
void exchange_resume(struct exchange *x);
/* Ends it with the bridge's own answer if no head was sent, else breaks it off. */
void exchange_fail(struct exchange *x, enum guard_cause cause);
void exchange_free(struct exchange *x);
/*
 * Checks the limits of an upload, and of what is kept of an answer; the rest is the upstream's. Returns when to ask again.
 */
int64_t exchange_tick(struct exchange *x, int64_t now);
/* Lets those go on that were held back long enough, of whatever transport. Returns when to ask again. */
int64_t exchange_release(struct bridge *b, int64_t now);

#endif
