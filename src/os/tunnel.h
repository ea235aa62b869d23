/*
 * tunnel.h: bytes both ways between two connected stream sockets, in a loop.
 *
 * An end of one side is passed on as a half-close when what came before it has been written. Memory is bounded: one
 * buffer each way, and nothing is read that has no room. It looks at no byte.
 */
#ifndef AIRLOCK_OS_TUNNEL_H
#define AIRLOCK_OS_TUNNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/loop.h"

#define TUNNEL_BUF 32768

struct tunnel_side {
	struct loop_watch watch; /* fd owned once started */
	char *buf;		 /* owned: bytes from this side that wait for the other */
	size_t at, len;
	bool eof;	/* nothing more comes from this side */
	bool shut;	/* ... and the other side was told */
	uint64_t bytes; /* passed on from this side */
	struct tunnel *t;
};

struct tunnel {
	struct loop *loop;
	struct tunnel_side side[2];
	int64_t active_ns; /* clock_mono_ns of the last byte */
	bool started, broken;
	/* Once, from the loop: both ends are through, or one is broken. It may free the tunnel. */
	void (*over)(struct tunnel *t);
};

/* Takes both descriptors, also when it fails (0 or a negative errno); makes them non-blocking. */
int tunnel_start(struct tunnel *t, struct loop *loop, int fd0, int fd1,
		 void (*over)(struct tunnel *t));
/* Bytes that came from side i before the start. -ENOBUFS: more than TUNNEL_BUF. */
int tunnel_preload(struct tunnel *t, int i, const void *p, size_t n);
/* Side i is not read: what it sends is ignored, its end is no end. To be called right after the start. */
void tunnel_mute(struct tunnel *t, int i);
/* Moves what can be moved, once; for after a preload. */
void tunnel_kick(struct tunnel *t);
/* True if one side has ended: the rest may be given less patience. */
bool tunnel_half(const struct tunnel *t);
/* Closes both. Does nothing to one that was not started. */
void tunnel_done(struct tunnel *t);

#endif
