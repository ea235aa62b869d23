/*
 * dispatch.c: from a request to its handler, in the order that call.h states.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "policy/origin.h"

/* --- target ------------------------------------------------------------------------------- */

/* Heap text of a query member, '+' and escapes decoded; NULL: a bad escape, a control byte, or no UTF-8. */
static char *decode(const char *p, size_t n)
{
	char *out = malloc(n + 1);
	size_t o = 0, k;

	for (size_t i = 0; out && i < n; i++) {
		int v = p[i] == '+' ? ' ' : (unsigned char)p[i];

		if (p[i] == '%') {
			int h = i + 2 < n ? str_hex_digit(p[i + 1]) : -1,
			    l = h >= 0 ? str_hex_digit(p[i + 2]) : -1;

			v = l < 0 ? -1 : h * 16 + l;
			i += 2;
		}
		if (v < 0x20 || v == 0x7f) {
			free(out);
			return NULL;
		}
		out[o++] = (char)v;
	}
	for (size_t i = 0; out && i < o; i += k) {
		k = str_printable_len(out + i, o - i);
		if (k == 0) {
			free(out);
			return NULL;
		}
	}
	if (out)
		out[o] = '\0';
	return out;
}

static int bad_query(struct call *c, const char *why)
{
	(void)reply_errorf(c, 400, "The query %s", why);
	return 1;
}

static int parse_query(struct call *c)
{
	const char *p = c->target.query.p;
	size_t left = c->target.query.n;

	while (left) {
		const char *amp = memchr(p, '&', left);
		size_t n = amp ? (size_t)(amp - p) : left;
		const char *eq = memchr(p, '=', n);
		struct call_query *q = &c->query[c->query_len];

		if (n) {
			if (c->query_len == API_QUERY_MAX)
				return bad_query(c, "has too many members");
			q->name = decode(p, eq ? (size_t)(eq - p) : n);
			q->value = eq ? decode(eq + 1, n - (size_t)(eq + 1 - p)) : strdup("");
			c->query_len++;
			if (!q->name || !q->value)
				return bad_query(c, "has a bad escape or is not UTF-8");
			for (size_t i = 0; i + 1 < c->query_len; i++)
				if (strcmp(c->query[i].name, q->name) == 0)
					return bad_query(c, "has a member twice");
		}
		p += n + (amp != NULL);
		left -= n + (amp != NULL);
	}
	return 0;
}

/* --- host and origin ---------------------------------------------------------------------- */

/* Host without its port. */
static struct view host_name(const char *host)
{
	size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	const char *rest;

	if (n > strlen(host))
		return (struct view){host, 0};
	/* What follows is a port, or it is another name that only begins like this one. */
	rest = host + n;
	if (*rest && (*rest != ':' || strspn(rest + 1, "0123456789") != strlen(rest + 1)))
		return (struct view){host, 0};
	return (struct view){host, n};
}

static bool view_is(struct view v, const char *text)
{
	return strlen(text) == v.n && strncasecmp(v.p, text, v.n) == 0;
}

/* Stops DNS rebinding: a page of another site that resolves its own name to this host. */
static bool host_ok(const struct api *a, const struct call *c)
{
	static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
	struct view h;

	if (a->cfg.mode != MODE_LOCAL_TRUSTED || !a->cfg.tcp)
		return true;
	/* There is no trusted proxy in this mode, so nobody may speak for another host. */
	if (c->head.forwarded_host || !c->head.host)
		return false;
	h = host_name(c->head.host);
	for (size_t i = 0; i < ARRAY_LEN(loopback); i++)
		if (view_is(h, loopback[i]))
			return true;
	for (size_t i = 0; a->cfg.hosts && a->cfg.hosts[i]; i++)
		if (view_is(h, a->cfg.hosts[i]))
			return true;
	return false;
}

/* scheme://authority of an Origin or Referer. */
static struct view origin_of(const char *url)
{
	const char *p = strstr(url, "://");

	if (!p)
		return (struct view){url, 0};
	p += 3;
	return (struct view){url, (size_t)(p - url) + strcspn(p, "/?#")};
}

static bool origin_ok(const struct api *a, const struct call *c)
{
	static const char *const schemes[] = {"http://", "https://"};
	struct view o = {NULL, 0};

	if (c->head.origin)
		o = origin_of(c->head.origin);
	else if (c->head.referer)
		o = origin_of(c->head.referer);
	if (!o.n)
		return false;
	if (a->cfg.public_url && view_is(o, a->cfg.public_url))
		return true;
	for (size_t i = 0; c->head.host && i < ARRAY_LEN(schemes); i++) {
		size_t n = strlen(schemes[i]);

		if (o.n > n && strncasecmp(o.p, schemes[i], n) == 0 &&
		    view_is((struct view){o.p + n, o.n - n}, c->head.host))
			return true;
	}
	return view_is(o, "http://localhost:3100") || view_is(o, "http://127.0.0.1:3100");
}

/* --- order -------------------------------------------------------------------------------- */

static void allow(struct call *c, unsigned methods)
{
	static const enum method all[] = {METHOD_GET, METHOD_HEAD,  METHOD_POST,
					  METHOD_PUT, METHOD_PATCH, METHOD_DELETE};
	size_t n = 0;

	if (methods & METHOD_GET)
		methods |= METHOD_HEAD;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (methods & all[i])
			n += (size_t)snprintf(c->allow + n, sizeof(c->allow) - n, "%s%s",
					      n ? ", " : "", method_name(all[i]));
}

static int find_route(struct api *a, struct call *c)
{
	/* HEAD is GET without its body, which the HTTP library leaves out. */
	enum method m = c->method == METHOD_HEAD ? METHOD_GET : c->method;
	unsigned other = 0;
	const struct route *r = route_match(&a->routes, m, &c->target, &other);
	size_t n = 0;

	if (!r && other) {
		allow(c, other);
		(void)reply_error(c, 405, "This method is not known here");
		return 1;
	}
	if (!r) {
		(void)reply_error(c, 404, "API route not found");
		return 1;
	}
	c->route = a->by_index[r - a->routes.v];
	for (size_t i = 0; i < r->segments && n < ARRAY_LEN(c->param); i++)
		if (r->segment[i].kind == SEGMENT_PARAM)
			c->param[n++] = c->target.segment[i];
	return 0;
}

static bool is_json(const char *type)
{
	size_t n;

	if (!type)
		return false;
	n = strcspn(type, "; \t");
	return n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0;
}

/* What the head says of a body. 0, 1 answered. */
static int judge_length(struct call *c)
{
	const char *n = c->head.content_length;

	if (c->head.transfer_encoding)
		return reply_error(c, 411, "A body needs a Content-Length"), 1;
	if (n && str_to_u64(n, UINT64_MAX, &c->body_len) < 0)
		return reply_error(c, 400, "Content-Length is not a number"), 1;
	if (c->body_len > API_BODY_MAX)
		return reply_errorf(c, 413, "A body has at most %d bytes", API_BODY_MAX), 1;
	if (c->head.content_encoding && strcasecmp(c->head.content_encoding, "identity") != 0)
		return reply_error(c, 400, "A body must not be encoded"), 1;
	return 0;
}

/* Whether the route takes such a body. 0, 1 answered. */
static int judge_kind(struct call *c)
{
	const struct schema *s = c->route->body;
	size_t most = API_BODY_MAX;

	if (!c->body_len)
		return 0;
	if (!s)
		return reply_error(c, 400, "This route takes no body"), 1;
	if (!s->fields->name)
		most = API_BODY_SMALL;
	else if (c->route->guard == GUARD_KNOWN)
		/* Whoever is known: nobody without any right holds the memory of all (API_HELD_MAX). */
		most = API_CONFIG_MAX + API_BODY_SMALL;
	if (c->body_len > most)
		return reply_errorf(c, 413, "A body has at most %zu bytes here", most), 1;
	if (!is_json(c->head.content_type))
		return reply_error(c, 415, "A body is application/json"), 1;
	return 0;
}

/* Who asks, and whether that actor may. 0 and perhaps c->denied, 1 answered. */
int api_authorise(struct api *a, struct call *c)
{
	c->denied = NULL;
	c->admitted_ns = clock_mono_ns();
	/* Health and the document of the API are the same for everybody, also with a stale credential. */
	if (c->route->guard == GUARD_OPEN)
		return 0;
	if (api_authenticate(a, c))
		return 1;
	if (!(c->method & METHODS_SAFE) &&
	    actor_needs_origin(&c->actor, c->head.origin || c->head.referer) && !origin_ok(a, c))
		return reply_error(c, 403, "Board mutation requires trusted browser origin"), 1;
	c->denied = guard_denies(c->route->guard, &c->actor);
	if (!c->denied)
		return 0;
	a->n.denied++;
	if (c->actor.type != ACTOR_NONE && c->body_len && c->body_len <= API_BODY_SMALL)
		return 0;
	return reply_error(c, 403, c->denied), 1;
}

int api_admit(struct api *a, struct call *c, const char *target)
{
	enum target_fault f = target_parse(target, strlen(target), &c->target);

	if (f != TARGET_OK) {
		(void)reply_errorf(c, f == TARGET_TOO_LONG ? 414 : 400,
				   "The request target is not acceptable (%s)",
				   target_fault_name(f));
		return 1;
	}
	if (c->head.malformed)
		return reply_error(c, 400, "A line of the head is no header"), 1;
	if (c->head.repeated)
		return reply_error(c, 400, "A header that may come once came twice"), 1;
	if (!host_ok(a, c))
		return reply_error(c, 403, "This host name is not served here"), 1;
	if (c->method == 0)
		return reply_error(c, 501, "This method is not known"), 1;
	return judge_length(c) || parse_query(c) || find_route(a, c) || judge_kind(c) ||
	       api_authorise(a, c);
}

static int parse_body(struct call *c, const char *p, size_t n)
{
	const char *much;
	json_error_t je;

	if (!n)
		return 0;
	much = json_too_much(p, n);
	if (much)
		return reply_errorf(c, 400, "A body is %s", much), 1;
	c->body = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (!c->body)
		return reply_error(c, 400, "Invalid JSON body"), 1;
	return 0;
}

/* Body against its schema; then what the handler gets is an object. */
static int judge_body(struct call *c)
{
	json_t *issues = NULL;

	if (!c->body && c->route->body)
		c->body = json_object();
	if (c->body && !json_is_object(c->body)) {
		issues = json_pack("[{s:s,s:[],s:s}]", "code", "invalid_type", "path", "message",
				   "the body is an object");
	} else if (c->body && schema_check(c->route->body, c->body, &issues) == 0) {
		return 0;
	}
	if (!issues)
		return 0;
	return reply_json(c, 400,
			  json_pack("{s:s,s:o}", "error", "Validation error", "details", issues)),
	       1;
}

int api_dispatch(struct api *a, struct call *c, const char *body, size_t body_len)
{
	int r;

	if (parse_body(c, body, body_len) || judge_body(c))
		return 0;
	/* A key that was revoked while its body dripped in opens nothing. */
	if (!c->denied && clock_mono_ns() - c->admitted_ns > API_STALE_MS * NS_PER_MS &&
	    api_authorise(a, c))
		return 0;
	if (c->denied)
		return reply_error(c, 403, c->denied);
	r = c->route->handle(c);
	if (r < 0)
		return reply_error(c, 500, "Internal server error");
	return r;
}
