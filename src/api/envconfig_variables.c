/* envconfig_variables.c: variables and metadata of environments, as they come (api.md 2.6, 2.7). */
#include "api/envconfig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "store/vault.h"

#define REDACTED "***REDACTED***"

/* --- variables ---------------------------------------------------------------------------- */

static bool credential_looking(const char *name)
{
	static const char *const parts[] = {
	    "api_key", "apikey",      "access_token", "auth_token",	 "authorization",
	    "bearer",  "secret",      "passwd",	      "password",	 "credential",
	    "jwt",     "private_key", "cookie",	      "connectionstring"};

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (strcasestr(name, parts[i]))
			return true;
	return false;
}

static bool name_ok(const char *p)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";

	return *p && strchr(first, *p) && strlen(p) <= 255 &&
	       strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") ==
		   strlen(p);
}

static json_t *bad_binding(struct call *c, const char *name)
{
	json_t *issue = json_pack("{s:s,s:[s,s],s:s}", "code", "invalid_union", "path", "envVars",
				  name, "message", "not a text, a value or a secret reference");

	(void)reply_json(c, 400,
			 json_pack("{s:s,s:[o]}", "error", "Validation error", "details", issue));
	return NULL;
}

static json_t *plain_value(struct call *c, const char *name, json_t *v)
{
	const char *text = json_string_value(v);

	if (!text)
		return bad_binding(c, name);
	if (strcmp(text, REDACTED) == 0)
		return (void)reply_errorf(
			   c, 422, "Refusing to persist redacted placeholder for key: %s", name),
		       NULL;
	if (c->api->cfg.secrets_strict && text[strspn(text, " \t\r\n")] && credential_looking(name))
		return (void)reply_errorf(
			   c, 422,
			   "Strict secret mode requires secret references for sensitive key: %s",
			   name),
		       NULL;
	return json_pack("{s:s,s:O}", "type", "plain", "value", v);
}

static json_t *secret_value(struct call *c, const char *name, json_t *v, const char *company)
{
	struct secret_row s = {0};
	struct err e = ERR_INIT;
	json_t *ref;
	int r;

	(void)name;
	ref = envconfig_secret_ref(c, "envVars", v);
	if (!ref)
		return NULL;
	r = secret_get(c->api->db, json_string_value(json_object_get(ref, "secretId")), &s, &e);
	if (r > 0 && strcmp(s.company_id, company) == 0)
		return ref;
	json_decref(ref);
	if (r < 0)
		(void)reply_failed(c, &e);
	else if (r == 0)
		(void)reply_error(c, 404, "Secret not found");
	else
		(void)reply_error(c, 422, "Secret must belong to same company");
	return NULL;
}

static json_t *variable(struct call *c, const char *name, json_t *v, const char *company)
{
	const char *type = json_string_value(json_object_get(v, "type"));

	if (json_is_string(v))
		return plain_value(c, name, v);
	if (!json_is_object(v) || !type)
		return bad_binding(c, name);
	if (strcmp(type, "plain") == 0 && json_object_size(v) == 2)
		return plain_value(c, name, json_object_get(v, "value"));
	if (strcmp(type, "secret_ref") == 0)
		return secret_value(c, name, v, company);
	return bad_binding(c, name);
}

json_t *envconfig_variables(struct call *c, json_t *vars, const char *company)
{
	json_t *out = json_object(), *v;
	const char *key;

	json_object_foreach(vars, key, v)
	{
		json_t *kept = NULL;

		if (!name_ok(key))
			(void)reply_errorf(c, 422, "Invalid environment variable name: %.*s",
					   str_fit(key, 100), key);
		else
			kept = variable(c, key, v, company);
		if (!kept) {
			json_decref(out);
			return NULL;
		}
		(void)json_object_set_new(out, key, kept);
	}
	return out;
}

/* --- metadata ----------------------------------------------------------------------------- */

static bool truthy(json_t *v)
{
	return v && !json_is_null(v) && !json_is_false(v) &&
	       !(json_is_integer(v) && json_integer_value(v) == 0) &&
	       !(json_is_string(v) && json_string_length(v) == 0);
}

int envconfig_metadata(struct call *c, json_t *metadata)
{
	static const char *const markers[] = {META_MANAGED, META_MANAGED_K8S};
	char text[160];

	for (size_t i = 0; c->api->cfg.cloud_managed && i < ARRAY_LEN(markers); i++) {
		if (!truthy(json_object_get(metadata, markers[i])))
			continue;
		(void)snprintf(text, sizeof(text),
			       "metadata.%s is reserved to the platform on cloud-managed instances",
			       markers[i]);
		(void)reply_coded(c, 422, "environment_platform_marker_reserved", text, NULL);
		return 1;
	}
	/* CF-02: also a null, which would say that there is none. */
	if (json_object_get(metadata, META_PROOF)) {
		(void)reply_coded(c, 422, "environment_platform_proof_reserved",
				  "metadata." META_PROOF " is server-owned and cannot be set",
				  NULL);
		return 1;
	}
	(void)json_object_del(metadata, META_ARCHIVE);
	return 0;
}
