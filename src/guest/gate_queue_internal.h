/*
 * gate_queue_internal.h: what the two files of this carrier share: gate_queuecall.c is one request, written and answered; gate_queue.c
 * notices what the host has done.
 */
#ifndef AIRLOCK_GUEST_GATE_QUEUE_INTERNAL_H
#define AIRLOCK_GUEST_GATE_QUEUE_INTERNAL_H

#include "guest/gate_queue.h"
#include "wire/queue.h"

#define GATE_QUEUE_NAME (QUEUE_ID_LEN + 16)

enum call_state {
	CALL_UPLOAD,	/* its file is being written */
	CALL_PUBLISHED, /* the host has not taken it, as far as is known */
	CALL_TAKEN,
	CALL_ANSWER, /* its answer is in memory and goes to the client */
};

struct gate_call {
	struct gate_queue *q;
	struct gate_call *next, **prev;
	struct gate_conn *conn; /* NULL: dropped */
	enum call_state state;
	char draft[GATE_QUEUE_NAME]; /* name of the file that is being written */
	char id[QUEUE_ID_LEN + 1];   /* once published */
	int fd;
	struct buf out;
	struct queue_body_put b64;
	uint64_t sent; /* bytes of the body */
	bool broken;
	unsigned spoofs;
	int64_t alive_ns; /* when the host named it last, or it began to wait */
	struct buf answer;
	size_t answer_off, untaken, held;
};

struct gate_queue {
	struct gate *g;
	int requests, responses, root; /* owned */
	int notify;		       /* owned; -1: none */
	struct loop_watch watch;
	char *token; /* owned */
	struct gate_call *list;
	unsigned calls;
	uint64_t seq, drafts, random;
	uint64_t held;
	bool last, more, look;
	int64_t poll_ns, poll_gap_ns, look_ns;
	char *alive; /* owned: what the sign of life was */
	size_t alive_len;
};

extern const struct gate_carrier gate_queuecall_carrier;

void gate_queuecall_name(const char *id, char out[GATE_QUEUE_NAME]);
/* Whatever has the name; not a directory with something in it. */
void gate_queuecall_away(int dir, const char *name);
/* A plain file of bounded size, whole. 0; -ENOENT; else it is no answer. */
int gate_queuecall_read(int dir, const char *name, size_t max, struct buf *out);
/* It was not taken by the host: nobody has it now. False: the host has it. */
bool gate_queuecall_take_back(struct gate_call *k);
/* Its file is there, and goes to the client. False: not yet, or there is no room for it now. */
bool gate_queuecall_look(struct gate_call *k);
void gate_queuecall_fail(struct gate_call *k, enum gate_fail why);
void gate_queuecall_free(struct gate_call *k);

#endif
