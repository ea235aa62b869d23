#include "bridge/proxy_request.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#define HTTP_PORT 80

static int refuse(struct proxy_request *r, int status, const char *rule, const char *why)
{
	r->status = status;
	r->rule = rule;
	r->why = why;
	return -EINVAL;
}

static bool is(struct view v, const char *s)
{
	return v.n == strlen(s) && memcmp(v.p, s, v.n) == 0;
}

static int parse_connect(const struct http1 *h, struct proxy_request *r)
{
	r->connect = true;
	if (h->content_length != 0)
		return refuse(r, 400, "proxy.body", "CONNECT has no body");
	if (net_target_parse(h->target, 0, &r->to, &r->why) < 0)
		return refuse(r, 400, "proxy.target", r->why);
	return 0;
}

/* Host must say the same place: a server that goes by Host must not serve another than was judged. */
static int host_agrees(const struct http1 *h, struct proxy_request *r)
{
	struct net_target host;
	const char *why;

	for (size_t i = 0; i < h->headers_len; i++) {
		if (!header_name_is(h->headers[i].name, "host"))
			continue;
		if (net_target_parse(h->headers[i].value, HTTP_PORT, &host, &why) < 0 ||
		    host.port != r->to.port || strcmp(host.host, r->to.host) != 0)
			return refuse(r, 400, "proxy.host",
				      "the Host header names another place than the request");
	}
	return 0;
}

int proxy_request_parse(const struct http1 *h, struct proxy_request *ret)
{
	struct view t = h->target, rest;
	size_t n = 0;

	*ret = (struct proxy_request){0};
	if (is(h->method, "CONNECT"))
		return parse_connect(h, ret);
	if (t.n && t.p[0] == '/')
		return refuse(ret, 400, "proxy.form",
			      "this is a proxy: the request must name its server (http_proxy)");
	if (t.n >= 8 && strncasecmp(t.p, "https://", 8) == 0)
		return refuse(ret, 400, "proxy.form",
			      "https goes through CONNECT, not through a proxy that reads it");
	if (t.n < 7 || strncasecmp(t.p, "http://", 7) != 0)
		return refuse(ret, 400, "proxy.form", "the target is not http://HOST/path");
	rest = (struct view){t.p + 7, t.n - 7};
	while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
		n++;
	ret->path = (struct view){rest.p + n, rest.n - n};
	if (memchr(rest.p, '#', rest.n))
		return refuse(ret, 400, "proxy.target", "a fragment is not sent to servers");
	if (net_target_parse((struct view){rest.p, n}, HTTP_PORT, &ret->to, &ret->why) < 0)
		return refuse(ret, 400, "proxy.target", ret->why);
	return host_agrees(h, ret);
}

static bool own_name(struct view name)
{
	static const char *const own[] = {
	    "host",
	    "connection",
	    "proxy-connection",
	    "proxy-authorization",
	    "proxy-authenticate",
	    "keep-alive",
	    "te",
	    "trailer",
	    "upgrade",
	    "expect",
	    "transfer-encoding",
	    "content-length",
	};

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (header_name_is(name, own[i]))
			return true;
	return false;
}

/* Named by a Connection header: it belongs to this connection alone. */
static bool named_hop(const struct http1 *h, struct view name)
{
	for (size_t i = 0; i < h->headers_len; i++) {
		struct view v = h->headers[i].value;

		if (!header_name_is(h->headers[i].name, "connection"))
			continue;
		while (v.n) {
			const char *comma = memchr(v.p, ',', v.n);
			size_t n = comma ? (size_t)(comma - v.p) : v.n, used = n + (comma ? 1 : 0);
			const char *p = v.p;

			while (n && (*p == ' ' || *p == '\t')) {
				p++;
				n--;
			}
			while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
				n--;
			if (n == name.n && strncasecmp(p, name.p, n) == 0)
				return true;
			v.p += used;
			v.n -= used;
		}
	}
	return false;
}

int proxy_request_head(const struct http1 *h, const struct proxy_request *r, struct buf *out)
{
	bool v6 = r->to.literal && r->to.addr.v6;
	bool query = r->path.n && r->path.p[0] == '?';

	(void)buf_put(out, h->method.p, h->method.n);
	(void)buf_puts(out, r->path.n == 0 || query ? " /" : " ");
	(void)buf_put(out, r->path.p, r->path.n);
	(void)buf_putf(out, " HTTP/1.1\r\nHost: %s%s%s", v6 ? "[" : "", r->to.host, v6 ? "]" : "");
	if (r->to.port != HTTP_PORT)
		(void)buf_putf(out, ":%u", r->to.port);
	(void)buf_puts(out, "\r\nConnection: close\r\n");
	for (size_t i = 0; i < h->headers_len; i++) {
		const struct header *x = &h->headers[i];

		if (own_name(x->name) || named_hop(h, x->name))
			continue;
		(void)buf_put(out, x->name.p, x->name.n);
		(void)buf_puts(out, ": ");
		(void)buf_put(out, x->value.p, x->value.n);
		(void)buf_puts(out, "\r\n");
	}
	if (h->content_length < 0)
		(void)buf_puts(out, "Transfer-Encoding: chunked\r\n");
	else if (h->content_length > 0)
		(void)buf_putf(out, "Content-Length: %" PRId64 "\r\n", h->content_length);
	else if (!is(h->method, "GET") && !is(h->method, "HEAD"))
		(void)buf_puts(out, "Content-Length: 0\r\n");
	return buf_puts(out, "\r\n");
}
