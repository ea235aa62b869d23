/*
 * launch.h: airlock-launch after its arguments: start a sandbox, then watch over it.
 *
 * launch_start either leaves a running guest, or nothing and a text for the owner. broker_run is the
 * rest of the process's life: it owns the guest, forwards what the permit table allows, and ends
 * the sandbox when its owner is gone. One thread, no globals.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_LAUNCH_H
#define AIRLOCK_PROVIDER_NATIVE_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "os/cgroup.h"
#include "os/chan.h"
#include "provider/native/launch_fds.h"
#include "provider/native/setup.h"
#include "provider/plan.h"

struct launch {
	struct plan plan;
	struct chan owner; /* accepts descriptors: the owner is the user */
	struct chan guest; /* never accepts descriptors */
	int listen_fd;	   /* -1: not kept */
	int pidfd;	   /* of the guest */
	pid_t pid;
	bool twin;		      /* it was sent here from another machine */
	int landlock;		      /* ABI in force, 0: none */
	int socket[PLAN_SOCKETS_MAX]; /* of the sandbox's network; owned */
	unsigned sockets;
	struct cgroup cgroup;
	struct failure failure; /* of the start; step STEP_NONE: none, or told in words */
	struct image *image;	/* owned; until launch_settle */
	struct skeleton kept;	/* its lock for the process's life, the rest until launch_settle */
	bool opens;		/* this process opens what the plan names, for the child */
};

/*
 * plan is filled in. On failure nothing runs and no cgroup is left. Afterwards, and for most of the start, this
 * process has given up what only the start needs: capabilities and most system calls.
 */
int launch_start(struct launch *l, struct err *e);
/* After a good start: gives back what only that needed, at a time when nobody waits for it. */
void launch_settle(struct launch *l);
/* Until the guest has ended and been reaped. Returns its wait status. */
int broker_run(struct launch *l);
/* The whole program: from descriptors 3 and 4 to an exit status. twin: on another machine (twin.h). */
int launch_main(bool twin);

#endif
