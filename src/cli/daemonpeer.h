/*
 * daemonpeer.h: who answers where a daemon is thought to be.
 *
 * A port is anybody's once its daemon has gone, and a key that was said cannot be taken back. So before the first byte is
 * sent the kernel is asked whose the other end is: ours, root's, or that of the user whom AIRLOCK_DAEMON_USER names (default:
 * "airlock", the user of the packaged service). What runs in a sandbox with the host's network has its user's number
 * outside: a process of another user namespace is nobody, whatever its number.
 *
 * What it does not do: tell one program of the same user from another outside of sandboxes; that one reads the key anyway.
 */
#ifndef AIRLOCK_CLI_DAEMONPEER_H
#define AIRLOCK_CLI_DAEMONPEER_H

#include <stdint.h>

#include "base/err.h"

/* fd: connected, TCP or unix. Waits for the other end to take the connection up: until then it is nobody's. 0 or negative. */
int daemonpeer_check(int fd, const char *where, int64_t until_ns, struct err *e);

#endif
