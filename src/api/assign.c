/*
 * assign.c: which environment is chosen where: instance default, agents, projects (api.md 8).
 *
 * Policy: permission first, then existence. Who is not of the object's company gets the same 404 as for an object
 * that is not there. An agent may choose among targets that exist and are permitted; it can create, change,
 * delete, probe or list none (AS-01, AS-03). A choice that cannot be used is refused here, never replaced later.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/adapters.h"
#include "api/api.h"
#include "api/view.h"
#include "base/str.h"
#include "store/activity.h"
#include "store/environment.h"
#include "store/tenant.h"

/* An environment that may be chosen. 0, 1 answered. allowed NULL: any driver; else the words for the refusal. */
struct choice {
	const char *id;
	const char *adapter; /* NULL: no adapter decides */
	const char *drivers; /* "local, ssh, sandbox"; NULL: any */
	bool agent_texts;
};

static int check_choice(struct call *c, const struct choice *want)
{
	_cleanup_environment_ struct environment_row row;
	struct err e = ERR_INIT;
	int r = environment_get(c->api->db, want->id, &row, &e);
	bool ok;

	if (r < 0)
		return (void)reply_failed(c, &e), 1;
	if (r == 0)
		return (void)reply_error(c, 422,
					 want->agent_texts ? "Selected environment was not found"
							   : "Environment not found."),
		       1;
	if (strcmp(row.status, "active") != 0)
		return (void)reply_error(c, 422, "Environment is archived."), 1;
	if (want->adapter) {
		ok = adapter_takes(want->adapter, row.driver);
		if (!ok)
			return (void)reply_errorf(c, 422,
						  "Environment driver \"%s\" is not allowed here",
						  row.driver),
			       1;
	} else if (want->drivers && strcmp(row.driver, "plugin") == 0) {
		return (void)reply_errorf(
			   c, 422,
			   "Environment driver \"%s\" is not allowed here. Allowed drivers: %s",
			   row.driver, want->drivers),
		       1;
	}
	return 0;
}

/* What an agent does, it does for a person: one who is there, and may write. 0, 1 answered. */
static int check_responsible(struct call *c, const char *company_id)
{
	char role[8] = "";
	struct err e = ERR_INIT;
	int r;

	if (c->actor.type != ACTOR_AGENT)
		return 0;
	/* A run token may name nobody, and then its agent's row decides; if that names nobody either, nobody answers for it. */
	r = c->actor.on_behalf[0]
		? membership_role(c->api->db, company_id, c->actor.on_behalf, role, &e)
		: 0;
	if (r < 0)
		return (void)reply_failed(c, &e), 1;
	if (r == 0)
		return (void)reply_coded(c, 403, "RESPONSIBLE_USER_UNAVAILABLE",
					 "The responsible user has no active membership", NULL),
		       1;
	if (strcmp(role, "viewer") == 0)
		return (void)reply_coded(c, 403, "RESPONSIBLE_USER_UNAUTHORIZED",
					 "The responsible user may only read", NULL),
		       1;
	return 0;
}

/* The id that a member of the body gives: -1 absent, 0 null, 1 an id in out. */
static int chosen(json_t *v, char out[UUID_LEN + 1])
{
	out[0] = '\0';
	if (!v)
		return -1;
	if (!json_is_string(v))
		return 0;
	return uuid_parse(json_string_value(v), json_string_length(v), out) ? 1 : 0;
}

/* --- instance ----------------------------------------------------------------------------- */

int h_settings_get(struct call *c)
{
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;

	if (setting_get(c->api->db, SETTING_DEFAULT_ENVIRONMENT, id, sizeof(id), &e) < 0)
		return reply_failed(c, &e);
	return reply_json(c, 200, json_pack("{s:s?}", "defaultEnvironmentId", id[0] ? id : NULL));
}

int h_settings_update(struct call *c)
{
	struct choice want = {.drivers = NULL};
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;
	int r, k = chosen(json_object_get(c->body, "defaultEnvironmentId"), id);

	if (k < 0)
		return h_settings_get(c);
	want.id = id;
	/* The check and the write are one transaction: what is chosen is still there when it is written. */
	if (db_begin(c->api->db, &e) < 0)
		return reply_failed(c, &e);
	r = k == 1 ? check_choice(c, &want) : 0;
	if (r == 0)
		r = setting_put(c->api->db, SETTING_DEFAULT_ENVIRONMENT, id, &e);
	if (r > 0) {
		(void)db_end(c->api->db, -ECANCELED, NULL);
		return 0;
	}
	if (db_end(c->api->db, r, &e) < 0)
		return reply_failed(c, &e);
	api_activity(c, NULL, "instance.settings.updated", "instance_settings", "default",
		     json_pack("{s:s?,s:[s]}", "defaultEnvironmentId", id[0] ? id : NULL,
			       "changedKeys", "defaultEnvironmentId"));
	return h_settings_get(c);
}

/* --- agents ------------------------------------------------------------------------------- */

static void view_agent(struct call *c, const struct agent_row *a)
{
	struct buf *b = &c->out;

	view_text(b, "{\"id\":", a->id);
	view_text(b, ",\"companyId\":", a->company_id);
	view_text(b, ",\"name\":", a->name);
	view_text(b, ",\"adapterType\":", a->adapter);
	view_text(b, ",\"status\":", a->status);
	view_text_or_null(b, ",\"responsibleUserId\":", a->user_id);
	view_text_or_null(b, ",\"defaultEnvironmentId\":", a->environment_id);
	view_time(b, ",\"createdAt\":", a->created_ns);
	view_time(b, ",\"updatedAt\":", a->updated_ns);
	(void)buf_putc(b, '}');
}

/* Of the actor's company, or none. */
static int find_agent(struct call *c, struct agent_row *a)
{
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;
	int r = call_uuid(c, 0, id) ? agent_get(c->api->db, id, a, &e) : 0;

	if (r < 0)
		return (void)reply_failed(c, &e), 1;
	if (r > 0 && actor_in_company(&c->actor, a->company_id))
		return 0;
	return (void)reply_error(c, 404, "Agent not found"), 1;
}

int h_agent_get(struct call *c)
{
	struct agent_row a = {0};

	if (find_agent(c, &a))
		return 0;
	view_agent(c, &a);
	return reply_out(c, 200);
}

/* 0, or 1 answered. */
static int may_configure(struct call *c, const struct agent_row *a)
{
	struct agent_row self = {0};
	struct err e = ERR_INIT;

	if (c->actor.type == ACTOR_BOARD)
		return actor_is_viewer(&c->actor, a->company_id)
			   ? ((void)reply_error(c, 403, "Viewer access is read-only"), 1)
			   : 0;
	if (check_responsible(c, a->company_id))
		return 1;
	if (strcmp(c->actor.agent_id, a->id) == 0)
		return 0;
	if (agent_get(c->api->db, c->actor.agent_id, &self, &e) > 0 && self.configure)
		return 0;
	return (void)reply_error(c, 403, "This agent may not configure other agents"), 1;
}

/* *ret_changed: there is something to write and to tell of. An agent may ask for that all day, so nothing else is. */
static int change_agent(struct call *c, struct agent_row *a, bool *ret_changed, struct err *e)
{
	const char *type = json_string_value(json_object_get(c->body, "adapterType"));
	char id[UUID_LEN + 1];
	int r, k = chosen(json_object_get(c->body, "defaultEnvironmentId"), id);
	struct agent_row old;
	struct choice want;

	r = find_agent(c, a);
	old = *a;
	if (r == 0)
		r = may_configure(c, a);
	if (r != 0)
		return r;
	if (type && !adapter_known(type))
		return (void)reply_error(c, 422, "This adapter type is not known"), 1;
	/* What instructs or configures an agent beyond its place is not its own to change. */
	if (c->actor.type == ACTOR_AGENT &&
	    ((type && strcmp(type, a->adapter) != 0) ||
	     json_object_size(json_object_get(c->body, "adapterConfig"))))
		return (void)reply_error(c, 403, "Agents cannot change adapter configuration"), 1;
	if (type)
		(void)snprintf(a->adapter, sizeof(a->adapter), "%s", type);
	if (k >= 0)
		memcpy(a->environment_id, id, sizeof(id));
	/* Against the new adapter, also when only the adapter changes. */
	want = (struct choice){.id = a->environment_id, .adapter = a->adapter, .agent_texts = true};
	if (a->environment_id[0] && check_choice(c, &want))
		return 1;
	*ret_changed = strcmp(old.adapter, a->adapter) != 0 ||
		       strcmp(old.environment_id, a->environment_id) != 0;
	return *ret_changed ? agent_save(c->api->db, a, e) : 0;
}

static int ends(struct call *c, int r, struct err *e)
{
	if (r > 0) {
		(void)db_end(c->api->db, -ECANCELED, NULL);
		return 1;
	}
	return db_end(c->api->db, r, e) < 0 ? ((void)reply_failed(c, e), 1) : 0;
}

int h_agent_update(struct call *c)
{
	struct agent_row a = {0};
	struct err e = ERR_INIT;
	bool changed = false;

	if (db_begin(c->api->db, &e) < 0)
		return reply_failed(c, &e);
	if (ends(c, change_agent(c, &a, &changed, &e), &e))
		return 0;
	if (changed)
		api_activity(c, a.company_id, "agent.updated", "agent", a.id,
			     json_pack("{s:s?,s:s}", "defaultEnvironmentId",
				       a.environment_id[0] ? a.environment_id : NULL, "adapterType",
				       a.adapter));
	view_agent(c, &a);
	return reply_out(c, 200);
}

/* --- projects ----------------------------------------------------------------------------- */

static void view_project(struct call *c, const struct project_row *p)
{
	struct buf *b = &c->out;

	view_text(b, "{\"id\":", p->id);
	view_text(b, ",\"companyId\":", p->company_id);
	view_text(b, ",\"name\":", p->name);
	view_text_or_null(b,
			  ",\"executionWorkspacePolicy\":{\"environmentId\":", p->environment_id);
	view_time(b, "},\"createdAt\":", p->created_ns);
	view_time(b, ",\"updatedAt\":", p->updated_ns);
	(void)buf_putc(b, '}');
}

static int find_project(struct call *c, struct project_row *p)
{
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;
	int r = call_uuid(c, 0, id) ? project_get(c->api->db, id, p, &e) : 0;

	if (r < 0)
		return (void)reply_failed(c, &e), 1;
	if (r > 0 && actor_in_company(&c->actor, p->company_id))
		return 0;
	return (void)reply_error(c, 404, "Project not found"), 1;
}

int h_project_get(struct call *c)
{
	struct project_row p = {0};

	if (find_project(c, &p))
		return 0;
	view_project(c, &p);
	return reply_out(c, 200);
}

static int change_project(struct call *c, struct project_row *p, bool *ret_changed, struct err *e)
{
	static const char *const commands[] = {"provisionCommand", "runtimeProvisionCommand",
					       "teardownCommand", "cleanupCommand"};
	json_t *policy = json_object_get(c->body, "executionWorkspacePolicy"),
	       *strategy = json_object_get(policy, "workspaceStrategy");
	struct choice want = {.drivers = "local, ssh, sandbox"};
	char id[UUID_LEN + 1];
	const char *key;
	json_t *v;
	int r = find_project(c, p), k;

	if (r != 0)
		return r;
	if (actor_is_viewer(&c->actor, p->company_id))
		return (void)reply_error(c, 403, "Viewer access is read-only"), 1;
	if (check_responsible(c, p->company_id))
		return 1;
	for (size_t i = 0; c->actor.type == ACTOR_AGENT && i < sizeof(commands) / sizeof(*commands);
	     i++)
		if (json_object_get(strategy, commands[i]))
			return (void)reply_errorf(
				   c, 403,
				   "Agent keys cannot modify host-executed workspace commands "
				   "(executionWorkspacePolicy.workspaceStrategy.%s).",
				   commands[i]),
			       1;
	/* Nothing else of a policy is kept here, so nothing else is taken. */
	json_object_foreach(policy, key, v)
	{
		if (strcmp(key, "environmentId") != 0)
			return (void)reply_errorf(
				   c, 422,
				   "executionWorkspacePolicy.%.*s is not kept by this server",
				   str_fit(key, 60), key),
			       1;
	}
	if (!policy)
		return 0;
	v = json_object_get(policy, "environmentId");
	k = chosen(v, id);
	if (json_is_object(policy) && (k < 0 || (k == 0 && !json_is_null(v))))
		return (void)reply_error(
			   c, 422, "executionWorkspacePolicy.environmentId is a UUID or null"),
		       1;
	want.id = id;
	if (id[0] && check_choice(c, &want))
		return 1;
	*ret_changed = strcmp(p->environment_id, id) != 0;
	memcpy(p->environment_id, id, sizeof(id));
	return *ret_changed ? project_save(c->api->db, p, e) : 0;
}

int h_project_update(struct call *c)
{
	struct project_row p = {0};
	struct err e = ERR_INIT;
	bool changed = false;

	if (db_begin(c->api->db, &e) < 0)
		return reply_failed(c, &e);
	if (ends(c, change_project(c, &p, &changed, &e), &e))
		return 0;
	if (changed)
		api_activity(c, p.company_id, "project.updated", "project", p.id,
			     json_pack("{s:s?}", "environmentId",
				       p.environment_id[0] ? p.environment_id : NULL));
	view_project(c, &p);
	return reply_out(c, 200);
}
