/*
 * openapi.c: the OpenAPI document, made once from the route table.
 *
 * `x-airlock-guard` names the guard of an operation and `x-airlock-requirements` the requirements that it carries; the
 * denied-actor tests and docs/api.md are made from this document.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/limits.h"

/* Members of what comes back: "name:type", type of JSON; a '?' behind it: may be null. */
static const struct {
	const char *name, *members;
} answers[] = {
    {"Health", "status:string version:string"},
    {"AgentAccess", "feature:string version:string build:string results:string capabilities:array"},
    {"Actor",
     "type:string source:string userId:string? agentId:string? companyId:string? runId:string? "
     "isInstanceAdmin:boolean memberships:array"},
    {"Session", "id:string expiresAt:string?"},
    {"Company", "id:string name:string createdAt:string"},
    {"Activity",
     "id:integer actorType:string actorId:string agentId:string? runId:string? action:string "
     "entityType:string entityId:string details:object createdAt:string"},
    {"Environment",
     "id:string name:string description:string? driver:string status:string config:object "
     "envVars:object metadata:object? createdAt:string updatedAt:string"},
    {"Lease",
     "id:string companyId:string environmentId:string? executionWorkspaceId:string? issueId:string? "
     "heartbeatRunId:string? status:string leasePolicy:string provider:string? providerLeaseId:string? "
     "acquiredAt:string lastUsedAt:string expiresAt:string? releasedAt:string? failureReason:string? "
     "cleanupStatus:string? metadata:object? createdAt:string updatedAt:string"},
    {"Run",
     "id:string companyId:string environmentId:string? workspaceRoot:string workspacePath:string "
     "command:string review:boolean timeoutSeconds:integer status:string exitStatus:integer? "
     "reason:string? workKept:boolean createdAt:string startedAt:string? endedAt:string?"},
    {"RunReport", "run:string"},
    {"WorkspaceRoot", "name:string companyId:string? path:string"},
    {"ChangeSet",
     "runId:string waiting:boolean commitsWait:boolean commits:array decided:string? total:integer "
     "changes:array"},
    {"ChangeSetApplied",
     "runId:string done:boolean selected:integer left:integer commitsWait:boolean counts:object "
     "bytesWritten:integer history:object?"},
    {"ChangeSetDiscarded", "runId:string done:boolean"},
    {"BlastRadius",
     "environmentId:string canDelete:boolean deleteBlockedReasons:array "
     "pendingCleanupLeaseCount:integer reusableSandboxLeaseCount:integer "
     "reusableSandboxLeaseHolders:array staticReferences:object activeRuntimeUse:object "
     "workElsewhereCount:integer"},
    {"SecretRefs", "refs:array"},
    {"Capabilities", "adapters:array drivers:object sandboxProviders:object"},
    {"ProbeResult", "ok:boolean driver:string summary:string details:object?"},
    {"Qualification", "state:string by:string reason:string platform:object"},
    {"ImageState",
     "activeTemplate:object? activeTemplateMatchesConfig:boolean? activeTemplateDrift:object? "
     "activeSession:object? latestSession:object?"},
    {"ImageSession", "session:object connectionPayload:object?"},
    {"ImageTemplate", "id:string environmentId:string status:string"},
    {"Settings", "defaultEnvironmentId:string?"},
    {"Agent",
     "id:string companyId:string name:string adapterType:string status:string "
     "responsibleUserId:string? defaultEnvironmentId:string? createdAt:string updatedAt:string"},
    {"Project",
     "id:string companyId:string name:string executionWorkspacePolicy:object createdAt:string "
     "updatedAt:string"},
    {"Secret",
     "id:string companyId:string name:string description:string? status:string latestVersion:integer "
     "createdAt:string updatedAt:string"},
    {"Error", "error:string code:string details:object"},
};

static json_t *type_of(const char *word, size_t n)
{
	bool may_be_null = n && word[n - 1] == '?';

	n -= may_be_null;
	return may_be_null ? json_pack("{s:[s%,s]}", "type", word, n, "null")
			   : json_pack("{s:s%}", "type", word, n);
}

static json_t *answer_schema(const char *members)
{
	json_t *props = json_object();

	while (*members) {
		size_t n = strcspn(members, " "), k = strcspn(members, ":");
		_cleanup_free_ char *name = strndup(members, k);

		if (name)
			(void)json_object_set_new(props, name, type_of(members + k + 1, n - k - 1));
		members += n + (members[n] == ' ');
	}
	return json_pack("{s:s,s:o}", "type", "object", "properties", props);
}

static json_t *field_schema(const struct field *f)
{
	static const char *const types[] = {
	    [FIELD_TEXT] = "string",   [FIELD_WORD] = "string", [FIELD_UUID] = "string",
	    [FIELD_OBJECT] = "object", [FIELD_ENV] = "object",	[FIELD_BOOL] = "boolean",
	    [FIELD_INT] = "integer",   [FIELD_TEXTS] = "array"};
	json_t *j = f->flags & FIELD_NULL ? json_pack("{s:[s,s]}", "type", types[f->type], "null")
					  : json_pack("{s:s}", "type", types[f->type]);

	if (f->words) {
		json_t *w = json_array();

		for (size_t i = 0; f->words[i]; i++)
			(void)json_array_append_new(w, json_string(f->words[i]));
		(void)json_object_set_new(j, "enum", w);
	}
	if (f->type == FIELD_UUID)
		(void)json_object_set_new(j, "format", json_string("uuid"));
	if (f->type == FIELD_TEXT) {
		(void)json_object_set_new(j, "minLength", json_integer(f->min));
		(void)json_object_set_new(j, "maxLength",
					  json_integer(f->max ? f->max : API_TEXT_MAX));
	}
	if (f->type == FIELD_TEXTS) {
		(void)json_object_set_new(j, "items", json_pack("{s:s}", "type", "string"));
		(void)json_object_set_new(j, "minItems", json_integer(f->min));
		(void)json_object_set_new(j, "maxItems", json_integer(f->max));
	}
	if (f->type == FIELD_INT) {
		(void)json_object_set_new(j, "minimum", json_integer(f->min));
		(void)json_object_set_new(j, "maximum", json_integer(f->max));
	}
	if (f->what)
		(void)json_object_set_new(j, "description", json_string(f->what));
	return j;
}

static json_t *body_schema(const struct schema *s)
{
	json_t *props = json_object(), *required = json_array(), *j;

	for (const struct field *f = s->fields; f->name; f++) {
		(void)json_object_set_new(props, f->name, field_schema(f));
		if (f->flags & FIELD_REQUIRED)
			(void)json_array_append_new(required, json_string(f->name));
	}
	j = json_pack("{s:s,s:b,s:o}", "type", "object", "additionalProperties", 0, "properties",
		      props);
	if (json_array_size(required))
		(void)json_object_set(j, "required", required);
	json_decref(required);
	return j;
}

static json_t *ref(const char *name)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	size_t n = strcspn(name, "[");
	json_t *j;

	(void)buf_putf(&b, "#/components/schemas/%.*s", (int)n, name);
	j = json_pack("{s:s}", "$ref", buf_text(&b));
	return name[n] ? json_pack("{s:s,s:o}", "type", "array", "items", j) : j;
}

/* Path parameters from the pattern, members of the query from the table. */
static json_t *parameters(const struct api_route *r)
{
	json_t *a = json_array();

	for (const char *p = strchr(r->pattern, '{'); p; p = strchr(p, '{')) {
		size_t n = strcspn(++p, "}");

		(void)json_array_append_new(a, json_pack("{s:s%,s:s,s:b,s:{s:s,s:s}}", "name", p, n,
							 "in", "path", "required", 1, "schema",
							 "type", "string", "format", "uuid"));
	}
	for (const char *q = r->query; q && *q;) {
		size_t n = strcspn(q, ",");

		(void)json_array_append_new(a, json_pack("{s:s%,s:s,s:{s:s}}", "name", q, n, "in",
							 "query", "schema", "type", "string"));
		q += n + (q[n] == ',');
	}
	return a;
}

static json_t *operation(const struct api_route *r)
{
	char status[8];
	json_t *j,
	    *media = json_pack("{s:o}", "schema",
			       strcmp(r->answer, "Text") == 0 || strcmp(r->answer, "OpenApi") == 0
				   ? json_object()
				   : ref(r->answer));

	(void)snprintf(status, sizeof(status), "%u", r->status);
	j = json_pack("{s:s,s:s,s:o,s:{s:{s:s,s:{s:o}},s:{s:s,s:{s:{s:o}}}},s:s}", "operationId",
		      r->id, "summary", r->summary, "parameters", parameters(r), "responses",
		      status, "description", r->answer, "content",
		      strcmp(r->answer, "Text") == 0 ? "text/plain" : "application/json", media,
		      "default", "description", "Error", "content", "application/json", "schema",
		      ref("Error"), "x-airlock-guard", guard_name(r->guard));
	if (r->body && r->body->fields->name)
		(void)json_object_set_new(j, "requestBody",
					  json_pack("{s:{s:{s:o}}}", "content", "application/json",
						    "schema", ref(r->body->name)));
	if (r->requires)
		(void)json_object_set_new(j, "x-airlock-requirements", json_string(r->requires));
	return j;
}

static void lower(const char *from, char *out, size_t n)
{
	size_t i = 0;

	for (; from[i] && i + 1 < n; i++)
		out[i] = (char)(from[i] | 0x20);
	out[i] = '\0';
}

int openapi_build(char **ret, size_t *ret_len, struct err *e)
{
	json_t *paths = json_object(), *schemas = json_object(), *doc;

	for (size_t i = 0; i < ARRAY_LEN(answers); i++)
		(void)json_object_set_new(schemas, answers[i].name,
					  answer_schema(answers[i].members));
	for (const struct api_route *r = api_routes; r->pattern; r++) {
		json_t *at = json_object_get(paths, r->pattern);
		char method[8];

		if (!at) {
			at = json_object();
			(void)json_object_set_new(paths, r->pattern, at);
		}
		lower(method_name((enum method)r->method), method, sizeof(method));
		(void)json_object_set_new(at, method, operation(r));
		if (r->body && r->body->fields->name)
			(void)json_object_set_new(schemas, r->body->name, body_schema(r->body));
	}
	doc = json_pack("{s:s,s:{s:s,s:s},s:o,s:{s:o,s:{s:{s:s,s:s}}},s:[{s:[]}]}", "openapi",
			"3.1.0", "info", "title", "Airlock", "version", AIRLOCK_VERSION, "paths",
			paths, "components", "schemas", schemas, "securitySchemes", "bearer",
			"type", "http", "scheme", "bearer", "security", "bearer");
	*ret = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
	json_decref(doc);
	*ret_len = *ret ? strlen(*ret) : 0;
	return *ret ? 0 : err_set(e, ERR_NOMEM, "the document of the API cannot be made");
}
