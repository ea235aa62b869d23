/*
 * A policy file: JSON that the operator wrote, read strictly.
 *
 * Every member is known, has one type and stands once. A word that is not understood stops the file:
 * in an allow-list, what is skipped in silence is a rule that somebody believes to be in force.
 */
#include "policy/bridge_policy.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "policy/bridge_policy_build.h"

#define WHERE_MAX 96

static void json_done(json_t **j)
{
	json_decref(*j);
}
#define _cleanup_json_ _cleanup_(json_done)

struct member {
	const char *name;
	int (*take)(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		    struct err *e);
	bool required;
};

static const char *kind(const json_t *j)
{
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a text";
	case JSON_INTEGER:
	case JSON_REAL:
		return "a number";
	case JSON_NULL:
		return "null";
	default:
		return "true or false";
	}
}

static int wrong(struct err *e, const char *where, const char *want, const json_t *j)
{
	return err_set(e, ERR_INVALID, "%s: must be %s, but is %s", where, want, kind(j));
}

/* Members in the table's order, whatever their order in the file: limits before routes. */
static int take_object(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		       const struct member *table, struct err *e)
{
	const char *key, *dot = *where ? "." : "";
	json_t *v;

	if (!json_is_object(j))
		return wrong(e, *where ? where : "policy", "an object", j);
	json_object_foreach((json_t *)(uintptr_t)j, key, v)
	{
		const struct member *m = table;

		while (m->name && strcmp(m->name, key) != 0)
			m++;
		if (!m->name) {
			return err_set(e, ERR_INVALID, "%s%s%.80s: there is no such member", where,
				       dot, key);
		}
	}
	for (const struct member *m = table; m->name; m++) {
		char at[WHERE_MAX];
		int rc;

		v = json_object_get(j, m->name);
		(void)snprintf(at, sizeof(at), "%s%s%s", where, dot, m->name);
		if (!v && m->required)
			return err_set(e, ERR_INVALID, "%s: this member must be there", at);
		rc = v ? m->take(p, r, v, at, e) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* --- limits ------------------------------------------------------------------------------- */

static int take_bytes(const json_t *j, const char *where, uint64_t *ret, struct err *e)
{
	uint64_t v = 0;

	if (json_is_integer(j) && json_integer_value(j) >= 0)
		v = (uint64_t)json_integer_value(j);
	else if (!json_is_string(j) || str_to_size(json_string_value(j), &v) < 0)
		return err_set(e, ERR_INVALID,
			       "%s: must be a number of bytes or a text like \"10M\"", where);
	if (v > BRIDGE_BODY_CEILING)
		return err_set(e, ERR_LIMIT, "%s: at most %" PRIu64 " bytes", where,
			       (uint64_t)BRIDGE_BODY_CEILING);
	*ret = v;
	return 0;
}

static int take_time(const json_t *j, const char *where, int64_t *ret, struct err *e)
{
	int64_t v;

	if (!json_is_string(j) || str_to_duration(json_string_value(j), &v) < 0)
		return err_set(e, ERR_INVALID, "%s: must be a text like \"30s\" or \"10m\"", where);
	if (v < NS_PER_MS || v > BRIDGE_MS_CEILING * NS_PER_MS)
		return err_set(e, ERR_LIMIT, "%s: from 1 ms to %d hours", where,
			       BRIDGE_MS_CEILING / 3600000);
	*ret = v;
	return 0;
}

static int take_count(const json_t *j, const char *where, int max, unsigned *ret, struct err *e)
{
	json_int_t v = json_integer_value(j);

	if (!json_is_integer(j) || v < 1 || v > max)
		return err_set(e, ERR_LIMIT, "%s: must be a whole number from 1 to %d", where, max);
	*ret = (unsigned)v;
	return 0;
}

static struct bridge_limits *limits_of(struct bridge_policy *p, struct route *r)
{
	return r ? &r->limits : &p->limits;
}

static int take_body(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		     struct err *e)
{
	return take_bytes(j, where, &limits_of(p, r)->body_max, e);
}

static int take_stream(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		       struct err *e)
{
	if (!json_is_boolean(j))
		return wrong(e, where, "true or false", j);
	limits_of(p, r)->stream = json_is_true(j);
	return 0;
}

static int take_response(struct bridge_policy *p, struct route *r, const json_t *j,
			 const char *where, struct err *e)
{
	struct bridge_limits *l = limits_of(p, r);

	if (!json_is_string(j) || strcmp(json_string_value(j), "unlimited") != 0)
		return take_bytes(j, where, &l->response_max, e);
	if (!l->stream)
		return err_set(e, ERR_INVALID, "%s: \"unlimited\" needs \"stream\": true beside it",
			       where);
	l->response_max = UINT64_MAX;
	return 0;
}

static int take_request_time(struct bridge_policy *p, struct route *r, const json_t *j,
			     const char *where, struct err *e)
{
	return take_time(j, where, &limits_of(p, r)->request_ns, e);
}

static int take_idle_time(struct bridge_policy *p, struct route *r, const json_t *j,
			  const char *where, struct err *e)
{
	return take_time(j, where, &limits_of(p, r)->idle_ns, e);
}

static int take_upload_time(struct bridge_policy *p, struct route *r, const json_t *j,
			    const char *where, struct err *e)
{
	return take_time(j, where, &limits_of(p, r)->upload_ns, e);
}

static int take_queue(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		      struct err *e)
{
	(void)r;
	return take_count(j, where, BRIDGE_PENDING_CEILING, &p->queue_max, e);
}

static int take_streams(struct bridge_policy *p, struct route *r, const json_t *j,
			const char *where, struct err *e)
{
	(void)r;
	return take_count(j, where, BRIDGE_PENDING_CEILING, &p->streams_max, e);
}

static int take_pace(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		     struct err *e)
{
	(void)r;
	return take_count(j, where, BRIDGE_PACE_CEILING, &p->pace, e);
}

static int take_limits(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		       struct err *e)
{
	static const struct member of_policy[] = {
	    {"body", take_body, false},		  {"stream", take_stream, false},
	    {"response", take_response, false},	  {"request_time", take_request_time, false},
	    {"idle_time", take_idle_time, false}, {"upload_time", take_upload_time, false},
	    {"queue", take_queue, false},	  {"streams", take_streams, false},
	    {"pace", take_pace, false},		  {NULL, NULL, false},
	};
	static const struct member of_route[] = {
	    {"body", take_body, false},
	    {"stream", take_stream, false},
	    {"response", take_response, false},
	    {"request_time", take_request_time, false},
	    {"idle_time", take_idle_time, false},
	    {"upload_time", take_upload_time, false},
	    {NULL, NULL, false},
	};
	int rc = take_object(p, r, j, where, r ? of_route : of_policy, e);
	const struct bridge_limits *l = limits_of(p, r);

	if (rc == 0 && l->response_max == UINT64_MAX && !l->stream)
		return err_set(e, ERR_INVALID,
			       "%s: a route that does not stream needs its own \"response\"",
			       where);
	return rc;
}

/* --- lists -------------------------------------------------------------------------------- */

static int take_names(struct bridge_policy *p, struct route *r, enum policy_list l, const json_t *j,
		      const char *where, struct err *e)
{
	const json_t *v;
	size_t i;
	int rc = 0;

	if (!json_is_array(j))
		return wrong(e, where, "an array of header names", j);
	json_array_foreach(j, i, v)
	{
		char at[WHERE_MAX];

		(void)snprintf(at, sizeof(at), "%s[%zu]", where, i);
		if (!json_is_string(v))
			return wrong(e, at, "a header name", v);
		rc = r ? policy_add_route_header(p, r, at, json_string_value(v), e)
		       : policy_add_header(p, l, at, json_string_value(v), e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int take_query_denied(struct bridge_policy *p, struct route *r, const json_t *j,
			     const char *where, struct err *e)
{
	const json_t *v;
	size_t i;
	int rc = 0;

	(void)r;
	if (!json_is_array(j))
		return wrong(e, where, "an array of names of query parameters", j);
	json_array_foreach(j, i, v)
	{
		char at[WHERE_MAX];

		(void)snprintf(at, sizeof(at), "%s[%zu]", where, i);
		if (!json_is_string(v))
			return wrong(e, at, "the name of a query parameter", v);
		rc = policy_deny_query(p, at, json_string_value(v), e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int take_request_headers(struct bridge_policy *p, struct route *r, const json_t *j,
				const char *where, struct err *e)
{
	return take_names(p, r, LIST_REQUEST, j, where, e);
}

static int take_response_headers(struct bridge_policy *p, struct route *r, const json_t *j,
				 const char *where, struct err *e)
{
	return take_names(p, r, LIST_RESPONSE, j, where, e);
}

static int take_token_headers(struct bridge_policy *p, struct route *r, const json_t *j,
			      const char *where, struct err *e)
{
	if (json_is_array(j) && json_array_size(j) == 0)
		return err_set(e, ERR_INVALID,
			       "%s: with none, nobody could show a token: name one or leave the "
			       "member out",
			       where);
	return take_names(p, r, LIST_TOKEN, j, where, e);
}

/* An object whose values are texts: each pair to add. */
static int take_pairs(struct bridge_policy *p, const json_t *j, const char *where, const char *what,
		      int (*add)(struct bridge_policy *p, const char *where, const char *key,
				 const char *value, struct err *e),
		      struct err *e)
{
	const char *key;
	json_t *v;
	int rc;

	if (!json_is_object(j))
		return wrong(e, where, what, j);
	json_object_foreach((json_t *)(uintptr_t)j, key, v)
	{
		if (!json_is_string(v))
			return wrong(e, where, "texts throughout", v);
		rc = add(p, where, key, json_string_value(v), e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int take_identity(struct bridge_policy *p, struct route *r, const json_t *j,
			 const char *where, struct err *e)
{
	(void)r;
	return take_pairs(p, j, where, "an object of header names and values", policy_add_identity,
			  e);
}

static int add_upstream(struct bridge_policy *p, const char *where, const char *name,
			const char *origin, struct err *e)
{
	(void)where;
	return policy_add_upstream(p, name, origin, e);
}

static int take_upstreams(struct bridge_policy *p, struct route *r, const json_t *j,
			  const char *where, struct err *e)
{
	(void)r;
	return take_pairs(p, j, where, "an object of names and origins", add_upstream, e);
}

static int take_credential(struct bridge_policy *p, struct route *r, const json_t *j,
			   const char *where, struct err *e)
{
	const json_t *header = json_object_get(j, "header"), *prefix = json_object_get(j, "prefix");
	size_t known = (header ? 1u : 0u) + (prefix ? 1u : 0u);

	(void)r;
	if (!json_is_object(j) || !json_is_string(header) || (prefix && !json_is_string(prefix)) ||
	    json_object_size(j) != known)
		return err_set(e, ERR_INVALID,
			       "%s: must be {\"header\": NAME, \"prefix\": TEXT}, prefix \"\" "
			       "unless given",
			       where);
	return policy_set_credential(p, json_string_value(header),
				     prefix ? json_string_value(prefix) : "", e);
}

/* --- routes ------------------------------------------------------------------------------- */

/* route and id are read before the others, which need the route to be there. */
static int take_nothing(struct bridge_policy *p, struct route *r, const json_t *j,
			const char *where, struct err *e)
{
	(void)p;
	(void)r;
	return json_is_string(j) ? 0 : wrong(e, where, "a text", j);
}

static int take_route(struct bridge_policy *p, const json_t *j, const char *where, struct err *e)
{
	static const struct member table[] = {
	    {"route", take_nothing, true},
	    {"id", take_nothing, false},
	    {"request_headers", take_request_headers, false},
	    {"limits", take_limits, false},
	    {NULL, NULL, false},
	};
	const json_t *spec = json_is_string(j) ? j : json_object_get(j, "route");
	const json_t *id = json_object_get(j, "id");
	struct route *r = NULL;
	int rc;

	if (!json_is_string(spec) || (id && !json_is_string(id)))
		return err_set(e, ERR_INVALID,
			       "%s: must be a text like \"GET /path\", or an object with the "
			       "text as member \"route\" (and \"id\" a text)",
			       where);
	rc = policy_add_route(p, where, json_string_value(id), json_string_value(spec), &r, e);
	if (rc == 0 && !json_is_string(j))
		rc = take_object(p, r, j, where, table, e);
	return rc;
}

static int take_routes(struct bridge_policy *p, struct route *r, const json_t *j, const char *where,
		       struct err *e)
{
	const json_t *v;
	size_t i;
	int rc = 0;

	(void)r;
	if (!json_is_array(j))
		return wrong(e, where, "an array of routes", j);
	json_array_foreach(j, i, v)
	{
		char at[WHERE_MAX];

		(void)snprintf(at, sizeof(at), "%s[%zu]", where, i);
		rc = take_route(p, v, at, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int take_version(struct bridge_policy *p, struct route *r, const json_t *j,
			const char *where, struct err *e)
{
	(void)p;
	(void)r;
	if (!json_is_integer(j) || json_integer_value(j) != 1)
		return err_set(e, ERR_INVALID, "%s: this version of Airlock reads version 1",
			       where);
	return 0;
}

/* The name makes the policy; it was read before. */
static const struct member top[] = {
    {"version", take_version, true},
    {"name", take_nothing, true},
    {"limits", take_limits, false},
    {"request_headers", take_request_headers, false},
    {"response_headers", take_response_headers, false},
    {"query_denied", take_query_denied, false},
    {"token_headers", take_token_headers, false},
    {"identity_headers", take_identity, false},
    {"credential", take_credential, false},
    {"upstreams", take_upstreams, false},
    {"routes", take_routes, true},
    {NULL, NULL, false},
};

/* A file may come from anywhere, and its texts stand in messages: no control bytes to a terminal. */
static int printable(struct err *e, int r)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4 * sizeof(e->text));

	if (e && str_printable(&b, e->text, strlen(e->text)) == 0)
		(void)snprintf(e->text, sizeof(e->text), "%s", buf_text(&b));
	return r;
}

int bridge_policy_parse(const char *what, const char *text, size_t n, struct bridge_policy **ret,
			struct err *e)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	_cleanup_json_ json_t *j = NULL;
	const json_t *name;
	json_error_t je;
	int r;

	if (n > CONFIG_MAX)
		return err_set(e, ERR_LIMIT, "policy %.200s: a policy may have %d bytes", what,
			       CONFIG_MAX);
	j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
	if (!j) {
		r = err_set(e, ERR_INVALID, "policy %.200s, line %d, column %d: %s", what, je.line,
			    je.column, je.text);
		return printable(e, r);
	}
	name = json_object_get(j, "name");
	r = policy_new(json_is_string(name) ? json_string_value(name) : "unnamed", &p, e);
	if (r == 0)
		r = take_object(p, NULL, j, "", top, e);
	if (r == 0)
		r = policy_finish(p, e);
	if (r < 0)
		return printable(e, err_wrap(e, r, "policy %.200s", what));
	*ret = TAKE_PTR(p);
	return 0;
}
