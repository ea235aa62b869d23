/*
 * forward.h: a port on a sandbox's loopback whose connections are given to the network proxy on the host.
 *
 * Each gets one end of a socket pair from there (wire/forward.h); descriptors travel into the sandbox only. It runs in the
 * sandbox and can be replaced by anything there: never a control.
 */
#ifndef AIRLOCK_GUEST_FORWARD_H
#define AIRLOCK_GUEST_FORWARD_H

#include <stdint.h>

#include "wire/forward.h"

#define FORWARD_WAITING_MAX \
	64 /* clients that wait for the host's answer; others wait in the kernel */

/* Serves until the channel ends. Exit status. */
int forward_serve(const char *host, uint16_t port, int channel);

#endif
