#include "policy/bridge_policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "policy/bridge_policy_build.h"
#include "policy/query.h"

#define PREFIX_MAX 32 /* bytes of a credential's prefix: "Bearer " and the like */

static const char *const sources[IDENTITY_SOURCES] = {
    [IDENTITY_FIXED] = "fixed",	    [IDENTITY_RUN] = "run",   [IDENTITY_AGENT] = "agent",
    [IDENTITY_COMPANY] = "company", [IDENTITY_TASK] = "task",
};

const char *identity_source_name(enum identity_source s)
{
	return sources[s];
}

/* --- life --------------------------------------------------------------------------------- */

static void policy_free(struct bridge_policy *p)
{
	free(p->name);
	route_table_done(&p->routes);
	header_list_done(&p->request_headers);
	header_list_done(&p->response_headers);
	header_list_done(&p->token_headers);
	header_list_done(&p->query_denied);
	for (size_t i = 0; i < p->identity_len; i++) {
		free(p->identity[i].name);
		free(p->identity[i].fixed);
	}
	free(p->identity);
	for (size_t i = 0; i < p->upstreams_len; i++)
		free(p->upstreams[i].name);
	free(p->upstreams);
	free(p->credential_header);
	free(p->credential_prefix);
	free(p);
}

struct bridge_policy *bridge_policy_ref(struct bridge_policy *p)
{
	p->refs++;
	return p;
}

void bridge_policy_unref(struct bridge_policy *p)
{
	if (p && --p->refs == 0)
		policy_free(p);
}

void bridge_policy_unrefp(struct bridge_policy **p)
{
	bridge_policy_unref(*p);
}

const struct origin *bridge_policy_upstream(const struct bridge_policy *p, const char *name)
{
	for (size_t i = 0; i < p->upstreams_len; i++)
		if (strcmp(p->upstreams[i].name, name) == 0)
			return &p->upstreams[i].origin;
	return NULL;
}

int bridge_policy_reload(const char *what, const char *text, size_t n, struct bridge_policy **slot,
			 struct err *e)
{
	struct bridge_policy *p;
	int r = bridge_policy_parse(what, text, n, &p, e);

	if (r < 0)
		return r;
	bridge_policy_unref(*slot);
	*slot = p;
	return 0;
}

/* --- building ----------------------------------------------------------------------------- */

static int oom(struct err *e)
{
	return err_set(e, ERR_NOMEM, "policy: out of memory");
}

static bool name_ok(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= NAME_MAX_LEN &&
	       s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.")] == '\0';
}

int policy_new(const char *name, struct bridge_policy **ret, struct err *e)
{
	struct bridge_policy *p;

	if (!name_ok(name))
		return err_set(e, ERR_INVALID,
			       "name: a policy's name is 1 to %d of a-z, 0-9, '-', '_' and '.'",
			       NAME_MAX_LEN);
	p = calloc(1, sizeof(*p));
	if (!p)
		return oom(e);
	p->refs = 1;
	p->name = strdup(name);
	p->credential_header = strdup("authorization");
	p->credential_prefix = strdup("Bearer ");
	p->limits = (struct bridge_limits){
	    .body_max = BRIDGE_BODY_MAX,
	    .response_max = BRIDGE_BODY_MAX,
	    .request_ns = BRIDGE_REQUEST_MS * NS_PER_MS,
	    .idle_ns = BRIDGE_IDLE_MS * NS_PER_MS,
	    .upload_ns = BRIDGE_UPLOAD_MS * NS_PER_MS,
	};
	p->queue_max = BRIDGE_QUEUE_MAX;
	p->streams_max = BRIDGE_STREAMS_MAX;
	p->pace = BRIDGE_PACE;
	if (!p->name || !p->credential_header || !p->credential_prefix) {
		bridge_policy_unref(p);
		return oom(e);
	}
	*ret = p;
	return 0;
}

/* Judges a header name and gives it in lower case. */
static int take_name(const char *where, const char *name, bool credential_ok, char **ret,
		     struct err *e)
{
	const char *why;
	char *low;

	if (!header_name_ok((struct view){name, strlen(name)}))
		return err_set(e, ERR_INVALID,
			       "%s: %.80s is not a header name of 1 to %d token characters", where,
			       name, BRIDGE_HEADER_NAME_MAX);
	low = strdup(name);
	if (!low)
		return oom(e);
	for (char *p = low; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p | 0x20);
	why = credential_ok && strcmp(low, "authorization") == 0 ? NULL : header_forbidden(low);
	if (why) {
		int r = err_set(e, ERR_INVALID, "%s: the header %.80s cannot be in a policy: %s",
				where, low, why);

		free(low);
		return r;
	}
	*ret = low;
	return 0;
}

static int list_add(struct header_list *l, const char *where, const char *name, bool credential_ok,
		    struct err *e)
{
	_cleanup_free_ char *low = NULL;
	int r = take_name(where, name, credential_ok, &low, e);

	if (r < 0)
		return r;
	if (l->n == POLICY_HEADERS_MAX)
		return err_set(e, ERR_LIMIT, "%s: a header list may have %d names", where,
			       POLICY_HEADERS_MAX);
	r = header_list_add(l, low);
	if (r == -EEXIST)
		return err_set(e, ERR_INVALID, "%s: the header %.80s is there twice", where, low);
	return r < 0 ? oom(e) : 0;
}

int policy_add_header(struct bridge_policy *p, enum policy_list which, const char *where,
		      const char *name, struct err *e)
{
	struct header_list *l = which == LIST_REQUEST	 ? &p->request_headers
				: which == LIST_RESPONSE ? &p->response_headers
							 : &p->token_headers;

	return list_add(l, where, name, which == LIST_TOKEN, e);
}

int policy_add_route_header(struct bridge_policy *p, struct route *r, const char *where,
			    const char *name, struct err *e)
{
	int rc = list_add(&r->headers, where, name, false, e);

	if (rc == 0 && header_list_find(&p->request_headers, (struct view){name, strlen(name)}))
		return err_set(e, ERR_INVALID,
			       "%s: the header %.80s is in the policy's request_headers already",
			       where, name);
	return rc;
}

int policy_deny_query(struct bridge_policy *p, const char *where, const char *name, struct err *e)
{
	int r;

	if (!query_name_ok(name))
		return err_set(
		    e, ERR_INVALID,
		    "%s: %.80s is not the name of a query parameter: 1 to %d letters, "
		    "digits, '$', '.', '_', '-' and '~', and a '*' at the end for all that begin so",
		    where, name, NAME_MAX_LEN);
	if (p->query_denied.n == POLICY_HEADERS_MAX)
		return err_set(e, ERR_LIMIT, "%s: a list may have %d names", where,
			       POLICY_HEADERS_MAX);
	r = header_list_add(&p->query_denied, name);
	if (r == -EEXIST)
		return err_set(e, ERR_INVALID, "%s: the name %.80s is there twice", where, name);
	return r < 0 ? oom(e) : 0;
}

/* "GET,POST /pattern": the methods as bits, and where the pattern begins. */
static const char *spec_parse(const char *spec, unsigned *ret_methods, const char **ret_pattern)
{
	const char *p = spec;

	*ret_methods = 0;
	for (;;) {
		size_t n = strcspn(p, ", ");
		int m = method_parse((struct view){p, n});

		if (m <= 0)
			return "the methods are GET, HEAD, OPTIONS, POST, PUT, PATCH and DELETE";
		if (*ret_methods & (unsigned)m)
			return "a method is there twice";
		*ret_methods |= (unsigned)m;
		p += n;
		if (*p == ' ')
			break;
		if (*p == '\0')
			return "after the methods come a space and the path";
		p++;
	}
	*ret_pattern = p + 1;
	return NULL;
}

int policy_add_route(struct bridge_policy *p, const char *where, const char *id, const char *spec,
		     struct route **ret, struct err *e)
{
	const char *pattern = NULL, *why;
	unsigned methods;
	int r;

	why = spec_parse(spec, &methods, &pattern);
	if (why)
		return err_set(e, ERR_INVALID, "%s: route %.200s: %s; want \"GET,POST /path\"",
			       where, spec, why);
	/* The id stands in audit lines and terminals. */
	for (const char *c = id; c && *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f || *c == '"' ||
		    *c == '\\')
			return err_set(e, ERR_INVALID,
				       "%s: a route id is printable ASCII without quotes and "
				       "backslashes",
				       where);
	if (id && (*id == '\0' || strlen(id) > NAME_MAX_LEN))
		return err_set(e, ERR_INVALID, "%s: a route id has 1 to %d bytes", where,
			       NAME_MAX_LEN);
	r = route_add(&p->routes, id, methods, pattern, ret, e);
	if (r < 0)
		return err_wrap(e, r, "%s", where);
	(*ret)->limits = p->limits;
	return 0;
}

static bool plain_text(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f || *s == '{' || *s == '}')
			return false;
	return true;
}

int policy_add_identity(struct bridge_policy *p, const char *where, const char *name,
			const char *value, struct err *e)
{
	struct identity_header h = {.source = IDENTITY_FIXED}, *v;
	size_t n = strlen(value);
	int r;

	if (p->identity_len == POLICY_IDENTITY_MAX)
		return err_set(e, ERR_LIMIT, "%s: a policy may set %d headers", where,
			       POLICY_IDENTITY_MAX);
	for (int s = IDENTITY_RUN; s < IDENTITY_SOURCES; s++)
		if (n == strlen(sources[s]) + 2 && value[0] == '{' && value[n - 1] == '}' &&
		    memcmp(value + 1, sources[s], n - 2) == 0)
			h.source = (enum identity_source)s;
	if (h.source == IDENTITY_FIXED && (n > BRIDGE_IDENTITY_MAX || !plain_text(value)))
		return err_set(e, ERR_INVALID,
			       "%s: the value is {run}, {agent}, {company}, {task} or at most %d "
			       "printable ASCII characters without braces",
			       where, BRIDGE_IDENTITY_MAX);
	r = take_name(where, name, false, &h.name, e);
	if (r < 0)
		return r;
	h.fixed = strdup(value);
	v = reallocarray(p->identity, p->identity_len + 1, sizeof(*v));
	if (v)
		p->identity = v;
	if (!v || !h.fixed) {
		free(h.name);
		free(h.fixed);
		return oom(e);
	}
	for (size_t i = 0; i < p->identity_len; i++) {
		if (strcmp(v[i].name, h.name) != 0)
			continue;
		r = err_set(e, ERR_INVALID, "%s: the header %.80s is there twice", where, h.name);
		free(h.name);
		free(h.fixed);
		return r;
	}
	p->identity[p->identity_len++] = h;
	return 0;
}

int policy_set_credential(struct bridge_policy *p, const char *header, const char *prefix,
			  struct err *e)
{
	_cleanup_free_ char *name = NULL;
	char *copy;
	int r = take_name("credential.header", header, true, &name, e);

	if (r < 0)
		return r;
	if (strlen(prefix) > PREFIX_MAX || !plain_text(prefix))
		return err_set(e, ERR_INVALID,
			       "credential.prefix: at most %d printable ASCII characters, as in "
			       "\"Bearer \"",
			       PREFIX_MAX);
	copy = strdup(prefix);
	if (!copy)
		return oom(e);
	free(p->credential_header);
	free(p->credential_prefix);
	p->credential_header = TAKE_PTR(name);
	p->credential_prefix = copy;
	return 0;
}

int policy_add_upstream(struct bridge_policy *p, const char *name, const char *origin,
			struct err *e)
{
	struct policy_upstream u, *v;
	int r;

	if (!name_ok(name))
		return err_set(e, ERR_INVALID,
			       "upstreams: the name %.80s is not 1 to %d of a-z, 0-9, '-', '_' "
			       "and '.'",
			       name, NAME_MAX_LEN);
	if (p->upstreams_len == POLICY_UPSTREAMS_MAX)
		return err_set(e, ERR_LIMIT, "upstreams: a policy may name %d",
			       POLICY_UPSTREAMS_MAX);
	r = origin_parse(origin, &u.origin, e);
	if (r < 0)
		return err_wrap(e, r, "upstreams.%s", name);
	v = reallocarray(p->upstreams, p->upstreams_len + 1, sizeof(*v));
	if (!v)
		return oom(e);
	p->upstreams = v;
	u.name = strdup(name);
	if (!u.name)
		return oom(e);
	v[p->upstreams_len++] = u;
	return 0;
}

/* A header comes from one side only: the sandbox, or us. */
static int clash(const struct bridge_policy *p, const char *name, const char *what, struct err *e)
{
	struct view v = {name, strlen(name)};
	bool found = header_list_find(&p->request_headers, v) != NULL;

	for (size_t i = 0; i < p->routes.n; i++)
		found = found || header_list_find(&p->routes.v[i].headers, v);
	if (!found)
		return 0;
	return err_set(e, ERR_INVALID,
		       "request_headers: the sandbox may not send %.80s, because %s: take it out",
		       name, what);
}

/* Nobody else writes where the credential goes. */
static int credential_alone(const struct bridge_policy *p, struct err *e)
{
	for (size_t i = 0; i < p->identity_len; i++)
		if (strcmp(p->identity[i].name, p->credential_header) == 0)
			return err_set(e, ERR_INVALID,
				       "identity_headers: %s is the credential's header",
				       p->credential_header);
	return clash(p, p->credential_header, "the credential goes there", e);
}

int bridge_policy_credential(struct bridge_policy *p, const char *header, struct err *e)
{
	int r = policy_set_credential(p, header,
				      strcasecmp(header, "authorization") == 0 ? "Bearer " : "", e);

	return r < 0 ? r : credential_alone(p, e);
}

int policy_finish(struct bridge_policy *p, struct err *e)
{
	int r = 0;

	if (p->routes.n == 0)
		return err_set(e, ERR_INVALID, "routes: there is none, so nothing would pass");
	if (p->token_headers.n == 0)
		r = policy_add_header(p, LIST_TOKEN, "token_headers", "authorization", e);
	for (size_t i = 0; r == 0 && i < p->identity_len; i++)
		r = clash(p, p->identity[i].name, "identity_headers set it", e);
	if (r == 0)
		r = credential_alone(p, e);
	for (size_t i = 0; r == 0 && i < p->token_headers.n; i++)
		r = clash(p, p->token_headers.v[i], "it carries the bridge token", e);
	return r < 0 ? r : route_compile(&p->routes, e);
}
