/*
 * rejoin.h: a session with a guest on another machine that outlives its connection (remote.h).
 *
 * Once commands may run, airlock says RM_KEEP to airlock-remote, which draws a name and a token and says RM_HOLD to the guest. From then on an end
 * of the stream ends nothing there: the guest waits for the grace, on a socket of the run's directory. airlock-remote says RM_AWAY and asks
 * with RM_DIAL for another ssh (RM_DIALED brings its streams). The guest that this one starts gets RM_ATTACH as its first message,
 * hands its streams and the token to the one that waits, and only stays for the sake of sshd; that one says RM_ATTACHED on them, and
 * both go on with the same stream of bytes where it was cut (os/mux.h): RM_BACK.
 */
#ifndef AIRLOCK_WIRE_REJOIN_H
#define AIRLOCK_WIRE_REJOIN_H

#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

enum rejoin_msg {
	RM_KEEP = 110, /* airlock to airlock-remote: struct rm_keep */
	RM_HOLD = 111, /* airlock-remote to the guest: struct rm_hold */
	RM_HELD = 112, /* guest: u32 errno; 0: it will wait; another is handed on */
	RM_AWAY = 113, /* airlock-remote to airlock: u32 enum link_end, bytes of ssh's stderr */
	RM_DIAL = 114, /* the same: empty; another ssh is wanted */
	RM_DIALED =
	    115, /* airlock: empty; ssh's stdin, stdout, stderr; none: it could not be started */
	RM_ATTACH =
	    116, /* airlock-remote to a new guest: struct rm_attach; nothing follows until the answer */
	RM_ATTACHED = 117, /* the guest that waited: u64 bytes of our stream that it has */
	RM_BACK = 118,	   /* airlock-remote to airlock: empty */
};

#define RM_DIALED_FDS 3
#define RM_TOKEN 32
#define RM_JOIN_ID 16	   /* hex digits: the name of the socket */
#define REMOTE_JOIN "join" /* in the run's directory: the sockets, one of each session */

struct rm_keep {
	uint32_t grace_ms;
	char *root, *lease; /* as in struct rm_open */
};

struct rm_hold {
	uint32_t grace_ms;
	char id[RM_JOIN_ID + 1];
	uint8_t token[RM_TOKEN];
};

struct rm_attach {
	uint64_t came; /* bytes of the guest's stream that are here */
	struct rm_keep place;
	struct rm_hold hold;
};

/* As in remote.h. */
int rm_keep_put(struct buf *b, const struct rm_keep *m);
int rm_keep_get(struct view p, struct rm_keep *ret);
void rm_keep_done(struct rm_keep *m);
int rm_hold_put(struct buf *b, const struct rm_hold *m);
int rm_hold_get(struct view p, struct rm_hold *ret);
int rm_attach_put(struct buf *b, const struct rm_attach *m);
int rm_attach_get(struct view p, struct rm_attach *ret);
void rm_attach_done(struct rm_attach *m);

#endif
