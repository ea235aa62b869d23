/*
 * front_box.h: commands on another machine in a sandbox of its kernel: airlock-launch, started by the guest's front.
 *
 * The launcher is its child and holds the lock of the run's directory until the sandbox has ended; the socket between them is the sandbox's life line. It
 * speaks as with airlock on its own machine (provider/native/broker.h), so requests and events pass as they are.
 */
#ifndef AIRLOCK_GUEST_FRONT_BOX_H
#define AIRLOCK_GUEST_FRONT_BOX_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "guest/front_place.h"
#include "os/chan.h"

struct front_box {
	struct chan ch; /* fd -1: there is none */
	pid_t pid;	/* 0 */
	bool up;	/* READY came: requests are the launcher's */
};

void front_box_init(struct front_box *b);
/* v: struct rm_box as airlock sent it. 0; -EPROTO; another negative errno and what (RM_WHAT_MAX + 1). */
int front_box_start(struct front_box *b, const struct front_place *p, struct view v, char *what);
/* The first frame of the launcher, as the answer to RM_BOX: *ret_type and out. False: it is none. */
bool front_box_answer(struct front_box *b, const struct frame *f, uint8_t *ret_type,
		      struct buf *out);

#endif
