/*
 * pace.h: a run that asks much lets the others go first.
 *
 * A request costs four processes some time (client, gateway, this helper, API), and a run that asks as fast as it can
 * keeps every processor busy: each step of another run's request then waits for a processor. The kernel shares time
 * fairly, but late: the wake-up of one that slept waits until somebody's turn ends. So while another run of the same user is being
 * served, each run has policy `pace` requests a second, PACE_BURST at once; a request beyond is held back, never
 * refused. A run that is alone, or asks one at a time, has no such limit.
 *
 * Who is being served stands on the board: one page of memory that the helpers of one user share, below
 * XDG_RUNTIME_DIR, /run (root) or /dev/shm. A helper writes when it last took a request and reads when others did: numbers, which nothing but this
 * delay depends on. A helper that was taken over could ignore its own delay, or have other runs kept to their pace; it learns
 * when they are busy. Without a board (none can be made) nobody is held back.
 */
#ifndef AIRLOCK_BRIDGE_PACE_H
#define AIRLOCK_BRIDGE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cursor.h"

#define PACE_SLOTS 64

/* A run's place; which one follows from its id, so two runs may have the same. */
struct pace_slot {
	_Alignas(64) uint64_t who; /* never 0 */
	int64_t at_ns;		   /* CLOCK_MONOTONIC: when it last took a request */
};

struct pace_board {
	struct pace_slot slot[PACE_SLOTS];
};

struct pace {
	struct pace_board *board; /* NULL: none */
	uint64_t who;
	int64_t noted_ns, looked_ns,
	    beside_ns;	/* beside_ns: when another run was last seen at work */
	int64_t due_ns; /* when the next request may begin, were there no burst */
};

/* In the parent: the board's descriptor, or -1. */
int pace_board_open(void);
/* In the helper, before confinement. fd (may be -1) stays the caller's. */
void pace_init(struct pace *p, int fd, struct view run_id);
/* In a process that is to have no part in it: the board is not mapped there any more. */
void pace_forget(struct pace *p);
/*
 * One request more: when it may begin, in the time of now. rate: requests a second. only: the run has no other in hand, under
 * way or held back, and none came together with it; then it is not held: whoever asks one at a time keeps one processor busy at
 * most, however fast.
 */
int64_t pace_request(struct pace *p, unsigned rate, bool only, int64_t now);
/* So many bytes of a body passed; returns when further ones may. */
int64_t pace_bytes(struct pace *p, unsigned rate, uint64_t n, int64_t now);

#endif
