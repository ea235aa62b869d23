#include "policy/origin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static int bad(struct err *e, const char *text, const char *why)
{
	return err_set(e, ERR_INVALID,
		       "upstream %.200s: %s; want http://HOST[:PORT], https://HOST[:PORT] or "
		       "unix:/path/of/socket",
		       text, why);
}

static bool name_ok(const char *p, size_t n)
{
	bool edge = true; /* a label begins and ends with a letter or digit */

	for (size_t i = 0; i < n; i++) {
		char c = p[i];
		bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_';

		if (c == '.' || c == '-' ? edge && c == '.' : !word)
			return false;
		if (c == '-' && edge)
			return false;
		if (c == '.' && p[i - 1] == '-')
			return false;
		edge = c == '.';
	}
	return n > 0 && p[n - 1] != '-' && p[n - 1] != '.';
}

/* A last label of digits alone, or 0x and hex digits, is what resolvers take for an address. */
static bool numeric(const char *host)
{
	const char *last = strrchr(host, '.');

	last = last ? last + 1 : host;
	if (str_starts(last, "0x"))
		return last[2 + strspn(last + 2, "0123456789abcdef")] == '\0';
	return last[strspn(last, "0123456789")] == '\0';
}

static const char *host_parse(struct origin *o, const char *p, size_t n)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (n == 0 || n >= sizeof(o->host))
		return "the host is missing or longer than 255 bytes";
	for (size_t i = 0; i < n; i++)
		o->host[i] = p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] | 0x20) : p[i];
	o->host[n] = '\0';
	if (o->ipv6) {
		if (inet_pton(AF_INET6, o->host, &v6) != 1)
			return "the address in brackets is not IPv6";
		return IN6_IS_ADDR_UNSPECIFIED(&v6)
			   ? "the address stands for every interface: name the one to connect to"
			   : NULL;
	}
	if (inet_pton(AF_INET, o->host, &v4) == 1)
		return v4.s_addr == 0
			   ? "the address stands for every interface: name the one to connect to"
			   : NULL;
	/* 127.1, 0x7f000001, 2130706433: other spellings of an address, for some resolvers only. */
	if (numeric(o->host))
		return "the host looks like an address but is none in the usual form";
	return name_ok(o->host, n) ? NULL : "the host is neither a name nor an address";
}

static const char *authority(struct origin *o, const char *p, size_t n)
{
	const char *port = NULL, *host = p;
	size_t host_n = n;
	uint64_t v = o->scheme == ORIGIN_HTTPS ? 443 : 80;
	const char *why;

	if (memchr(p, '@', n))
		return "user and password do not belong here";
	if (n && p[0] == '[') {
		const char *end = memchr(p, ']', n);

		if (!end)
			return "the bracket of the IPv6 address does not close";
		o->ipv6 = true;
		host = p + 1;
		host_n = (size_t)(end - host);
		if (end + 1 < p + n) {
			if (end[1] != ':')
				return "after the bracket comes ':' and the port";
			port = end + 2;
		}
	} else {
		const char *colon = memchr(p, ':', n);

		if (colon) {
			host_n = (size_t)(colon - p);
			port = colon + 1;
		}
	}
	if (port) {
		char digits[6];
		size_t len = (size_t)(p + n - port);

		if (len == 0 || len >= sizeof(digits))
			return "the port is not a number from 1 to 65535";
		memcpy(digits, port, len);
		digits[len] = '\0';
		if (str_to_u64(digits, 65535, &v) < 0 || v == 0)
			return "the port is not a number from 1 to 65535";
	}
	o->port = (uint16_t)v;
	why = host_parse(o, host, host_n);
	return why;
}

static void canonical(struct origin *o)
{
	bool usual = o->port == (o->scheme == ORIGIN_HTTPS ? 443 : 80);
	const char *l = o->ipv6 ? "[" : "", *r = o->ipv6 ? "]" : "";

	if (usual)
		(void)snprintf(o->authority, sizeof(o->authority), "%s%s%s", l, o->host, r);
	else
		(void)snprintf(o->authority, sizeof(o->authority), "%s%s%s:%u", l, o->host, r,
			       o->port);
	(void)snprintf(o->text, sizeof(o->text), "%s://%s",
		       o->scheme == ORIGIN_HTTPS ? "https" : "http", o->authority);
}

static const char *socket_parse(struct origin *o, const char *path)
{
	size_t n = strlen(path);

	o->scheme = ORIGIN_UNIX;
	if (path[0] != '/')
		return "the path of a socket begins with '/'";
	if (n >= sizeof(o->path))
		return "the path of a socket may have 107 bytes";
	memcpy(o->path, path, n + 1);
	(void)snprintf(o->host, sizeof(o->host), "localhost");
	(void)snprintf(o->authority, sizeof(o->authority), "localhost");
	(void)snprintf(o->text, sizeof(o->text), "unix:%s", o->path);
	return NULL;
}

int origin_parse(const char *text, struct origin *ret, struct err *e)
{
	const char *rest, *why;
	size_t n;

	memset(ret, 0, sizeof(*ret));
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
			return bad(e, "(not printable)", "it holds a space or a control byte");
	if (strncmp(text, "unix:", 5) == 0) {
		why = socket_parse(ret, text + 5);
		return why ? bad(e, text, why) : 0;
	}
	if (strncmp(text, "http://", 7) == 0)
		rest = text + 7;
	else if (strncmp(text, "https://", 8) == 0)
		rest = text + 8;
	else
		return bad(e, text, "the scheme is not one of the three");
	ret->scheme = rest == text + 8 ? ORIGIN_HTTPS : ORIGIN_HTTP;
	n = strcspn(rest, "/?#\\");
	if (rest[n] != '\0' && strcmp(rest + n, "/") != 0)
		return bad(
		    e, text,
		    "it has a path, a query or a fragment, and paths come from requests alone");
	why = authority(ret, rest, n);
	if (why)
		return bad(e, text, why);
	canonical(ret);
	return 0;
}

struct view origin_strip(const struct origin *o, struct view url)
{
	size_t n = strlen(o->text);

	if (o->scheme == ORIGIN_UNIX || url.n < n || memcmp(url.p, o->text, n) != 0)
		return (struct view){NULL, 0};
	if (url.n == n)
		return (struct view){"/", 1};
	/* "http://api.test.evil/", "http://api.test:80@evil/": the text goes on, the origin does not. */
	if (url.p[n] != '/')
		return (struct view){NULL, 0};
	return (struct view){url.p + n, url.n - n};
}
