/*
 * interrupt.h: Ctrl-C, SIGTERM, SIGHUP and the terminal's size, for one run.
 *
 * First signal: stop gently (the command's tree gets TERM, results still come back).
 * Second: stop now (nothing more is brought back; the lease stays recoverable). The flags are for
 * long calls of sync/, which look at an int; the descriptor is for poll.
 */
#ifndef AIRLOCK_ENGINE_INTERRUPT_H
#define AIRLOCK_ENGINE_INTERRUPT_H

#include <stdbool.h>

#include "base/err.h"

/* Installs the handlers, and ignores SIGPIPE. Once per process. */
int interrupt_setup(struct err *e);
/* The same, but every further signal says what the first one said: results come back. For who is told by a program. */
int interrupt_setup_once(struct err *e);
/* Readable when something happened; interrupt_ack empties it. */
int interrupt_fd(void);
void interrupt_ack(void);
/* Set to 1 by the first / second signal. */
const volatile int *interrupt_first(void);
const volatile int *interrupt_second(void);
/* The first signal, or 0. */
int interrupt_signo(void);
/* True once after the window changed. */
bool interrupt_winch(void);
/* A signal that is the command's (USR1, USR2, ALRM, CONT) and has not been passed on yet, or 0. */
int interrupt_passed(void);
/* Puts every signal back to its default; for a child between fork and exec. */
void interrupt_child(void);

#endif
