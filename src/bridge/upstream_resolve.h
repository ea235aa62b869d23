/*
 * upstream_resolve.h: the addresses of an http or https origin, asked for once, before confinement.
 */
#ifndef AIRLOCK_BRIDGE_UPSTREAM_RESOLVE_H
#define AIRLOCK_BRIDGE_UPSTREAM_RESOLVE_H

#include <netdb.h>

#include "base/err.h"
#include "policy/origin.h"

#define UPSTREAM_ADDRESSES_MAX 8 /* of one name; the rest is not tried */

/* At least one address; the caller's freeaddrinfo. ERR_UNAVAILABLE names the origin. */
int upstream_resolve(const struct origin *o, struct addrinfo **ret, struct err *e);

#endif
