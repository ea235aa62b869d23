/*
 * lastword.h: what the clients of the direct way hear when airlock-bridge is killed.
 *
 * A connection that ends without a byte of an answer invites a repetition: HTTP clients send a request again, an unsafe one
 * as well, when a connection that was used before ends so (curl does). So a second process shares the descriptors of the first, and
 * nothing else but one page with a word for each connection (os/gate.h). When the first is gone, it writes to each what is true:
 *
 *   not sent to the API     503, may be tried again
 *   perhaps sent            502, or 409 with `x-paperclip-bridge-outcome: indeterminate` where it may have an effect
 *   an answer had begun     a reset
 *   nothing was asked       the end
 *
 * and ends too. Nobody's request pays for it but with the words, written into memory.
 *
 * Policy: it is made before credential and guard exist, wipes what it finds of them, gives up what the helper gives up, and may then
 * read, write and end; it can open, connect and accept nothing. What it reads is that page and what clients still send, which it drops.
 * Not done here: anything for a process that was stopped (SIGSTOP) or hangs: whoever watches the helper kills it.
 */
#ifndef AIRLOCK_BRIDGE_LASTWORD_H
#define AIRLOCK_BRIDGE_LASTWORD_H

#include <sys/types.h>

#include "base/err.h"
#include "os/gate.h"

#define LASTWORD_FDS 4096 /* descriptors that it knows */

struct lastword {
	unsigned char
	    *words; /* shared with it, by descriptor (enum gate_word); NULL: there is none */
	int heard, wake, self; /* owned: a pipe, and what tells that we are gone */
	pid_t pid;
};

/*
 * l is zeroed, but for its descriptors (-1). To be called with one thread, before anything foreign is read. forget(arg) is called in the new process: it wipes what that is not to
 * have. without: of confine.h. The caller ends it with lastword_end.
 */
int lastword_start(struct lastword *l, void (*forget)(void *arg), void *arg, unsigned without,
		   struct err *e);
/* There is nothing more to be said. Does nothing where there is none. */
void lastword_end(struct lastword *l);

#endif
