/*
 * command.h: one command in a sandbox, from start to its last byte.
 *
 * Ends in one of these ways, told apart in the result: it exited, a signal ended it, it could not
 * be started, the time limit fired, a person stopped it, the sandbox went away. At a time-out or
 * a stop the whole tree gets TERM, after KILL_GRACE_MS KILL. The output that was written before the end
 * is read to its end; DRAIN_GRACE_MS bounds only the wait for a pipe that somebody still holds.
 */
#ifndef AIRLOCK_ENGINE_COMMAND_H
#define AIRLOCK_ENGINE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/pump.h"
#include "provider/provider.h"

enum command_end {
	END_EXITED,
	END_SIGNALED,
	END_FAILED, /* never started: step, sys */
	END_TIMEOUT,
	END_STOPPED,   /* first interrupt; how it then ended is in code/signo */
	END_ABANDONED, /* second interrupt */
	END_LOST,      /* the sandbox ended under it */
};

struct command_opts {
	char *const *argv, *const *env;
	const char *cwd;
	struct pump_opts io;
	bool tty;
	unsigned rows, cols;
	int64_t timeout_ns;	    /* 0: none */
	bool interruptible;	    /* heed interrupt.h */
	const volatile int *cancel; /* non-zero: END_ABANDONED. May be NULL */
	/* Called about once a second while it runs. May be NULL. */
	void (*tick)(void *arg);
	void *tick_arg;
};

struct command_result {
	enum command_end end;
	int code, signo; /* of the main process, when it ended */
	bool killed;	 /* KILL was needed */
	bool away;	 /* nor could it be told: there was no connection to where it ran */
	bool deaf;	 /* not even that brought an end: the sandbox does not answer */
	unsigned leftovers, oom_kills;
	int out_error, err_error; /* the caller's stream could not be written: errno, 0 */
	int sys;
	char step[32];
	int64_t duration_ns;
	uint64_t out_bytes, err_bytes, cpu_ns, maxrss_kib;
};

/* 0 (see result) or a negative errno when Airlock itself failed. */
int command_run(struct sandbox *sb, const struct command_opts *o, struct command_result *ret,
		struct err *e);
/* As a shell says it: code, or 128 + signal. */
int command_status(const struct command_result *r);

#endif
