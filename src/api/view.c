#include "api/view.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/json.h"

void view_text(struct buf *b, const char *lead, const char *text)
{
	(void)buf_puts(b, lead);
	if (!text)
		(void)buf_puts(b, "null");
	else
		(void)json_put(b, (struct view){text, strlen(text)});
}

void view_text_or_null(struct buf *b, const char *lead, const char *text)
{
	view_text(b, lead, text && text[0] ? text : NULL);
}

void view_time(struct buf *b, const char *lead, int64_t ns)
{
	char when[32];

	(void)buf_puts(b, lead);
	if (!ns) {
		(void)buf_puts(b, "null");
		return;
	}
	/* No format: two for each row of a list were a tenth of its price. */
	clock_iso_ms(ns, when, sizeof(when));
	(void)buf_putc(b, '"');
	(void)buf_puts(b, when);
	(void)buf_putc(b, '"');
}

/* --- the floor view ----------------------------------------------------------------------- */

static bool credential_name(const char *name)
{
	static const char *const parts[] = {"apikey", "api_key",  "api-key",   "token",
					    "secret", "password", "credential"};

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (strcasestr(name, parts[i]))
			return true;
	return false;
}

static void drop_credentials(json_t *j)
{
	const char *key;
	json_t *v;
	void *next;
	size_t i;

	json_object_foreach_safe(j, next, key, v)
	{
		if (credential_name(key))
			(void)json_object_del(j, key);
		else
			drop_credentials(v);
	}
	if (json_is_array(j))
		json_array_foreach(j, i, v) drop_credentials(v);
}

static bool marker(const json_t *metadata, const char *name)
{
	return json_is_true(json_object_get(metadata, name));
}

bool view_is_platform_row(const struct call *c, const struct environment_row *r)
{
	json_t *m;
	bool is;

	if (!c->api->cfg.cloud_managed || !r->metadata)
		return false;
	m = json_loads(r->metadata, 0, NULL);
	is = marker(m, "managedByPaperclip") || marker(m, "managedKubernetesSandbox");
	json_decref(m);
	return is;
}

/* Config without credentials; variables only where the tenant may edit them, and for administrators. */
static void floor_members(struct call *c, const struct environment_row *r)
{
	json_t *config = json_loads(r->config, 0, NULL), *m = json_loads(r->metadata, 0, NULL);
	bool vars = strcmp(r->driver, "sandbox") == 0 && marker(m, "managedByPaperclip") &&
		    !marker(m, "managedKubernetesSandbox") && actor_is_admin(&c->actor);
	_cleanup_free_ char *text = NULL;

	drop_credentials(config);
	text = json_dumps(config, JSON_COMPACT);
	(void)buf_putf(&c->out, ",\"config\":%s,\"envVars\":%s,\"metadata\":%s", text ? text : "{}",
		       vars ? r->env_vars : "{}", r->metadata);
	json_decref(config);
	json_decref(m);
}

void view_environment_open(struct call *c, const struct environment_row *r)
{
	struct buf *b = &c->out;

	view_text(b, "{\"id\":", r->id);
	view_text(b, ",\"name\":", r->name);
	view_text(b, ",\"description\":", r->description);
	view_text(b, ",\"driver\":", r->driver);
	view_text(b, ",\"status\":", r->status);
	if (view_is_platform_row(c, r)) {
		floor_members(c, r);
	} else if (actor_is_admin(&c->actor)) {
		(void)buf_puts(b, ",\"config\":");
		(void)buf_puts(b, r->config);
		(void)buf_puts(b, ",\"envVars\":");
		(void)buf_puts(b, r->env_vars);
		(void)buf_puts(b, ",\"metadata\":");
		(void)buf_puts(b, r->metadata ? r->metadata : "null");
	} else {
		(void)buf_puts(b, ",\"config\":{},\"envVars\":{},\"metadata\":null");
	}
	view_time(b, ",\"createdAt\":", r->created_ns);
	view_time(b, ",\"updatedAt\":", r->updated_ns);
}

void view_environment(struct call *c, const struct environment_row *r)
{
	view_environment_open(c, r);
	(void)buf_putc(&c->out, '}');
}

void view_lease(struct call *c, const struct envlease_row *l)
{
	bool whole = actor_is_admin(&c->actor);
	struct buf *b = &c->out;

	view_text(b, "{\"id\":", l->id);
	view_text(b, ",\"companyId\":", l->company_id);
	view_text_or_null(b, ",\"environmentId\":", l->environment_id);
	view_text_or_null(b, ",\"executionWorkspaceId\":", l->workspace_id);
	view_text_or_null(b, ",\"issueId\":", l->issue_id);
	view_text_or_null(b, ",\"heartbeatRunId\":", l->run_id);
	view_text(b, ",\"status\":", envlease_status_name(l->status));
	view_text(b, ",\"leasePolicy\":", l->policy);
	view_text_or_null(b, ",\"provider\":", l->provider);
	/* Of an SSH lease it is the address and the directory: configuration (CF-05). */
	view_text_or_null(b, ",\"providerLeaseId\":",
			  whole || strcmp(l->provider, "ssh") != 0 ? l->provider_lease_id : "");
	view_time(b, ",\"acquiredAt\":", l->acquired_ns);
	view_time(b, ",\"lastUsedAt\":", l->used_ns);
	view_time(b, ",\"expiresAt\":", l->expires_ns);
	view_time(b, ",\"releasedAt\":", l->released_ns);
	view_text_or_null(b, ",\"failureReason\":", l->reason);
	view_text_or_null(b, ",\"cleanupStatus\":", l->cleanup);
	(void)buf_puts(b, ",\"metadata\":");
	(void)buf_puts(b, whole && l->metadata ? l->metadata : "null");
	view_time(b, ",\"createdAt\":", l->created_ns);
	view_time(b, ",\"updatedAt\":", l->updated_ns);
	(void)buf_putc(b, '}');
}
