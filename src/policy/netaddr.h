/*
 * netaddr.h: which network addresses a sandbox may be let out to.
 *
 * A name that a rule allows may resolve to anything its owner likes: to this machine, to the network behind it, to the
 * address where a cloud hands out credentials. So the address is judged as well, each time, and only what is routed on
 * the public internet is "public". Forms that carry an IPv4 address inside an IPv6 one (mapped, NAT64, 6to4, Teredo) are
 * not unpacked but refused: the kernel or a router might reach through them what the plain form is refused.
 */
#ifndef AIRLOCK_POLICY_NETADDR_H
#define AIRLOCK_POLICY_NETADDR_H

#include <stdbool.h>
#include <stdint.h>

struct netaddr {
	bool v6;
	uint8_t b[16]; /* network order; IPv4: the first four */
};

enum netaddr_class {
	NETADDR_PUBLIC,
	NETADDR_UNSPECIFIED, /* 0.0.0.0/8, :: */
	NETADDR_LOOPBACK,
	NETADDR_PRIVATE, /* RFC 1918, unique local fc00::/7, site-local fec0::/10 */
	NETADDR_LINK_LOCAL,
	NETADDR_METADATA, /* where clouds hand out credentials */
	NETADDR_CGNAT,	  /* 100.64.0.0/10 */
	NETADDR_MULTICAST,
	NETADDR_RESERVED, /* documentation, benchmarks, protocol assignments, broadcast, unassigned */
	NETADDR_EMBEDDED, /* IPv4 within IPv6 */
	NETADDR_CLASSES,
};

enum netaddr_class netaddr_classify(const struct netaddr *a);
/* "loopback", "link-local", ... */
const char *netaddr_class_name(enum netaddr_class c);
bool netaddr_equal(const struct netaddr *a, const struct netaddr *b);
/* Dotted quad or IPv6 (brackets optional, no zone), in the usual spelling only. 0 or -EINVAL. */
int netaddr_parse(const char *s, struct netaddr *ret);
#define NETADDR_TEXT 46
void netaddr_text(const struct netaddr *a, char out[NETADDR_TEXT]);

#endif
