/*
 * tool.h: our other programs on the other machine: the gateway for runs with a bridge, the launcher for those in a sandbox.
 *
 * Each lies beside the guest, under a name with its hash, and is sent only where it is not there as it should be; by a command of the
 * guest's, so that it takes the way that the guest has shown to work.
 */
#ifndef AIRLOCK_PROVIDER_SSH_TOOL_H
#define AIRLOCK_PROVIDER_SSH_TOOL_H

#include "provider/ssh/session.h"

/* Commands can run already, and none does. kind: "gateway" or "launch". hash: of the program that is there now. */
int ssh_tool_put(struct ssh_session *x, const char *kind, const volatile int *cancel,
		 char hash[SSH_HASH_LEN + 1], struct err *e);
/* The same for the gateway, and the words that start it: x->gateway. */
int ssh_tool_gateway(struct ssh_session *x, const volatile int *cancel, struct err *e);
/*
 * A file for what a shell there says: in memory of this machine, so of a size that no byte of it can change. Zeroes where nothing was
 * said. The caller's; -1 and errno.
 */
int ssh_tool_said(void);

#endif
