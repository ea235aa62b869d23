/*
 * helper.h: one of our own programs as a child with a channel.
 *
 * It is found by os/self.h, has no arguments and an empty environment, and its standard input is the
 * other end of a stream socket. How it is let go is the caller's: by a last frame, or by helper_kill.
 */
#ifndef AIRLOCK_OS_HELPER_H
#define AIRLOCK_OS_HELPER_H

#include <stdbool.h>

#include "base/err.h"
#include "os/chan.h"
#include "os/process.h"

struct helper {
	struct process proc;
	struct process_opts popts; /* for process_wait */
	char *path;		   /* owned */
	const char *argv[2], *envp[1];
	bool
	    started; /* and neither waited for nor killed: the caller clears it after process_wait */
};

/*
 * h is zeroed or was helper_killed; its address stays. On success ch is a new channel to it. On failure ch
 * may be one all the same (chan_done is the caller's) and started says whether something runs.
 */
int helper_start(struct helper *h, const char *name, struct chan *ch, struct err *e);
/* Kills and reaps what still runs, frees the rest. Any number of times. */
void helper_kill(struct helper *h);

#endif
