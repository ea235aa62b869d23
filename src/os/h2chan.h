/*
 * h2chan.h: an HTTP/2 session (nghttp2) over a byte stream: reading, writing, pings, floods.
 *
 * Both ends use it: airlock-bridge as server, the gateway as client. The stream is one socket or a pair of
 * pipes. Outgoing frames are gathered and written at the end of a turn (h2chan_flush); a peer that does not
 * read stops its own requests, because nothing is read while bytes wait.
 *
 * Floods. Where the peer is not trusted (wary), each of its frames is counted before the library sees it, whatever the library
 * would do with it: frames that cost their sender nothing take tokens from a bucket of H2_NOISE_BURST, which fills by
 * H2_NOISE_RATE a second, by two for each request, and by one for each KiB that was written to the peer: it has
 * reason to widen windows then. RST_STREAM takes ten (CVE-2023-44487), DATA of less than 64 bytes a fifth (unless it is
 * the last), every other frame that is neither DATA nor HEADERS takes one, kinds that nobody knows included. A request that is none
 * takes as much as a reset, and so does one that breaks the protocol behind its head, so that this end resets it (CVE-2025-8671).
 * An empty bucket ends the channel with ENHANCE_YOUR_CALM; what came in the same read is not looked at.
 */
#ifndef AIRLOCK_OS_H2CHAN_H
#define AIRLOCK_OS_H2CHAN_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/loop.h"

enum h2_loss {
	H2_OPEN = 0,
	H2_EOF,	   /* the other end closed */
	H2_IO,	   /* reading or writing failed */
	H2_BROKEN, /* not HTTP/2, or a flood */
	H2_STALL,  /* no sign of life within H2_STALL_MS */
	H2_DONE,   /* ended in order: GOAWAY, no stream left */
};

struct h2chan {
	struct loop *loop;
	int in, out; /* owned; the same number for a socket */
	struct loop_watch wi, wo;
	nghttp2_session *s;   /* owned */
	uint8_t *obuf, *ibuf; /* owned */
	size_t olen, ooff;
	uint64_t queued,
	    written; /* bytes of this stream so far: of frames made, and taken by the kernel */
	int64_t heard_ns, pinged_ns;
	bool flushing, again;
	enum h2_loss loss;
	bool wary;
	int64_t noise_ns;
	double noise;  /* tokens left */
	size_t skip;   /* bytes before the next frame's header */
	uint8_t hd[9]; /* as much as has come of it */
	unsigned hd_len;
	/* Once; the session is still there, but the stream is closed. */
	void (*lost)(void *arg, enum h2_loss why);
	void *arg;
};

/* Prepares; takes the descriptors (made non-blocking) and the session. 0 or negative errno. */
int h2chan_init(struct h2chan *c, struct loop *l, int in, int out, nghttp2_session *s);
void h2chan_done(struct h2chan *c);
/* Bytes that were read before the session began. */
void h2chan_feed(struct h2chan *c, const uint8_t *p, size_t n);
/* Writes what the session has to say; to be called after each change. Re-entrant calls are gathered. */
void h2chan_flush(struct h2chan *c);
/* Sends pings, sees stalls. Returns the next time it wants to be called. */
int64_t h2chan_tick(struct h2chan *c, int64_t now);
/* Makes a session whose callbacks and options are the caller's. 0 or -ENOMEM. */
struct h2chan_kind {
	bool server;
	void (*callbacks)(nghttp2_session_callbacks *cb);
	void (*options)(nghttp2_option *opt);
};
int h2chan_session(const struct h2chan_kind *k, void *arg, nghttp2_session **ret);
/* One header, borrowed. */
nghttp2_nv h2_pair(const char *name, size_t name_len, const char *value, size_t value_len);
const char *h2_loss_name(enum h2_loss l);

#endif
