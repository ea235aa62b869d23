/*
 * seccomp.h: the system call filters, made at build time from seccomp/profile.h.
 *
 * Installing sets no_new_privs first and cannot be undone. The profiles are for the running
 * architecture; calls of another one (i386, x32) kill the process.
 */
#ifndef AIRLOCK_OS_SECCOMP_H
#define AIRLOCK_OS_SECCOMP_H

#include <stdbool.h>

/* For everything inside a sandbox, pid 1 included. 0 or a negative errno (-EINVAL: no seccomp). */
int seccomp_install_guest(void);
/* For airlock-launch once its sandbox runs; a call outside the list kills it. */
int seccomp_install_monitor(void);
/*
 * For airlock-bridge: a list, and sockets of one kind only: TCP, or unix streams.
 */
enum seccomp_bridge {
	SECCOMP_BRIDGE_STREAM,
	SECCOMP_BRIDGE_QUEUE, /* names below a directory as well, which is for Landlock to bound */
	SECCOMP_BRIDGE_LISTENER, /* connections of a socket that listens */
};
int seccomp_install_bridge(bool tcp, enum seccomp_bridge more);
/* For the second process of airlock-bridge (bridge/lastword.h); a call outside the list kills it. */
int seccomp_install_lastword(void);
/* For airlock-proxy: the bridge's list over TCP, and pairs of connected unix sockets. */
int seccomp_install_proxy(void);

#endif
