/*
 * hold.h: the process that stands between pid 1 and one command.
 *
 * It is a sub-reaper, so everything the command ever starts stays below it, whatever session or
 * group it moves to, and it ends when all of that has been reaped. It decides nothing: what a tree is
 * told, and when, is command.h's.
 *
 * It shares pid 1's memory, on a small stack of its own, and so does the command until its execve: to copy pid 1's
 * pages for each command costs more than everything else that the guest does for it. Therefore it makes system
 * calls only (raw.h), writes nothing but its struct hold, and pid 1 leaves that, the stack and
 * the words of the command alone until the holder has been reaped, and its children if it was killed.
 */
#ifndef AIRLOCK_GUEST_HOLD_H
#define AIRLOCK_GUEST_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/guest.h"

enum hold_state {
	HOLD_STARTING,
	HOLD_STARTED, /* main runs, or has ended with others of its tree still there */
	HOLD_FAILED,  /* error, step; nothing was left to wait for */
	HOLD_DONE,    /* status and usage; the whole tree has been reaped */
};

struct hold {
	/* From pid 1; not changed until the holder has ended. */
	const struct gm_exec *x;
	const char *path;  /* of the command's environment */
	char **shell_argv; /* for a script without "#!": "sh", room for the file, the arguments */
	int fds[3];	   /* all above 2 */
	int wake;	   /* eventfd of pid 1 */
	bool tty;	   /* fds[0] is the terminal */
	/* From the holder; read after hold_state. */
	int state;
	int error; /* positive errno */
	const char *step;
	pid_t main;
	int main_ended; /* status is known, others still live */
	int status;	/* as of wait */
	uint64_t cpu_ns, maxrss_kib;
};

#define HOLD_STACK 32768 /* of holder and starting command, guard page included */

#define HOLD_ALIGN 4096

/* The guard page of a stack of HOLD_STACK bytes at a multiple of HOLD_ALIGN. The stack; NULL if it cannot have one. */
void *hold_guard(void *stack);
/* A stack to keep for as many holders as come, one at a time. NULL: no memory. */
void *hold_stack(void);
/*
 * Starts the holder, and it the command: a session of its own, fds as 0, 1 and 2 and no other descriptor, default
 * signals, an empty mask. A name without '/' is looked up in the command's PATH. Every signal of the caller is
 * blocked. 0, or negative errno. SIGCHLD and `wake` tell of each change of state
 * but the start, which the caller has to look for.
 */
int hold_start(struct hold *h, void *stack, pid_t *ret_pid);
/* The state, and with it everything that was written before it. */
enum hold_state hold_state(const struct hold *h);
bool hold_main_ended(const struct hold *h);

#endif
