/* front_internal.h: the front between its files: front.c is its life, front_away.c what becomes of its connection. */
#ifndef AIRLOCK_GUEST_FRONT_INTERNAL_H
#define AIRLOCK_GUEST_FRONT_INTERNAL_H

#include "guest/front_box.h"
#include "guest/front_join.h"
#include "guest/front_place.h"
#include "os/chan.h"
#include "os/mux.h"

struct front {
	struct mux mux;
	struct chan serve;
	struct front_box box;
	struct front_place place;
	struct front_join join;
	pid_t serve_pid, worker;
	int sigfd, worker_ctl;
	uint32_t land_id;      /* 0: the worker removes */
	int64_t eof_ns;	       /* when its end was seen; 0 */
	int64_t away_until_ns; /* of mux.away: then everything ends */
	int64_t watched_ns;    /* when the kernel's clock is to be wound again */
	bool opened, ending, gone, said_fault, survivors;
	int status;
};

void front_put(struct front *f, uint8_t type, const struct buf *b);
/* Nothing follows. */
void front_fault(struct front *f, int error, const char *what);

/* front_away.c */
/* RM_HOLD. 0 or negative errno. */
int front_hold(struct front *f, struct view v);
/* RM_ATTACH: our streams are another session's from then on; returns when it lets go. */
int front_attach(struct front *f, struct view v);
/* The stream is lost. Where nobody may bring another one, that is the end. */
void front_lose(struct front *f);
/* The end of the stream, silence, the end of the grace. */
void front_judge(struct front *f, int64_t now);
void front_hear_join(struct front *f, const struct pollfd *p);
/* While it is away, or its input has ended: when to look again; the kernel's clock is wound meanwhile. */
int64_t front_away_ns(const struct front *f, int64_t now);

#endif
