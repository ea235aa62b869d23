/*
 * local_super.h: private to the local provider: the supervisor of one command.
 *
 * One forked process per command, between Airlock and the command's tree. It is a
 * sub-reaper, so whatever the command starts, however often it forks away, stays its
 * descendant and can be ended. Its socket to Airlock is also the life line: when Airlock is gone, the
 * tree is killed.
 */
#ifndef AIRLOCK_PROVIDER_LOCAL_SUPER_H
#define AIRLOCK_PROVIDER_LOCAL_SUPER_H

#include "provider/provider.h"

enum super_request { SUPER_SIGNAL, SUPER_WINSIZE };

struct super_msg { /* Airlock -> supervisor, one datagram */
	enum super_request what;
	int signo;
	unsigned rows, cols;
};

/* Supervisor -> Airlock: struct sandbox_event, one datagram each; SE_EXITED or SE_FAILED is last. */

/* Runs in the forked child; never returns. ctl: its end of the SOCK_SEQPACKET pair. */
void super_main(int ctl, const struct exec_spec *x) __attribute__((noreturn));

#endif
