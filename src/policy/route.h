/*
 * route.h: the compiled route table (door 2).
 *
 * A pattern is an origin-form path whose segments are literal, "{name}" (one segment of 1..
 * BRIDGE_SEGMENT_MAX bytes), literal text around one "{name}", or, last, "{name...}" (one or more
 * segments). Literals are compared with the raw bytes of the target: an escape never matches one.
 * Among routes that match, the one that is more literal from the left decides; two that cannot be told
 * apart for one method are an error when the table is built. There are no deny rules: what no route
 * names is denied.
 */
#ifndef AIRLOCK_POLICY_ROUTE_H
#define AIRLOCK_POLICY_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "policy/headers.h"
#include "policy/target.h"

/* Bits. TRACE and CONNECT do not exist here. */
enum method {
	METHOD_GET = 1,
	METHOD_HEAD = 2,
	METHOD_OPTIONS = 4,
	METHOD_POST = 8,
	METHOD_PUT = 16,
	METHOD_PATCH = 32,
	METHOD_DELETE = 64,
};
#define METHODS_SAFE (METHOD_GET | METHOD_HEAD | METHOD_OPTIONS)

/* A method's bit; 0 for a well-formed method that no table can allow; -EINVAL for anything else. */
int method_parse(struct view m);
const char *method_name(enum method m); /* "GET" */

/* Sizes in bytes, times in nanoseconds. */
struct bridge_limits {
	uint64_t body_max;     /* request body */
	uint64_t response_max; /* response body; UINT64_MAX: only where stream is set */
	int64_t
	    request_ns; /* from the whole request to the end of the response; stream: to its head */
	int64_t idle_ns;   /* between two pieces of a body, either direction */
	int64_t upload_ns; /* from the first to the last byte of a request body */
	bool stream;	   /* responses are long and pass unbuffered (server-sent events) */
};

enum segment_kind { SEGMENT_LITERAL, SEGMENT_AFFIX, SEGMENT_PARAM, SEGMENT_REST };

struct route_segment {
	enum segment_kind kind;
	struct view text;   /* literal; before the parameter */
	struct view suffix; /* after the parameter */
};

struct route {
	char *id;		       /* owned; for audit lines and explanations */
	char *pattern;		       /* owned; segments point into it */
	unsigned methods;	       /* METHOD_ bits */
	struct route_segment *segment; /* owned */
	size_t segments;
	struct header_list headers; /* request headers of this route alone */
	struct bridge_limits limits;
};

struct route_table {
	struct route *v; /* owned; most literal first once compiled */
	size_t n, cap;
};

/*
 * Adds a route; *ret points at it until the next add. id NULL: "METHOD[,METHOD] pattern". ERR_INVALID
 * names the pattern and what is wrong with it; ERR_LIMIT beyond POLICY_ROUTES_MAX.
 */
int route_add(struct route_table *t, const char *id, unsigned methods, const char *pattern,
	      struct route **ret, struct err *e);
/* Sorts, and refuses ambiguous pairs and repeated ids. Call once, after the last add. */
int route_compile(struct route_table *t, struct err *e);
void route_table_done(struct route_table *t);
/*
 * The route that decides, or NULL; *ret_other (may be NULL): when NULL, methods that other routes allow for
 * the path (0: the path is unknown). Cost: routes x segments, no allocation, no backtracking.
 */
const struct route *route_match(const struct route_table *t, enum method m,
				const struct target *target, unsigned *ret_other);

#endif
