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

#define STAINLESS                                                                              \
	"\"x-stainless-arch\",\"x-stainless-async\",\"x-stainless-lang\",\"x-stainless-os\","  \
	"\"x-stainless-package-version\",\"x-stainless-retry-count\",\"x-stainless-runtime\"," \
	"\"x-stainless-runtime-version\",\"x-stainless-timeout\",\"x-stainless-helper-method\","
/* Answers of a model come slowly, in pieces, and whole conversations go there each time. */
#define MODEL_LIMITS                                                               \
	"\"limits\":{\"body\":\"32M\",\"response\":\"unlimited\",\"stream\":true," \
	"\"request_time\":\"600s\",\"idle_time\":\"600s\"}"

/*
 * Model APIs, for --upstream: what a coding agent asks of a model and nothing of the account (keys, files, batches,
 * fine-tuning, usage).
 */
static const struct {
	const char *name, *text;
} texts[] = {
    {"anthropic",
     "{\"version\":1,\"name\":\"anthropic\",\"routes\":["
     "\"POST /v1/messages\",\"POST /v1/messages/count_tokens\",\"GET /v1/models\",\"GET /v1/models/{model}\"],"
     "\"request_headers\":[\"accept\",\"content-type\",\"user-agent\"," STAINLESS
     "\"anthropic-version\",\"anthropic-beta\",\"anthropic-dangerous-direct-browser-access\",\"x-app\"],"
     "\"response_headers\":[\"content-type\",\"retry-after\",\"retry-after-ms\",\"request-id\",\"x-should-retry\"],"
     "\"token_headers\":[\"authorization\",\"x-api-key\"],"
     "\"credential\":{\"header\":\"x-api-key\",\"prefix\":\"\"}," MODEL_LIMITS "}"},
    {"openai",
     "{\"version\":1,\"name\":\"openai\",\"routes\":["
     "\"POST /v1/responses\",\"POST /v1/responses/compact\",\"GET /v1/responses/{response}\",\"POST /v1/responses/{response}/cancel\","
     "\"POST /v1/chat/completions\",\"GET /v1/models\",\"GET /v1/models/{model}\"],"
     "\"request_headers\":[\"accept\",\"content-type\",\"user-agent\"," STAINLESS
     "\"openai-beta\",\"originator\",\"session_id\",\"conversation_id\",\"version\",\"x-client-request-id\"],"
     "\"response_headers\":[\"content-type\",\"retry-after\",\"retry-after-ms\",\"x-request-id\",\"x-should-retry\"],"
     "\"token_headers\":[\"authorization\"]," MODEL_LIMITS "}"},
    {"google",
     "{\"version\":1,\"name\":\"google\",\"routes\":["
     "\"POST /v1beta/models/{model}:generateContent\",\"POST /v1beta/models/{model}:streamGenerateContent\","
     "\"POST /v1beta/models/{model}:countTokens\",\"POST /v1beta/models/{model}:embedContent\","
     "\"GET /v1beta/models\",\"GET /v1beta/models/{model}\"],"
     "\"request_headers\":[\"accept\",\"content-type\",\"user-agent\",\"x-goog-api-client\"],"
     "\"response_headers\":[\"content-type\",\"retry-after\"],"
     /* What that API reads from the query of who calls, who pays, and of other headers and methods. */
     "\"query_denied\":[\"key\",\"api_key\",\"access_token\",\"oauth*\",\"bearer_token\",\"auth_user\",\"quota_user\",\"user_ip\","
     "\"user_project\",\"$*\",\"callback\",\"upload_protocol\",\"upload_type\",\"x_oauth*\"],"
     "\"token_headers\":[\"authorization\",\"x-goog-api-key\"],"
     "\"credential\":{\"header\":\"x-goog-api-key\",\"prefix\":\"\"}," MODEL_LIMITS "}"},
};

const char *bridge_policy_builtin_name(size_t i)
{
	if (i < ARRAY_LEN(builtins))
		return builtins[i].name;
	i -= ARRAY_LEN(builtins);
	return i < ARRAY_LEN(texts) ? texts[i].name : NULL;
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
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (strcmp(texts[i].name, name) == 0)
			return bridge_policy_parse(name, texts[i].text, strlen(texts[i].text), ret,
						   e);
	return err_set(e, ERR_NOT_FOUND,
		       "there is no built-in policy %.80s: 'airlock policy list' names them; a "
		       "policy file is named by a path with a '/'",
		       name);
}
