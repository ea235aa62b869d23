/*
 * mux.h: the bytes of several descriptors, and messages beside them, over one byte stream each way (wire/remote.h).
 *
 * Both ends of a session use it: airlock-remote here, the guest on the other machine. A channel carries bytes one way, with
 * a window: who sends may have MUX_WINDOW bytes under way that the other side has not passed on, so a reader that is slow
 * stops its own channel and nobody else's, and the memory of both ends is bounded whatever the other one does. One that
 * sends more than there is room for, names a channel that never was or opens one where only we open has broken the protocol.
 *
 * Channels belong to a group, the command that they serve. Its last message is held back (mux_last) until they have brought
 * all their bytes, so that nothing of a command's output comes after its end. Descriptors are made non-blocking: they must be ours
 * alone. No threads, no waiting: poll with mux_poll, then mux_run.
 */
#ifndef AIRLOCK_OS_MUX_H
#define AIRLOCK_OS_MUX_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/frame.h"
#include "wire/remote.h"

#define MUX_CHANNELS 96
#define MUX_KEPT \
	(1u      \
	 << 20) /* bytes that the other side has not said to have; then nothing more is read for it */
#define MUX_WINDOW (256u << 10)
#define MUX_LATE (2u << 20)	   /* as much as the pipes of a command may hold */
#define MUX_FDS (MUX_CHANNELS + 2) /* entries that mux_poll may add */

enum mux_flags {
	MUX_TO_OPENER = 1, /* bytes flow to the side that opened it */
	MUX_AWAITED = 2,   /* the group's last message waits for its end */
};

struct mux_chan {
	uint32_t id, group;
	int fd;		    /* owned; -1: free */
	int peer;	    /* owned: the other end of a pipe, not yet taken; -1 */
	bool reads;	    /* fd is read, its bytes go into the stream */
	bool awaited, last; /* last: no more comes; closed once all is written */
	uint32_t room;	    /* reads: bytes that may still be sent */
	uint32_t passed;    /* writes: bytes passed on and not yet told */
	struct buf data;    /* writes: waiting for fd */
	size_t off;
};

struct mux_last {
	bool used;
	uint32_t group;
	uint8_t type;
	int64_t until_ns;
	uint64_t late; /* bytes read for the group since then */
	struct buf payload;
};

struct mux {
	int in, out; /* owned; -1: that direction has ended */
	bool opener; /* we open channels, the other side does not */
	bool eof;
	bool away; /* detached: what is put waits */
	uint32_t next_id;
	int64_t heard_ns, said_ns;
	struct buf rx, tx;
	size_t used;
	size_t had, tx_off;  /* of tx: what the other side has said to have; what was written */
	uint64_t tx_had;     /* bytes of the stream that it has said to have */
	uint64_t came, told; /* of its stream: bytes that have come; that we have said so */
	struct buf head;     /* goes before all else of a stream that was attached; no part of it */
	size_t head_off;
	struct mux_chan chan[MUX_CHANNELS];
	struct mux_last last[MUX_CHANNELS];
};

/* Takes the descriptors over. */
void mux_init(struct mux *m, int in, int out, bool opener);
void mux_done(struct mux *m);
/* Opens a channel for fd, which is taken over. 0, -EAGAIN: no room for one more, -ENOMEM. */
int mux_open(struct mux *m, uint32_t group, unsigned flags, int fd);
/* Our ends of the pipes that the other side's channels of a group came with, in their order: owned by the caller. Returns how many. */
size_t mux_take_peers(struct mux *m, uint32_t group, int *fds, size_t max);
/* What still belongs to the group ends, whatever it holds; who sends it is told. */
void mux_end_group(struct mux *m, uint32_t group);
/* Queues a message. Negative: errno; the stream is broken then. */
int mux_put(struct mux *m, uint8_t type, const void *payload, size_t n);
/* False: the stream takes no more now; no new requests are to be put. */
bool mux_roomy(const struct mux *m);
/* Fills v with what to wait for. */
size_t mux_poll(struct mux *m, struct pollfd *v);
/* Moves bytes. 0, or the negative errno that broke the stream. */
int mux_run(struct mux *m, const struct pollfd *v, size_t n);
/* The next message that is none of a channel's. 1; 0: none now; -EPROTO. It is valid until the next call. */
int mux_next(struct mux *m, struct frame *ret);
/* The other side has said a group's last message: what it has not sent of the awaited channels does not come any more. */
int mux_no_more(struct mux *m, uint32_t group);
/*
 * Holds back a group's last message until its awaited channels have ended, or until that time if nothing moves in them, and in no
 * case for more than MUX_LATE bytes that are read meanwhile: somebody who still prints is not waited for. 0, -ENOMEM, -EAGAIN.
 */
int mux_hold(struct mux *m, uint32_t group, uint8_t type, struct view payload, int64_t until_ns);
/* One whose time has come, if any; the group's channels are ended. The payload is the caller's to free. */
bool mux_due(struct mux *m, int64_t now_ns, uint8_t *ret_type, struct buf *ret_payload);
/* The stream is lost, or to be replaced: its descriptors are closed. What has come of it counts. */
void mux_detach(struct mux *m);
/* Whether mux_attach would take that figure. 0 or -EPROTO. */
int mux_fits(const struct mux *m, uint64_t had);
/*
 * Another stream goes on where the lost one was: the other side has `had` bytes of ours. head (may be NULL) is written before them. Takes the
 * descriptors over. 0; -EPROTO: that number is impossible, -ENOMEM; it stays detached then.
 */
int mux_attach(struct mux *m, int in, int out, uint64_t had, const struct buf *head);
/* Bytes that were read elsewhere are the stream's next ones. 0, -E2BIG, -ENOMEM. */
int mux_feed(struct mux *m, const void *p, size_t n);
/* A sign of life, when nothing of ours has gone out for REMOTE_SAY_MS and nothing waits to. */
void mux_alive(struct mux *m, int64_t now_ns);
/* When that is to be asked at the latest; INT64_MAX. */
int64_t mux_alive_ns(const struct mux *m);
/* When mux_due wants to be asked at the latest; INT64_MAX. */
int64_t mux_due_ns(const struct mux *m);

#endif
