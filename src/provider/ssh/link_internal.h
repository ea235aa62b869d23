/*
 * link_internal.h: the parts of airlock-remote: its life (link.c), how a session is brought up over ssh's streams (dial.c), and
 * what it does without a connection (away.c).
 */
#ifndef AIRLOCK_PROVIDER_SSH_LINK_INTERNAL_H
#define AIRLOCK_PROVIDER_SSH_LINK_INTERNAL_H

#include "os/chan.h"
#include "os/mux.h"
#include "provider/ssh/owed.h"
#include "provider/ssh/script.h"
#include "wire/rejoin.h"
#include "wire/remote.h"

#define LINK_CHUNK 16384
#define LINK_SAID_KEEP 4000 /* bytes of ssh's stderr that are kept, the last ones */

struct link_away {
	bool held;	    /* the guest waits if the connection is cut */
	bool on;	    /* it is */
	bool asked, dialed; /* for another ssh; it is here */
	int64_t until_ns;   /* the grace, from the first cut since a byte of the stream came */
	int64_t try_until_ns, next_ns, pause_ms;
	int64_t asked_ns; /* when the last ssh was asked for */
	uint64_t came;	  /* bytes of the stream that were here at the cut before */
	struct rm_attach attach;
};

struct link {
	struct chan up;
	struct buf to_up;
	size_t up_off;
	struct mux mux;
	int in, out, err, program; /* ssh's streams; the guest program */
	struct rm_setup setup;
	char nonce[SCRIPT_NONCE + 1];
	struct buf got; /* before the guest speaks */
	struct buf said;
	struct owed owed;
	struct link_away away;
	bool shut; /* its output ended before the guest spoke */
	bool hello, ending, orphan;
	int64_t end_ns;
	enum link_end how; /* 0: not over */
};

/* link.c */
void link_say_up(struct link *l, uint8_t type, const void *p, size_t n);
void link_hear_stderr(struct link *l);
/* What to wait for from airlock, and what to do then. */
struct pollfd link_up_poll(const struct link *l);
void link_up_run(struct link *l, short revents);
void link_say_due(struct link *l);

/* dial.c. False: l->how says why it cannot be. */
int link_nonce(char out[SCRIPT_NONCE + 1]);
bool link_dial(struct link *l);
/* The next frame of a guest that has just been started; valid until the next call. */
bool link_dial_frame(struct link *l, struct frame *ret);
bool link_dial_send(struct link *l, const char *p, size_t n);

/* away.c */
/* RM_KEEP. 0 or negative errno. */
int link_keep(struct link *l, struct view v);
/* RM_HELD. */
int link_held(struct link *l, struct view v);
/* The stream is lost: that is the end, or the begin of being away. */
void link_lose(struct link *l, enum link_end how);
/* RM_DIALED; fds are taken. */
int link_dialed(struct link *l, const struct frame *f, int *fds);
/* What is due while away. */
void link_away(struct link *l);
int64_t link_away_ns(const struct link *l);
void link_away_done(struct link *l);

#endif
