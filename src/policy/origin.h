/*
 * origin.h: the one upstream origin of a policy or run.
 *
 * http://HOST[:PORT], https://HOST[:PORT] or unix:/absolute/socket. HOST is a name, an IPv4 address or a
 * bracketed IPv6 address. User info, a path (other than one '/'), a query, a fragment, a wildcard
 * address and port 0 are refused when the value is read, never found out at the first request.
 */
#ifndef AIRLOCK_POLICY_ORIGIN_H
#define AIRLOCK_POLICY_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/err.h"

enum origin_scheme { ORIGIN_HTTP, ORIGIN_HTTPS, ORIGIN_UNIX };

struct origin {
	enum origin_scheme scheme;
	char host[256]; /* lower case, IPv6 without brackets; unix: "localhost" */
	bool ipv6;
	uint16_t port;	/* filled in when left out: 80, 443; unix: 0 */
	char path[108]; /* unix: the socket; else "" */
	char
	    authority[272]; /* what the Host header says: host, brackets, port unless the default */
	char text[300];	    /* canonical form, for messages and messages only */
};

/* 0, or -EINVAL with e that names the text and the rule. */
int origin_parse(const char *text, struct origin *ret, struct err *e);
/*
 * If an absolute URL (a Location) lies on this origin, the rest of it from the path on ("/" for none);
 * else an empty view. Lexical, strict: user info and other spellings of the host do not count.
 */
struct view origin_strip(const struct origin *o, struct view url);

#endif
