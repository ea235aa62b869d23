/*
 * relay.h: carries bytes between a terminal's master side and two descriptors of the client.
 *
 * Bounded: RELAY_IN and RELAY_OUT bytes are held, then the source is not read. The client's
 * descriptors are other people's open files, so they are never made non-blocking: poll comes first
 * and one write is at most PIPE_BUF bytes, which a pipe that polls writable takes at once. A terminal may
 * still make a write wait, so each relay is a process of its own, forked by pid 1.
 */
#ifndef AIRLOCK_GUEST_RELAY_H
#define AIRLOCK_GUEST_RELAY_H

#include <stdbool.h>
#include <stddef.h>

#define RELAY_IN 4096
#define RELAY_OUT 16384

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
/* Until the terminal has no other side any more and everything was passed on. Ends the process. */
_Noreturn void relay_run(struct relay *r);

#endif
