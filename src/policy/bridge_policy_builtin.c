/* The built-in policies. docs/bridge.md says where each table comes from. */
#include "policy/bridge_policy.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/bridge_policy_build.h"

struct builtin {
	const char *name;
	const char *const *routes; /* each list ends with NULL */
	const char *const *request, *const *response, *const *token;
	const char *const *identity;	  /* name, value, name, value */
	const char *route, *route_header; /* one header of one route */
};

/* Every request of that server's agents: each path and method, no wildcard but for single names. */
static const char *const paperclip_routes[] = {
    "GET /api/agents/me",
    "GET /api/agents/me/inbox-lite",
    "GET /api/agents/me/inbox/mine",
    "GET /api/agents/{agent}",
    "GET /api/agents/{agent}/skills",
    "GET /api/openapi.json",
    "GET /api/companies/{company}",
    "GET /api/companies/{company}/dashboard",
    "GET /api/companies/{company}/agents",
    "GET /api/companies/{company}/issues",
    "GET /api/companies/{company}/projects",
    "GET /api/companies/{company}/goals",
    "GET /api/companies/{company}/org",
    "GET /api/companies/{company}/approvals",
    "GET /api/companies/{company}/routines",
    "GET /api/companies/{company}/skills",
    "GET /api/companies/{company}/agent-configurations",
    "GET /api/companies/{company}/email/inboxes",
    "GET /api/companies/{company}/email/tasks/{task}",
    "GET /api/companies/{company}/email/deliveries/{delivery}",
    "GET /api/projects/{project}",
    "GET /api/goals/{goal}",
    "GET /api/issues/{issue}",
    "GET /api/issues/{issue}/heartbeat-context",
    "GET /api/issues/{issue}/comments",
    "GET /api/issues/{issue}/comments/{comment}",
    "GET /api/issues/{issue}/documents",
    "GET /api/issues/{issue}/documents/{document}",
    "GET /api/issues/{issue}/documents/{document}/revisions",
    "GET /api/issues/{issue}/approvals",
    "GET /api/issues/{issue}/attachments",
    "GET /api/issues/{issue}/work-products",
    "GET /api/issues/{issue}/interactions",
    "GET /api/issues/{issue}/interactions/{interaction}",
    "GET /api/attachments/{attachment}/content",
    "GET /llms/agent-configuration.txt",
    "GET /llms/agent-configuration/{name}.txt",
    "GET /llms/agent-icons.txt",
    "GET /api/approvals/{approval}",
    "GET /api/approvals/{approval}/issues",
    "GET /api/approvals/{approval}/comments",
    "GET /api/execution-workspaces/{workspace}",
    "GET /api/routines/{routine}",
    "GET /api/routines/{routine}/runs",
    "POST /runtime-tools/github/credentials",
    "POST /api/agents/{agent}/skills/sync",
    "POST /api/companies/{company}/email/send",
    "POST /api/issues/{issue}/comments",
    "POST /api/issues/{issue}/checkout",
    "POST /api/issues/{issue}/release",
    "POST /api/issues/{issue}/work-products",
    "POST /api/issues/{issue}/interactions",
    "POST /api/issues/{issue}/approvals",
    "POST /api/issues/{issue}/interactions/{interaction}/accept",
    "POST /api/issues/{issue}/interactions/{interaction}/reject",
    "POST /api/issues/{issue}/interactions/{interaction}/respond",
    "POST /api/issues/{issue}/interactions/{interaction}/verdicts",
    "POST /api/issues/{issue}/interactions/{interaction}/withdraw",
    "POST /api/companies/{company}/issues",
    "POST /api/companies/{company}/issues/{issue}/attachments",
    "POST /api/companies/{company}/agent-hires",
    "POST /api/companies/{company}/approvals",
    "POST /api/companies/{company}/routines",
    "POST /api/approvals/{approval}/comments",
    "POST /api/execution-workspaces/{workspace}/runtime-services/start",
    "POST /api/execution-workspaces/{workspace}/runtime-services/stop",
    "POST /api/execution-workspaces/{workspace}/runtime-services/restart",
    "POST /api/routines/{routine}/run",
    "POST /api/routines/{routine}/triggers",
    "PUT /api/issues/{issue}/documents/{document}",
    "PATCH /api/agents/{agent}/instructions-path",
    "PATCH /api/issues/{issue}",
    "PATCH /api/work-products/{product}",
    "PATCH /api/routines/{routine}",
    "PATCH /api/routine-triggers/{trigger}",
    "DELETE /api/routine-triggers/{trigger}",
    NULL,
};
/* A retried call must be known for what it is (FR-B075): the key passes. */
static const char *const paperclip_request[] = {
    "accept", "content-type", "if-match", "if-none-match", "idempotency-key", NULL,
};
static const char *const paperclip_response[] = {
    "content-type", "etag", "last-modified", "retry-after", NULL,
};
static const char *const paperclip_token[] = {"authorization", "x-api-key", NULL};
static const char *const paperclip_identity[] = {"x-paperclip-run-id", "{run}", NULL};

static const struct builtin builtins[] = {
    {"paperclip", paperclip_routes, paperclip_request, paperclip_response, paperclip_token,
     paperclip_identity, "POST /runtime-tools/github/credentials", "x-paperclip-github-capability"},
};

const char *bridge_policy_builtin_name(size_t i)
{
	return i < ARRAY_LEN(builtins) ? builtins[i].name : NULL;
}

static int add_headers(struct bridge_policy *p, enum policy_list l, const char *const *v,
		       struct err *e)
{
	int r = 0;

	for (; r == 0 && *v; v++)
		r = policy_add_header(p, l, "built-in", *v, e);
	return r;
}

static int fill(struct bridge_policy *p, const struct builtin *b, struct err *e)
{
	struct route *route;
	int r = add_headers(p, LIST_REQUEST, b->request, e);

	if (r == 0)
		r = add_headers(p, LIST_RESPONSE, b->response, e);
	if (r == 0)
		r = add_headers(p, LIST_TOKEN, b->token, e);
	for (const char *const *v = b->identity; r == 0 && *v; v += 2)
		r = policy_add_identity(p, "built-in", v[0], v[1], e);
	for (const char *const *v = b->routes; r == 0 && *v; v++) {
		r = policy_add_route(p, "built-in", NULL, *v, &route, e);
		if (r == 0 && b->route && strcmp(*v, b->route) == 0)
			r = policy_add_route_header(p, route, "built-in", b->route_header, e);
	}
	return r < 0 ? r : policy_finish(p, e);
}

int bridge_policy_builtin(const char *name, struct bridge_policy **ret, struct err *e)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	int r;

	for (size_t i = 0; i < ARRAY_LEN(builtins); i++) {
		if (strcmp(builtins[i].name, name) != 0)
			continue;
		r = policy_new(name, &p, e);
		if (r == 0)
			r = fill(p, &builtins[i], e);
		if (r == 0)
			*ret = TAKE_PTR(p);
		return r;
	}
	return err_set(e, ERR_NOT_FOUND,
		       "there is no built-in policy %.80s: 'airlock policy list' names them; a "
		       "policy file is named by a path with a '/'",
		       name);
}
