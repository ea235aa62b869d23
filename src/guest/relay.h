/*
 * relay.h: carries bytes between a terminal's master side and two descriptors of the client.
 *
 * Bounded: RELAY_IN and RELAY_OUT bytes are held, then the source is not read. The client's
 * descriptors are other people's open files, so they are never made non-blocking: poll comes first
 * and one write is at most PIPE_BUF bytes, which a pipe that polls writable takes at once.
 */
#ifndef AIRLOCK_GUEST_RELAY_H
#define AIRLOCK_GUEST_RELAY_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#define RELAY_IN 4096
#define RELAY_OUT 16384
#define RELAY_POLLS 3

struct relay {
	int in, out, master; /* owned, -1 when done with; master non-blocking */
	bool in_ended;	     /* the end-of-file character is queued or sent */
	bool muted;	     /* nobody reads: output is dropped */
	bool newline;	     /* the last byte in was a newline */
	size_t in_len, out_at, out_len;
	char to_tty[RELAY_IN + 2], to_out[RELAY_OUT];
};

/* Opens a terminal of this mount namespace: master into r, *ret_slave. 0 or negative errno. */
int relay_open(struct relay *r, unsigned rows, unsigned cols, int *ret_slave);
void relay_winsize(struct relay *r, unsigned rows, unsigned cols);
/* Fills p[0..RELAY_POLLS); entries that are not wanted get fd -1. */
void relay_polls(const struct relay *r, struct pollfd *p);
void relay_step(struct relay *r, const struct pollfd *p);
/* The terminal has no other side any more and everything was passed on. */
bool relay_drained(const struct relay *r);

#endif
