/*
 * bridge_policy.h: what the bridge of one upstream lets through (door 2).
 *
 * A policy is built once and then constant; it is counted by reference, because requests that are under
 * way keep the policy that judged them while a reload swaps in another. Not for more than one thread.
 *
 * Files are JSON (docs/bridge.md); unknown members, repeated members, wrong types and values out of range are
 * errors that name line or member and the limit: a misspelt rule never becomes a wider one. Built-in
 * policies are tables in this program; "paperclip" is the allow-list of that server's agent API.
 */
#ifndef AIRLOCK_POLICY_BRIDGE_POLICY_H
#define AIRLOCK_POLICY_BRIDGE_POLICY_H

#include "base/buf.h"
#include "base/err.h"
#include "policy/headers.h"
#include "policy/origin.h"
#include "policy/route.h"

enum identity_source {
	IDENTITY_FIXED,
	IDENTITY_RUN,
	IDENTITY_AGENT,
	IDENTITY_COMPANY,
	IDENTITY_TASK,
	IDENTITY_SOURCES
};
/* "run", "agent", ...: in a file between braces. */
const char *identity_source_name(enum identity_source s);

/* A header that the host sets on each request, whatever the sandbox sent. */
struct identity_header {
	char *name; /* owned, lower case */
	enum identity_source source;
	char *fixed; /* owned; IDENTITY_FIXED */
};

struct policy_upstream {
	char *name; /* owned */
	struct origin origin;
};

struct bridge_policy {
	unsigned refs;
	char *name; /* owned */
	struct route_table routes;
	struct header_list request_headers; /* of every route; a route may add its own */
	struct header_list
	    response_headers; /* "location" here: passed only as a path of the same origin */
	struct header_list query_denied;  /* names of query parameters (query.h) */
	struct header_list token_headers; /* where the sandbox may present its bridge token */
	struct identity_header *identity; /* owned */
	size_t identity_len;
	char *credential_header; /* owned, lower case; where the host-side credential goes */
	char *credential_prefix; /* owned; "Bearer " or "" */
	struct policy_upstream *upstreams; /* owned; named origins, may be none */
	size_t upstreams_len;
	struct bridge_limits limits; /* of routes that say nothing else */
	unsigned queue_max;	     /* requests that wait at once, file queue */
	unsigned streams_max;	     /* requests under way at once, channel */
	unsigned pace; /* requests a second while another run is being served (bridge/pace.h) */
};

/* New reference to a built-in policy; ERR_NOT_FOUND names what there is. */
int bridge_policy_builtin(const char *name, struct bridge_policy **ret, struct err *e);
/*
 * The credential goes into this header instead: "authorization" after "Bearer ", any other by itself. Only for a policy
 * that nobody else holds.
 */
int bridge_policy_credential(struct bridge_policy *p, const char *header, struct err *e);
/* The name of built-in i, or NULL. */
const char *bridge_policy_builtin_name(size_t i);
/* The text of a policy file (n <= CONFIG_MAX). what: its name in messages. */
int bridge_policy_parse(const char *what, const char *text, size_t n, struct bridge_policy **ret,
			struct err *e);
/*
 * Hot reload: on success *slot gives up its reference and holds the new policy; on failure *slot is
 * untouched and e says why. Judgements under way keep theirs.
 */
int bridge_policy_reload(const char *what, const char *text, size_t n, struct bridge_policy **slot,
			 struct err *e);
struct bridge_policy *bridge_policy_ref(struct bridge_policy *p);
void bridge_policy_unref(struct bridge_policy *p); /* NULL is fine */
void bridge_policy_unrefp(struct bridge_policy **p);
#define _cleanup_policy_ __attribute__((cleanup(bridge_policy_unrefp)))
/* The policy as a file that parses to the same policy. 0, -E2BIG, -ENOMEM. */
int bridge_policy_print(const struct bridge_policy *p, struct buf *out);
/* NULL when the policy names no such upstream. */
const struct origin *bridge_policy_upstream(const struct bridge_policy *p, const char *name);

#endif
