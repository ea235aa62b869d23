/*
 * holder.h: the process that stands between pid 1 and one command.
 *
 * It is a sub-reaper, so everything the command ever starts stays below it, whatever session or
 * group it moves to. When the main process ends, what is left of the tree gets LEFTOVER_SETTLE_MS to end by
 * itself, then TERM, LEFTOVER_GRACE_MS, then KILL, and only when all of it is reaped does the
 * holder say HM_EXITED: the last word about the command. With a terminal it also relays its bytes.
 *
 * Holder and pid 1 talk over a SOCK_SEQPACKET pair in struct holder_msg. End of that socket tells
 * pid 1 that the holder is gone, and a holder that pid 1 is: it then kills its tree.
 */
#ifndef AIRLOCK_GUEST_HOLDER_H
#define AIRLOCK_GUEST_HOLDER_H

#include <stdint.h>

#include "wire/guest.h"

enum holder_msg_type {
	HM_SIGNAL = 1, /* a: signal */
	HM_WINSIZE,    /* a: rows, b: columns */
	HM_STARTED,    /* a: pid */
	HM_FAILED,     /* a: errno, step */
	HM_EXITED, /* a: code, b: signal, c: leftovers, n[0]: cpu_ns, n[1]: maxrss_kib, orphans */
	HM_PACKED, /* a: errno, n[0..3]: members, unreadable, shrunk, left_out */
};

struct holder_msg {
	uint32_t type, a, b, c;
	uint64_t n[4];
	uint32_t orphans; /* some would not die in time: pid 1 inherits them */
	char step[GM_STEP_MAX];
};

/*
 * Runs as the holder and never returns. ctl and fds are owned by the process; every signal is
 * blocked. fds: stdin, stdout, stderr (the last is -1 with a terminal).
 */
_Noreturn void holder_run(int ctl, const struct gm_exec *x, const int fds[3]);
/* Sends one message, waiting if it must. False: the peer is gone. */
bool holder_say(int ctl, const struct holder_msg *m);

#endif
