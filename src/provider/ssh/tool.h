/*
 * tool.h: the gateway program on the other machine, for runs with a bridge.
 *
 * It lies beside the guest, under a name with its hash, and is sent only where it is not there as it should be; by a command of the
 * guest's, so that it takes the way that the guest has shown to work.
 */
#ifndef AIRLOCK_PROVIDER_SSH_TOOL_H
#define AIRLOCK_PROVIDER_SSH_TOOL_H

#include "provider/ssh/session.h"

/* Commands can run already, and none does. Sets x->gateway. */
int ssh_tool_gateway(struct ssh_session *x, const volatile int *cancel, struct err *e);
/*
 * A file for what a shell there says: in memory of this machine, so of a size that no byte of it can change. Zeroes where nothing was
 * said. The caller's; -1 and errno.
 */
int ssh_tool_said(void);

#endif
