/* Door 2: the order of the checks is the policy; see guard.h. */
#include "bridge/guard_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/query.h"

#define BEARER "Bearer "

/* --- setting up --------------------------------------------------------------------------- */

static bool visible(struct view v)
{
	for (size_t i = 0; i < v.n; i++)
		if (v.p[i] <= 0x20 || v.p[i] >= 0x7f)
			return false;
	return true;
}

static void wipe(char **p, size_t n)
{
	if (*p)
		sodium_memzero(*p, n);
	free(*p);
	*p = NULL;
}

static char *copy(struct view v)
{
	char *p = malloc(v.n + 1);

	if (p) {
		memcpy(p, v.n ? v.p : "", v.n);
		p[v.n] = '\0';
	}
	return p;
}

static int take_identity(struct guard *g, enum identity_source s, struct view v, struct err *e)
{
	if (v.n > BRIDGE_IDENTITY_MAX || !visible(v))
		return err_set(e, ERR_INVALID,
			       "bridge: the %s id is longer than %d bytes or holds a byte that a "
			       "header cannot carry",
			       identity_source_name(s), BRIDGE_IDENTITY_MAX);
	memcpy(g->identity[s], v.n ? v.p : "", v.n);
	g->identity[s][v.n] = '\0';
	return 0;
}

static int check(const struct guard_config *c, struct err *e)
{
	if (c->token.n < BRIDGE_TOKEN_MIN || c->token.n > BRIDGE_TOKEN_MAX || !visible(c->token))
		return err_set(e, ERR_INVALID,
			       "bridge: a token is %d to %d visible ASCII characters: let Airlock "
			       "make one, or give a longer random one",
			       BRIDGE_TOKEN_MIN, BRIDGE_TOKEN_MAX);
	if (c->credential.n > BRIDGE_CREDENTIAL_MAX || !visible(c->credential))
		return err_set(e, ERR_INVALID,
			       "bridge: the credential is longer than %d bytes or holds a space, a "
			       "line end or a control byte: look at the file that it comes from",
			       BRIDGE_CREDENTIAL_MAX);
	/* The sandbox would hold what opens the upstream. */
	if (c->token.n == c->credential.n &&
	    sodium_memcmp(c->token.p, c->credential.p, c->token.n) == 0)
		return err_set(e, ERR_INVALID,
			       "bridge: the token of the sandbox is the credential of the "
			       "upstream: give the sandbox a token of its own");
	return 0;
}

int guard_new(const struct guard_config *c, struct guard **ret, struct err *e)
{
	struct guard *g;
	int r = check(c, e);

	if (r < 0)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g)
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	g->origin = c->origin;
	g->token = copy(c->token);
	g->token_len = c->token.n;
	g->secret = copy(c->credential);
	g->secret_len = c->credential.n;
	if (!g->token || !g->secret)
		r = err_set(e, ERR_NOMEM, "bridge: out of memory");
	if (r == 0)
		r = take_identity(g, IDENTITY_RUN, c->run_id, e);
	if (r == 0)
		r = take_identity(g, IDENTITY_AGENT, c->agent_id, e);
	if (r == 0)
		r = take_identity(g, IDENTITY_COMPANY, c->company_id, e);
	if (r == 0)
		r = take_identity(g, IDENTITY_TASK, c->task_id, e);
	if (r == 0)
		r = guard_set_policy(g, c->policy, e);
	if (r < 0) {
		guard_free(g);
		return r;
	}
	*ret = g;
	return 0;
}

void guard_free(struct guard *g)
{
	if (!g)
		return;
	wipe(&g->token, g->token_len);
	wipe(&g->secret, g->secret_len);
	wipe(&g->credential, g->credential_len);
	bridge_policy_unref(g->policy);
	free(g);
}

int guard_set_policy(struct guard *g, struct bridge_policy *p, struct err *e)
{
	size_t prefix = strlen(p->credential_prefix), n = prefix + g->secret_len;
	char *cred;

	for (size_t i = 0; i < p->identity_len; i++) {
		const struct identity_header *h = &p->identity[i];

		if (h->source != IDENTITY_FIXED && !g->identity[h->source][0])
			return err_set(e, ERR_INVALID,
				       "bridge: policy %s sets the header %s from the %s id, and "
				       "this run has none",
				       p->name, h->name, identity_source_name(h->source));
	}
	/*
	 * Verdicts hold a view of the credential: the text stays where it is while the prefix is the
	 * same, and a policy with another prefix is for another guard.
	 */
	if (g->policy) {
		if (strcmp(g->policy->credential_prefix, p->credential_prefix) != 0)
			return err_set(e, ERR_INVALID,
				       "bridge: a new policy cannot change how the credential is "
				       "written: start the run again");
	} else {
		cred = malloc(n + 1);
		if (!cred)
			return err_set(e, ERR_NOMEM, "bridge: out of memory");
		memcpy(cred, p->credential_prefix, prefix);
		memcpy(cred + prefix, g->secret, g->secret_len + 1);
		g->credential = cred;
		g->credential_len = n;
	}
	(void)bridge_policy_ref(p);
	bridge_policy_unref(g->policy);
	g->policy = p;
	return 0;
}

void guard_stop(struct guard *g)
{
	g->stopped = true;
}

const struct bridge_policy *guard_policy(const struct guard *g)
{
	return g->policy;
}

/* --- 1 authenticate ----------------------------------------------------------------------- */

static bool token_is(const struct guard *g, struct view t)
{
	return t.n == g->token_len && sodium_memcmp(t.p, g->token, t.n) == 0;
}

/*
 * Each place that the policy names may carry the token, at least one does, and what any of them
 * carries is the token: no place is a second try. A repeated header is refused, because parsers
 * differ on which one counts.
 */
static bool token_in_headers(const struct guard *g, const struct guard_request *q)
{
	const struct header_list *l = &g->policy->token_headers;
	uint64_t seen = 0;
	bool ok = true;

	for (size_t i = 0; i < q->headers_len; i++) {
		const char *name = header_list_find(l, q->headers[i].name);
		struct view t = q->headers[i].value;

		if (!name)
			continue;
		for (size_t k = 0; k < l->n; k++) {
			if (l->v[k] != name)
				continue;
			ok = ok && !(seen & UINT64_C(1) << k);
			seen |= UINT64_C(1) << k;
		}
		if (strcmp(name, "authorization") == 0) {
			size_t n = sizeof(BEARER) - 1;

			if (t.n < n || memcmp(t.p, BEARER, n) != 0) {
				ok = false;
				continue;
			}
			t = (struct view){t.p + n, t.n - n};
		}
		if (!token_is(g, t))
			ok = false;
	}
	return ok && seen;
}

static bool authenticate(const struct guard *g, const struct guard_request *q,
			 struct guard_verdict *v)
{
	bool ok = (q->token_in == GUARD_TOKEN_HEADERS || token_is(g, q->token)) &&
		  (q->token_in == GUARD_TOKEN_GIVEN || token_in_headers(g, q));

	if (!ok)
		guard_deny(v, 401, "auth.token", "the bridge token is missing or wrong");
	else if (g->stopped)
		guard_deny(v, 503, "bridge.stopped", "the run is over");
	return ok && !g->stopped;
}

/* --- 2 target, 3 method and route --------------------------------------------------------- */

static const struct {
	const char *rule, *error;
} target_texts[TARGET_FAULT_COUNT] = {
    [TARGET_EMPTY] = {"target.empty", "the request has no path"},
    [TARGET_FORM] = {"target.form", "the path must begin with one slash and hold no origin"},
    [TARGET_TOO_LONG] = {"target.length", "the path or the query is too long"},
    [TARGET_BYTE] = {"target.byte", "the path or the query holds a byte that must be escaped"},
    [TARGET_ESCAPE] = {"target.escape", "the path or the query holds an escape that may not be"},
    [TARGET_SEGMENT] = {"target.segment", "the path holds an empty segment or one of dots"},
    [TARGET_UTF8] = {"target.utf8", "the path is not UTF-8"},
    [TARGET_SEGMENTS] = {"target.depth", "the path has too many segments"},
};

static bool judge_target(const struct guard_request *q, struct guard_verdict *v)
{
	enum target_fault f = target_parse(q->target.p, q->target.n, &v->target);

	if (f == TARGET_OK)
		return true;
	guard_deny(v, f == TARGET_TOO_LONG ? 414 : 400, target_texts[f].rule,
		   target_texts[f].error);
	return false;
}

static const struct route *judge_route(const struct guard_request *q, struct guard_verdict *v)
{
	int m = method_parse(q->method);
	const struct route *r;
	unsigned other = 0;

	if (m < 0) {
		guard_deny(v, 400, "method.syntax", "the method is not a word of capital letters");
		return NULL;
	}
	v->method = (enum method)m;
	v->method_name = m ? method_name(v->method) : NULL;
	v->safe = (m & METHODS_SAFE) != 0;
	r = route_match(&v->policy->routes, v->method, &v->target, &other);
	if (r) {
		v->route_id = r->id;
		v->limits = r->limits;
		if (m & METHODS_SAFE)
			v->limits.body_max = 0;
	} else if (other) {
		guard_deny(v, 403, "route.method", "this path is not allowed with this method");
	} else {
		guard_deny(v, 403, "route.path", "this path is not allowed");
	}
	return r;
}

static bool judge_query(struct guard_verdict *v)
{
	if (!query_denied(&v->policy->query_denied, v->target.query))
		return true;
	guard_deny(v, 403, "query.name", "the query holds a parameter that this policy denies");
	return false;
}

/* --- 4 headers, 6 identity ---------------------------------------------------------------- */

static const char *bad_headers(const struct guard_request *q, int *ret_status,
			       const char **ret_text)
{
	size_t bytes = 0;

	*ret_status = 431;
	*ret_text = "the request has too many headers";
	if (q->headers_len > BRIDGE_HEADERS_MAX)
		return "headers.count";
	for (size_t i = 0; i < q->headers_len; i++) {
		const struct header *h = &q->headers[i];

		bytes += h->name.n + h->value.n;
		*ret_text = "the headers of the request are too long";
		if (bytes > BRIDGE_HEADER_BLOCK_MAX)
			return "headers.size";
		*ret_text = "a header value is too long";
		if (h->value.n > BRIDGE_HEADER_VALUE_MAX)
			return "headers.value_size";
		*ret_status = 400;
		*ret_text = "a header name is not a token";
		if (!header_name_ok(h->name))
			return "headers.name";
		*ret_text = "a header value holds a control byte";
		if (!header_value_ok(h->value))
			return "headers.value";
		*ret_status = 431;
	}
	return NULL;
}

static bool add_header(struct guard_verdict *v, const char *name, struct view value)
{
	for (size_t i = 0; i < v->headers_len; i++)
		if (v->headers[i].name.p == name)
			return false;
	v->headers[v->headers_len++] = (struct header){guard_text(name), value};
	return true;
}

static void set_identity(const struct guard *g, struct guard_verdict *v)
{
	const struct bridge_policy *p = v->policy;

	if (g->secret_len)
		(void)add_header(v, p->credential_header,
				 (struct view){g->credential, g->credential_len});
	for (size_t i = 0; i < p->identity_len; i++) {
		const struct identity_header *h = &p->identity[i];

		(void)add_header(v, h->name,
				 guard_text(h->source == IDENTITY_FIXED ? h->fixed
									: g->identity[h->source]));
	}
}

/* What a list names passes once; a second one is refused, because parsers differ on which one counts. */
static bool judge_headers(const struct guard_request *q, const struct route *r,
			  struct guard_verdict *v)
{
	const char *why;
	int status;
	const char *rule = bad_headers(q, &status, &why);

	if (rule) {
		guard_deny(v, status, rule, why);
		return false;
	}
	for (size_t i = 0; i < q->headers_len; i++) {
		const struct header *h = &q->headers[i];
		const char *name = header_list_find(&v->policy->request_headers, h->name);

		if (!name)
			name = header_list_find(&r->headers, h->name);
		if (name && !add_header(v, name, h->value)) {
			guard_deny(v, 400, "headers.duplicate",
				   "a header that passes is there twice");
			return false;
		}
	}
	return true;
}

void guard_judge(struct guard *g, const struct guard_request *q, struct guard_verdict *v)
{
	const struct route *r;

	v->allowed = false;
	v->rule = NULL;
	v->route_id = NULL;
	v->policy = bridge_policy_ref(g->policy);
	v->guard = g;
	v->method = (enum method)0;
	v->method_name = NULL;
	v->safe = false;
	v->headers_len = 0;
	v->limits = v->policy->limits;
	v->body_seen = v->response_seen = 0;
	if (!authenticate(g, q, v) || !judge_target(q, v))
		return;
	r = judge_route(q, v);
	if (!r || !judge_query(v) || !judge_headers(q, r, v))
		return;
	if (q->body_len > 0 && (uint64_t)q->body_len > v->limits.body_max) {
		(void)guard_deny_size(v, (uint64_t)q->body_len, false);
		return;
	}
	set_identity(g, v);
	v->allowed = true;
	v->rule = "allow";
}

void guard_verdict_done(struct guard_verdict *v)
{
	bridge_policy_unref(v->policy);
	v->policy = NULL;
	v->route_id = NULL;
	v->headers_len = 0;
}

/* --- after the verdict -------------------------------------------------------------------- */

int guard_body(struct guard_verdict *v, size_t n)
{
	if (n > UINT64_MAX - v->body_seen)
		n = (size_t)(UINT64_MAX - v->body_seen);
	v->body_seen += n;
	return v->body_seen > v->limits.body_max ? guard_deny_size(v, v->body_seen, true) : 0;
}
