/*
 * ownaddr.h: whether an address is this machine's own, as the kernel's routes have it at that moment.
 *
 * A list taken once would know neither an address that came later, nor a whole range that is routed to this machine, nor the
 * sixty-fifth. The question goes over a netlink socket that was opened before confinement.
 *
 * Safe because: a process without capabilities can ask through it and change nothing; it is connected to the kernel and is
 * in no group, so nobody else's messages arrive.
 */
#ifndef AIRLOCK_BRIDGE_OWNADDR_H
#define AIRLOCK_BRIDGE_OWNADDR_H

#include "policy/netaddr.h"

/* A descriptor, or a negative errno. */
int ownaddr_open(void);
/* 1: it is; 0: it is not, or nothing leads there; else a negative errno: that is not known, and the address not to be used. */
int ownaddr_ask(int fd, const struct netaddr *a);

#endif
