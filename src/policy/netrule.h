/*
 * netrule.h: the allow-list of --net allow=, and what a sandbox asked for, in one canonical form.
 *
 * A rule is HOST[:PORT]; without a port it means 443. HOST is a name, a name below a wildcard ("*.example.com": one or
 * more whole labels to the left, never example.com itself, and never of a single label such as "*.com"), or a literal
 * address, IPv6 in brackets. A target is HOST:PORT in the same spelling without wildcards. Case and one trailing dot do
 * not count. Everything that two programs could read in two ways is refused, in rules and targets alike: user info,
 * escapes, other spellings of an address (0x7f.1, 2130706433, 010.0.0.1), zones, names that are not plain ASCII (write
 * the xn-- form).
 *
 * A literal address in a rule allows that address and nothing else: a name that resolves to it is not the address. It is
 * the one way to an address that is not public, besides a pin (--resolve).
 */
#ifndef AIRLOCK_POLICY_NETRULE_H
#define AIRLOCK_POLICY_NETRULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/err.h"
#include "policy/netaddr.h"

#define NET_HOST_MAX 253 /* bytes of a name in text form */
#define NET_LABEL_MAX 63
#define NET_DEFAULT_PORT 443

struct net_target {
	char host[NET_HOST_MAX + 1]; /* lower case, no trailing dot, IPv6 without brackets */
	bool literal;		     /* addr is what host says */
	struct netaddr addr;
	uint16_t port;
};

struct net_rule {
	struct net_target to; /* host without the "*." */
	bool wildcard;
};

/* A name's addresses as the operator says: never asked for, and allowed whatever they are. */
struct net_pin {
	struct net_target from;
	struct netaddr addr;
};

/*
 * HOST[:PORT]. default_port 0: the port must be there. 0, or -EINVAL and *ret_why, a static text.
 */
int net_target_parse(struct view text, uint16_t default_port, struct net_target *ret,
		     const char **ret_why);
/* 0 or -EINVAL with e that names the word and the rule. */
int net_rule_parse(const char *word, struct net_rule *ret, struct err *e);
/* HOST:PORT:ADDRESS, as curl's --resolve. */
int net_pin_parse(const char *word, struct net_pin *ret, struct err *e);
bool net_rule_matches(const struct net_rule *r, const struct net_target *t);
/* "host:port" with brackets where needed; port 443 is left out. */
#define NET_TARGET_TEXT (NET_HOST_MAX + 10)
void net_target_text(const struct net_target *t, char out[NET_TARGET_TEXT]);

#endif
