/*
 * guard.h: every decision of door 2, for both transports. Pure: no I/O, no clock, no allocation per request.
 *
 * Policy, in this order, and no later step looks back at raw bytes:
 *   1 authenticate   the run's bridge token, constant time; first, so that nothing else is told to a stranger
 *   2 target         one canonical parse (policy/target.h)
 *   3 method, route  the compiled table (policy/route.h); then names in the query that the policy denies
 *   4 headers        syntax of all; allow-list; the rest is dropped
 *   5 size           of the body as far as it is known; guard_body counts the rest
 *   6 identity       our credential, run identity and fixed headers, from parsed values
 *
 * What it does not do: it opens nothing, resolves nothing, frames nothing. Host, Content-Length and
 * Transfer-Encoding of the upstream request are the forwarder's and come from its configuration.
 *
 * Use by a transport:
 *
 *	guard_judge(g, &req, &v);
 *	if (!v.allowed) send v.reply, then drop the body under the same limits;
 *	else forward v.method, v.target.all, v.headers; for each piece of body: guard_body(&v, n);
 *	     upstream head: guard_response(&v, status, headers, n, &resp); each piece: guard_response_body(&v, n);
 *	     anything goes wrong: guard_fault(&v, cause, &reply)
 *	audit: v.route_id, v.rule, status sent
 *	guard_verdict_done(&v);
 *
 * Views in a verdict point into the request, the guard and the policy: keep the request's bytes until
 * guard_verdict_done. The policy is held by the verdict, so a reload in between is harmless.
 */
#ifndef AIRLOCK_BRIDGE_GUARD_H
#define AIRLOCK_BRIDGE_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/err.h"
#include "base/limits.h"
#include "policy/bridge_policy.h"
#include "policy/headers.h"
#include "policy/target.h"

/* Header on every answer that is the bridge's own; its value is the rule. Never let through from upstream. */
#define GUARD_MARKER "x-airlock-bridge"
/* Header on an answer about a request whose effect is not known; its value is "indeterminate". */
#define GUARD_OUTCOME "x-paperclip-bridge-outcome"

struct guard; /* token, credential, identity of one run and upstream, and the policy in force */

struct guard_config {
	struct bridge_policy *policy; /* the guard takes its own reference */
	struct origin origin;	      /* the upstream, for Location */
	struct view token;	      /* BRIDGE_TOKEN_MIN..MAX visible ASCII bytes; copied */
	struct view credential; /* host-side secret, visible ASCII; empty: none is sent; copied */
	/* Each may be empty unless the policy uses it; visible ASCII; copied. */
	struct view run_id, agent_id, company_id, task_id;
};

/* ERR_INVALID names the field. Secrets are wiped by guard_free. */
int guard_new(const struct guard_config *c, struct guard **ret, struct err *e);
void guard_free(struct guard *g); /* NULL is fine; verdicts must be done before */
/* Later requests are judged by p (own reference). -EINVAL with e if p needs an identity that is not there. */
int guard_set_policy(struct guard *g, struct bridge_policy *p, struct err *e);
/* The run is over: whoever shows the token is told so (503), nothing is forwarded. */
void guard_stop(struct guard *g);
const struct bridge_policy *guard_policy(const struct guard *g);

enum guard_token_in {
	GUARD_TOKEN_HEADERS, /* in the header list, where the policy's token_headers say ("authorization: Bearer T") */
	GUARD_TOKEN_GIVEN, /* in req.token */
	GUARD_TOKEN_BOTH /* in req.token, as the queue envelope carries it, and in the client's headers */
};

struct guard_request {
	enum guard_token_in token_in;
	struct view token;	    /* GUARD_TOKEN_GIVEN, _BOTH */
	struct view method, target; /* bytes as presented */
	const struct header
	    *headers; /* as presented, without pseudo-headers, duplicates included */
	size_t headers_len;
	int64_t body_len; /* bytes; -1: not known yet */
};

/* An answer of the bridge's own. Everything is in here: no pointers to foreign bytes. */
struct guard_reply {
	int status;
	const char *rule;	  /* static: "auth.token", "route.method", "body.size", ... */
	struct header headers[4]; /* content-type, marker, outcome, cache-control; static text */
	size_t headers_len;
	char body[320]; /* JSON object with members error, code, and limit or outcome */
	size_t body_len;
};

#define GUARD_HEADERS_OUT_MAX (POLICY_HEADERS_MAX * 2 + POLICY_IDENTITY_MAX + 1)

struct guard_verdict {
	bool allowed;
	const char *rule;	      /* static; "allow" or what refused: for the audit line */
	const char *route_id;	      /* the policy's; NULL when no route was reached */
	struct bridge_policy *policy; /* referenced */
	const struct guard *guard;

	/* allowed */
	enum method method;
	const char *method_name;
	bool safe;				      /* may be tried again: no effect upstream */
	struct target target;			      /* send target.all, byte for byte */
	struct header headers[GUARD_HEADERS_OUT_MAX]; /* complete, but for Host and framing */
	size_t headers_len;
	struct bridge_limits limits;
	uint64_t body_seen, response_seen; /* counted by guard_body, guard_response_body */

	/* not allowed */
	struct guard_reply reply;
};

/* Always fills v; the caller calls guard_verdict_done whatever the outcome. */
void guard_judge(struct guard *g, const struct guard_request *req, struct guard_verdict *v);
void guard_verdict_done(struct guard_verdict *v);

/* n more bytes of request body. 0; -E2BIG: v.reply is the answer (413, or 400 for a method without a body). */
int guard_body(struct guard_verdict *v, size_t n);
/* n more bytes of response body. 0; -E2BIG: end it; if no head was sent yet use guard_fault(GUARD_RESPONSE_SIZE). */
int guard_response_body(struct guard_verdict *v, size_t n);

/* What can go wrong after the verdict. */
enum guard_cause {
	GUARD_STOPPED,	   /* the bridge ends: nothing was sent upstream */
	GUARD_OVERLOAD,	   /* a queue or stream limit: nothing was sent upstream */
	GUARD_MEMORY,	   /* no room for the body: nothing was sent upstream */
	GUARD_AUDIT,	   /* it could not be recorded: nothing was sent upstream */
	GUARD_UNREACHABLE, /* no connection: nothing was sent upstream */
	GUARD_REPLAYED,	   /* a request of that number has been run already: this one is not */
	GUARD_BODY_IDLE, /* the request body stalled or took too long: nothing was completed upstream */
	GUARD_UPSTREAM_LOST, /* the connection ended after the first byte went upstream */
	GUARD_UPSTREAM_TIME, /* limits.request_ns passed after the first byte went upstream */
	GUARD_UPSTREAM_BAD, /* the answer is no HTTP, or has a status or header that cannot be passed on */
	GUARD_RESTARTED,     /* another process of the bridge began with it, and is no more */
	GUARD_RESPONSE_SIZE, /* the answer is larger than limits.response_max */
	GUARD_CAUSE_COUNT
};

/*
 * The answer for a fault. After the first byte went upstream (the last four) an unsafe method is 409 with
 * GUARD_OUTCOME: indeterminate, never a status that invites a retry; a safe one is 502 or 504. Before it: 503, or
 * 408 for GUARD_BODY_IDLE. `sent`: at least one byte of the request went upstream, for the causes that do not say.
 * v may be NULL where nothing was judged yet.
 */
void guard_fault(const struct guard_verdict *v, enum guard_cause cause, bool sent,
		 struct guard_reply *ret);

struct guard_response {
	int status; /* 200..599, as upstream said */
	struct header
	    headers[POLICY_HEADERS_MAX + 1]; /* views into the upstream's headers and the policy */
	size_t headers_len;
	unsigned dropped; /* headers that did not pass */
};

/*
 * The upstream's head, filtered: allow-list, first of repeated names, values that are well-formed and at most
 * BRIDGE_HEADER_VALUE_MAX. Redirects are data: a Location passes only if the policy names it and it is a path
 * under target.h or lies on our own origin, and then as a path. 0; -EPROTO: guard_fault(GUARD_UPSTREAM_BAD).
 */
int guard_response(const struct guard_verdict *v, int status, const struct header *headers,
		   size_t n, struct guard_response *ret);

#endif
