/*
 * command.h: one command from its request to its last event, seen from pid 1.
 *
 * When the main process ends, what is left of the tree gets LEFTOVER_SETTLE_MS to end by itself, then TERM,
 * LEFTOVER_GRACE_MS, then KILL, and only when all of it is reaped (hold.h) does EXITED go out: the last word
 * about the command. With a terminal it also waits until the relay has passed on the last byte.
 *
 * A command whose holder was killed is `lost`: its tree hangs below pid 1 then, which ends it (serve.c) and calls
 * command_lost_end.
 */
#ifndef AIRLOCK_GUEST_COMMAND_H
#define AIRLOCK_GUEST_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "guest/hold.h"
#include "guest/outbox.h"
#include "wire/guest.h"

enum command_phase {
	CP_FREE = 0,
	CP_STARTING,
	CP_RUNNING,
	CP_SETTLE, /* main has ended; the rest may be about to */
	CP_TERM,   /* the rest was asked to end */
	CP_KILL,   /* the tree is being killed, pass by pass */
	CP_DRAIN,  /* nobody lives; the terminal's last bytes */
	CP_LOST,   /* the holder was killed */
	CP_SAID,   /* the last event is out; a process of it is not reaped yet */
};

struct command {
	enum command_phase phase;
	uint32_t id;
	pid_t holder, relay; /* 0: none, or reaped */
	struct gm_exec x;    /* owned */
	char **shell_argv;   /* owned vector */
	struct hold hold;
	void *stack; /* kept from one command to the next */
	int master;  /* of the terminal; -1 */
	bool started;
	uint64_t
	    signals; /* asked for; a set, so that a flood of requests is one walk of the tree a turn */
	int64_t due_ns, give_up_ns, signals_due_ns;
	int64_t look_ms; /* until the next look whether it has started */
	size_t leftovers;
};

/*
 * Takes over x; fds are the caller's and closed by it. False: FAILED is out and the slot is free again. `wake`:
 * eventfd of the loop.
 */
bool command_start(struct command *c, struct gm_exec *x, const int fds[FRAME_FDS_MAX], int wake,
		   struct outbox *o);
/* What has to happen now. True: some of its tree would not die and hangs below pid 1. */
bool command_step(struct command *c, int64_t now_ns, struct outbox *o);
/* Delivered by the next command_step after the start. */
void command_signal(struct command *c, uint32_t signo);
void command_winsize(struct command *c, uint32_t rows, uint32_t cols);
/* The holder or the relay has been reaped. True: it is lost now. */
bool command_reaped(struct command *c, pid_t pid);
/* A lost command's tree is gone, or (`gone` false) would not go, after `swept` more processes were killed. */
void command_lost_end(struct command *c, size_t swept, bool gone, struct outbox *o);
/* When command_step wants to run next; INT64_MAX: when somebody ends. */
int64_t command_due(const struct command *c);

#endif
