/*
 * Door 2: what comes back, either the bridge's own words or the upstream's filtered ones; see guard.h. Not done here: any decision about
 * a request (guard.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "bridge/guard_internal.h"

/* Our own. --------------------------------------------------------------------------------- */

static void reply_head(struct guard_reply *r, int status, const char *rule, bool indeterminate)
{
	r->status = status;
	r->rule = rule;
	r->headers_len = 0;
	r->headers[r->headers_len++] =
	    (struct header){guard_text("content-type"), guard_text("application/json")};
	r->headers[r->headers_len++] =
	    (struct header){guard_text("cache-control"), guard_text("no-store")};
	r->headers[r->headers_len++] = (struct header){guard_text(GUARD_MARKER), guard_text(rule)};
	if (indeterminate)
		r->headers[r->headers_len++] =
		    (struct header){guard_text(GUARD_OUTCOME), guard_text("indeterminate")};
}

/* Only static text and figures come in: nothing needs escaping, and nothing of the host shows. */
static void __attribute__((format(printf, 4, 5)))
reply(struct guard_reply *r, int status, const char *rule, const char *fmt, ...)
{
	va_list ap;
	int n;

	reply_head(r, status, rule, false);
	va_start(ap, fmt);
	n = vsnprintf(r->body, sizeof(r->body), fmt, ap);
	va_end(ap);
	r->body_len = n < 0 ? 0 : (size_t)n < sizeof(r->body) ? (size_t)n : sizeof(r->body) - 1;
}

void guard_deny(struct guard_verdict *v, int status, const char *rule, const char *error)
{
	v->allowed = false;
	v->rule = rule;
	reply(&v->reply, status, rule, "{\"error\":\"%s\",\"code\":\"%s\"}", error, rule);
}

int guard_deny_size(struct guard_verdict *v, uint64_t size, bool at_least)
{
	v->allowed = false;
	if (v->limits.body_max == 0) {
		guard_deny(v, 400, "body.method", "a request with this method has no body");
		return -E2BIG;
	}
	v->rule = "body.size";
	reply(&v->reply, 413, v->rule,
	      "{\"error\":\"the request body has %s%" PRIu64 " bytes and the limit is %" PRIu64
	      " bytes; sending it again will not help\",\"code\":\"body.size\",\"size\":%" PRIu64
	      ",\"limit\":%" PRIu64 ",\"retryable\":false}",
	      at_least ? "at least " : "", size, v->limits.body_max, size, v->limits.body_max);
	return -E2BIG;
}

/* The upstream's, and what goes wrong. ------------------------------------------------------- */

int guard_response_body(struct guard_verdict *v, size_t n)
{
	if (n > UINT64_MAX - v->response_seen)
		return -E2BIG;
	v->response_seen += n;
	return v->response_seen > v->limits.response_max ? -E2BIG : 0;
}

static const struct {
	const char *rule, *error;
	int status; /* of a request that may be tried again */
	bool sent;  /* it happens only after the first byte went upstream */
} causes[GUARD_CAUSE_COUNT] = {
    [GUARD_STOPPED] = {"bridge.stopped", "the bridge ends", 503, false},
    [GUARD_OVERLOAD] = {"bridge.overload", "too many requests wait", 503, false},
    [GUARD_MEMORY] = {"bridge.memory", "there is no room for this request now", 503, false},
    [GUARD_AUDIT] = {"audit.full",
		     "the record of this run's requests is full or cannot be written, and none is "
		     "sent without one",
		     503, false},
    [GUARD_UNREACHABLE] = {"upstream.unreachable", "the API cannot be reached", 503, false},
    [GUARD_REPLAYED] = {"queue.replay", "a request with this number has been run already", 409,
			true},
    [GUARD_BODY_IDLE] = {"body.time", "the request body came too slowly", 408, false},
    [GUARD_UPSTREAM_LOST] = {"upstream.lost", "the API ended the connection", 502, true},
    [GUARD_UPSTREAM_TIME] = {"upstream.time", "the API did not answer in time", 504, true},
    [GUARD_UPSTREAM_BAD] = {"upstream.answer", "the API gave an answer that cannot be passed on",
			    502, true},
    [GUARD_RESTARTED] = {"bridge.restarted", "the bridge was started again meanwhile", 502, true},
    [GUARD_RESPONSE_SIZE] = {"response.size", "the answer of the API is larger than the limit", 502,
			     true},
};

void guard_fault(const struct guard_verdict *v, enum guard_cause cause, bool sent,
		 struct guard_reply *ret)
{
	const char *rule = causes[cause].rule, *error = causes[cause].error;
	bool safe = !v || v->safe;

	if ((sent || causes[cause].sent) && !safe) {
		reply(ret, 409, rule,
		      "{\"error\":\"%s; whether the request took effect is not known: look before "
		      "sending it again\",\"code\":\"%s\",\"outcome\":\"indeterminate\","
		      "\"retryable\":false}",
		      error, rule);
		reply_head(ret, 409, rule, true);
		return;
	}
	reply(ret, causes[cause].status, rule,
	      "{\"error\":\"%s\",\"code\":\"%s\",\"retryable\":%s}", error, rule,
	      cause == GUARD_RESPONSE_SIZE || cause == GUARD_AUDIT ? "false" : "true");
}

/* A path of our own origin, or an empty view. */
static struct view location(const struct guard *g, struct view value)
{
	struct target t;
	struct view rest = value;

	if (value.n == 0 || value.p[0] != '/')
		rest = origin_strip(&g->origin, value);
	if (rest.n == 0 || target_parse(rest.p, rest.n, &t) != TARGET_OK)
		return (struct view){NULL, 0};
	return rest;
}

static bool response_seen(const struct guard_response *r, const char *name)
{
	for (size_t i = 0; i < r->headers_len; i++)
		if (r->headers[i].name.p == name)
			return true;
	return false;
}

int guard_response(const struct guard_verdict *v, int status, const struct header *headers,
		   size_t n, struct guard_response *ret)
{
	const struct header_list *l = &v->policy->response_headers;

	ret->status = status;
	ret->headers_len = 0;
	ret->dropped = 0;
	/* 1xx is never an end; beyond 599 a client may do anything. */
	if (status < 200 || status > 599)
		return -EPROTO;
	for (size_t i = 0; i < n; i++) {
		const char *name = header_list_find(l, headers[i].name);
		struct view value = headers[i].value;

		if (name && strcmp(name, "location") == 0)
			value = location(v->guard, value);
		if (!name || !value.p || value.n > BRIDGE_HEADER_VALUE_MAX ||
		    !header_value_ok(value) || response_seen(ret, name)) {
			ret->dropped++;
			continue;
		}
		ret->headers[ret->headers_len++] = (struct header){guard_text(name), value};
	}
	return 0;
}
