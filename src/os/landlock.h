/* landlock.h: the two Landlock scopes that namespaces do not give. */
#ifndef AIRLOCK_OS_LANDLOCK_H
#define AIRLOCK_OS_LANDLOCK_H

/* Landlock ABI of the running kernel; 0: none. */
int landlock_abi(void);
/*
 * Abstract unix sockets and signals end at this process and its children. With the host's network
 * the abstract names of host services are otherwise in reach. Returns the ABI in force, 0 if the
 * kernel is too old for scopes (before ABI 6), or a negative errno. Sets no_new_privs.
 */
int landlock_scope(void);

#endif
