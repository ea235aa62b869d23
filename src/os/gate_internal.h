/* gate_internal.h: what the files of the HTTP/1.1 server share: gate.c accepts and reads, gate_answer.c answers. */
#ifndef AIRLOCK_OS_GATE_INTERNAL_H
#define AIRLOCK_OS_GATE_INTERNAL_H

#include "os/gate.h"

#define GATE_FIELDS_MAX 64 /* headers of an answer */

enum conn_state {
	CONN_HEAD,   /* reads a head, or idles */
	CONN_BODY,   /* reads a body */
	CONN_ANSWER, /* waits for the answer */
	CONN_LINGER, /* answered; drops what still comes, so that the answer is read */
};

struct gate_conn {
	struct gate *g;
	struct gate_conn *next, **prev;
	int fd;
	struct loop_watch w;
	enum conn_state state;
	struct buf in;
	size_t in_off;
	bool muted; /* something came while the answer is made; it waits in the kernel */
	/* the request */
	struct gate_call *call;
	struct http1 p;
	bool body_done, safe, refused;
	size_t dropped; /* bytes behind a refusal */
	/* the answer */
	struct buf head, data, out; /* names and values; body to be framed; bytes to be written */
	struct {
		uint16_t name_len, value_len;
	} field[GATE_FIELDS_MAX];
	size_t fields, out_off, untaken;
	struct http1_writer w1;
	int status;
	bool has_head, head_out, answered, ended, broken,
	    dirty;    /* ended: its last byte is in out */
	bool starved; /* its body waits for room; gate_conn_room follows */
	int64_t moved_ns;
};

static inline void gate_word(const struct gate_conn *c, enum gate_word w)
{
	if (c->g->words && c->fd < c->g->words_len)
		c->g->words[c->fd] = (unsigned char)w;
}

/* Something is to be written, or watched otherwise: gate_tick sees to it. */
void gate_touch(struct gate_conn *c);
/* Cuts the connection, drops its call. */
void gate_free_conn(struct gate_conn *c);
/* An answer that is ours, not the carrier's. text is plain, without quotes. */
void gate_own_answer(struct gate_conn *c, int status, const char *code, const char *text);
/* Writes what can be written. 1: the answer is out, and the next request may come. 0: go on. -1: the connection is gone. */
int gate_flush(struct gate_conn *c);

#endif
