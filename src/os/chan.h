/*
 * chan.h: frames over a connected stream socket, with descriptors.
 *
 * Used between airlock, airlock-launch, airlock-unpack and the guest. A channel
 * made with accept_fds = false gives the kernel no room for descriptors: whatever
 * the peer attaches is dropped unseen. That is how the host side listens to a guest:
 * Safe because: no descriptor ever travels out of a sandbox.
 */
#ifndef AIRLOCK_OS_CHAN_H
#define AIRLOCK_OS_CHAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "wire/frame.h"

struct chan {
	int fd; /* owned, -1 if closed */
	bool accept_fds;
	bool eof;
	struct buf in, out; /* out: frames that chan_queue holds back */
	size_t used;	    /* bytes of `in` that the last returned frame occupied */
	int fds[2 * FRAME_FDS_MAX];
	size_t nfds;
};

/* Takes ownership of fd. No allocation. */
void chan_init(struct chan *c, int fd, bool accept_fds);
void chan_done(struct chan *c);
/* The last frame that came held a secret, or was large: wiped, its memory given back. Its views are dead then. */
void chan_forget(struct chan *c);
/*
 * Sends one frame whole (waits until the peer reads, at most until deadline_ns of
 * clock_mono_ns; INT64_MAX: no limit). Descriptors stay the caller's. 0 or negative
 * errno (-EPIPE: peer gone, -ETIMEDOUT). Never raises SIGPIPE.
 */
int chan_send(struct chan *c, uint8_t type, const void *payload, size_t n, const int *fds,
	      size_t nfds, int64_t deadline_ns, struct err *e);
/*
 * As chan_send without descriptors, but the frame may wait for company: it goes at the latest before
 * the next chan_send. For many small frames, each of which would wake the peer up.
 */
int chan_queue(struct chan *c, uint8_t type, const void *payload, size_t n, struct err *e);
int chan_flush(struct chan *c, int64_t deadline_ns, struct err *e);
/*
 * Next frame: 1 and *ret (valid until the next call), with its descriptors moved to
 * fds[0..nfds) (caller owns them; surplus slots are -1); 0 at end of stream; -EAGAIN when
 * deadline_ns passed (use 0 to poll without waiting); other negative errno on error.
 * fds may be NULL: descriptors are then closed.
 */
int chan_recv(struct chan *c, int64_t deadline_ns, struct frame *ret, int fds[FRAME_FDS_MAX],
	      struct err *e);
/* Makes room so that chan_recv allocates nothing for a next frame without a payload. Ends the last frame's life. */
int chan_reserve(struct chan *c);

#endif
