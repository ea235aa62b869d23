/*
 * envwrite.c: creating and changing an environment (api.md 3.3, 3.4).
 */
#include "api/envwrite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/envconfig.h"
#include "api/envheld.h"
#include "api/environments.h"
#include "api/jobs.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "store/tenant.h"

static void write_done(struct write *w)
{
	json_decref(w->config);
	json_decref(w->vars);
	json_decref(w->metadata);
	seal_wipe(&w->key);
}
#define _cleanup_write_ __attribute__((cleanup(write_done)))

/* Replaces a text of the row by a JSON value. false: out of memory or too long, answered. */
static bool put_json(struct write *w, char **at, json_t *v)
{
	char *text = v && !json_is_null(v) ? json_dumps(v, JSON_COMPACT) : NULL;

	if (v && !json_is_null(v) && (!text || strlen(text) > API_CONFIG_MAX)) {
		(void)reply_errorf(w->c, 400, "config, envVars and metadata have at most %d bytes",
				   API_CONFIG_MAX);
		free(text);
		return false;
	}
	free(*at);
	*at = text;
	return true;
}

static bool put_text(struct write *w, char **at, json_t *v)
{
	free(*at);
	*at = json_is_string(v) ? strdup(json_string_value(v)) : NULL;
	if (json_is_string(v) && !*at) {
		(void)reply_error(w->c, 503, "Out of memory, try again");
		return false;
	}
	return true;
}

/* Unique things, asked for where nobody can come between. 0, 1 answered, negative. */
static int check_unique(struct write *w)
{
	struct environment_row *row = w->row;
	char local[UUID_LEN + 1];
	bool taken = false;
	int r = 0;

	if (strcmp(row->driver, "local") == 0) {
		r = environment_local(w->c->api->db, local, &w->e);
		if (r > 0 && strcmp(local, row->id) != 0)
			return (void)reply_error(
				   w->c, 409,
				   "A local environment already exists for this instance."),
			       1;
	}
	if (r >= 0)
		r = environment_name_taken(w->c->api->db, row->name, row->id, &taken, &w->e);
	if (r == 0 && taken)
		return (void)reply_errorf(
			   w->c, 409,
			   "An environment named \"%s\" already exists for this instance.",
			   row->name),
		       1;
	if (r == 0 && row->managed && strcmp(row->driver, "sandbox") == 0)
		r = environment_managed_taken(w->c->api->db, row->id, &taken, &w->e);
	if (r == 0 && taken)
		return (void)reply_error(
			   w->c, 409,
			   "A platform-managed sandbox environment already exists for this instance."),
		       1;
	return r;
}

static int ends(struct write *w, int r)
{
	struct call *c = w->c;

	/* What was answered was a refusal: nothing of it stays. */
	r = db_end(c->api->db, r > 0 ? -ECANCELED : r, &w->e);
	if (r == -ECANCELED)
		return 1;
	return r < 0 ? ((void)reply_failed(c, &w->e), 1) : 0;
}

static bool marked(json_t *metadata)
{
	return json_is_true(json_object_get(metadata, META_MANAGED));
}

/* Everything of a creation that touches the database, in its transaction. */
static int create(struct write *w, json_t *body)
{
	struct call *c = w->c;
	json_t *config = json_object_get(body, "config"), *vars = json_object_get(body, "envVars");
	json_t *none = json_object();
	int r = check_unique(w);

	if (r == 0) {
		w->vars = envconfig_variables(c, vars ? vars : none, w->company);
		r = !w->vars;
	}
	if (r == 0) {
		w->config = envconfig_normalise(c, w->row->driver, config ? config : none,
						CONFIG_PERSIST, &w->key);
		r = !w->config;
	}
	json_decref(none);
	if (r == 0 && w->key)
		r = envkeys_store(w);
	if (r == 0)
		r = !put_json(w, &w->row->config, w->config) ||
		    !put_json(w, &w->row->env_vars, w->vars) ||
		    !put_json(w, &w->row->metadata, json_object_get(body, "metadata"));
	if (r == 0)
		r = environment_add(c->api->db, w->row, &w->e);
	return r == 0 ? envkeys_bind(w) : r;
}

static json_t *log_details(const struct environment_row *r)
{
	return json_pack("{s:s,s:s,s:s}", "name", r->name, "driver", r->driver, "status",
			 r->status);
}

int h_env_create(struct call *c)
{
	_cleanup_environment_ struct environment_row row = {0};
	_cleanup_write_ struct write w = {
	    .c = c, .row = &row, .set_config = true, .set_vars = true, .e = ERR_INIT};
	const char *status = json_string_value(json_object_get(c->body, "status"));
	json_t *metadata = json_object_get(c->body, "metadata");
	bool there = false;

	if (call_uuid(c, 0, w.company) && company_exists(c->api->db, w.company, &there, &w.e) < 0)
		return reply_failed(c, &w.e);
	if (!there)
		return reply_error(c, 404, "Company not found");
	if (json_is_object(metadata) && envconfig_metadata(c, metadata))
		return 0;
	(void)snprintf(row.driver, sizeof(row.driver), "%s",
		       json_string_value(json_object_get(c->body, "driver")));
	(void)snprintf(row.status, sizeof(row.status), "%s", status ? status : "active");
	row.managed = marked(metadata);
	if (uuid_new(row.id) < 0 || !put_text(&w, &row.name, json_object_get(c->body, "name")) ||
	    !put_text(&w, &row.description, json_object_get(c->body, "description")))
		return reply_error(c, 503, "Out of memory, try again");
	if (db_begin(c->api->db, &w.e) < 0)
		return reply_failed(c, &w.e);
	if (ends(&w, create(&w, c->body)))
		return 0;
	api_activity(c, NULL, "environment.created", "environment", row.id, log_details(&row));
	view_environment(c, &row);
	return reply_out(c, 201);
}

/* --- update ------------------------------------------------------------------------------- */

/* What a tenant may change of a row of the platform: its variables, and old markers to nothing. */
static bool floor_allows(const struct call *c, const struct environment_row *row)
{
	json_t *metadata = json_object_get(c->body, "metadata"), *v, *stored;
	bool sandbox = strcmp(row->driver, "sandbox") == 0, managed, k8s;
	const char *key;

	if (json_object_size(c->body) != 1)
		return false;
	stored = json_loads(row->metadata, 0, NULL);
	managed = json_is_true(json_object_get(stored, META_MANAGED));
	k8s = json_is_true(json_object_get(stored, META_MANAGED_K8S));
	json_decref(stored);
	if (json_object_get(c->body, "envVars"))
		return sandbox && managed && !k8s;
	/* A live slot: the local row, and the managed sandbox. */
	if (!json_is_object(metadata) || json_object_size(metadata) == 0 || !sandbox || managed)
		return false;
	json_object_foreach(metadata, key, v)
	{
		if ((strcmp(key, META_MANAGED) != 0 && strcmp(key, META_MANAGED_K8S) != 0) ||
		    !(json_is_null(v) || json_is_false(v)))
			return false;
	}
	return true;
}

/* Steps 2 to 4 of api.md 3.4. 0, 1 answered. */
static int may_update(struct write *w)
{
	struct call *c = w->c;
	json_t *metadata = json_object_get(c->body, "metadata"),
	       *driver = json_object_get(c->body, "driver");
	struct environment_blast blast;

	if (view_is_platform_row(c, w->row) && !floor_allows(c, w->row))
		return (void)reply_coded(
			   c, 403, "environment_platform_managed",
			   "Platform-provisioned environments are platform-managed on cloud-managed instances",
			   NULL),
		       1;
	if (json_is_object(metadata) && envconfig_metadata(c, metadata))
		return 1;
	if (!json_object_get(c->body, "config") &&
	    (!driver || strcmp(json_string_value(driver), w->row->driver) == 0))
		return 0;
	if (environment_blast(c->api->db, w->row->id, &blast, &w->e) < 0)
		return -EIO;
	if (!blast.pending)
		return 0;
	(void)reply_coded(
	    c, 409, "environment_pending_sandbox_cleanup",
	    "Cannot change the driver or provider config while a sandbox cleanup is pending. Wait for the "
	    "cleanup sweep to destroy the orphan sandbox, then retry.",
	    NULL);
	return 1;
}

/* Configuration: merged with the stored one unless the driver changes, judged, compared. */
static int update_config(struct write *w, const char *new_driver)
{
	struct call *c = w->c;
	json_t *stored = json_loads(w->row->config, 0, NULL),
	       *given = json_object_get(c->body, "config");
	bool other = strcmp(new_driver, w->row->driver) != 0;
	json_t *merged = other ? json_object() : json_deep_copy(stored);
	const char *old = envkeys_ref(stored);
	int r = 0;

	(void)snprintf(w->old_key, sizeof(w->old_key), "%s", old ? old : "");
	/* A stored ssh configuration names the reference; a raw key that comes takes its place. */
	(void)json_object_update(merged, given);
	w->config = envconfig_normalise(c, new_driver, merged, CONFIG_PERSIST, &w->key);
	json_decref(merged);
	if (!w->config)
		r = 1;
	else if (strcmp(w->row->driver, "ssh") == 0 &&
		 (other || w->key || envheld_moves(stored, w->config)))
		r = envheld_refuse(c, &(struct envheld_of){.environment_id = w->row->id},
				   "change the driver, the machine or the key", &w->e);
	if (r == 0 && w->key)
		r = envkeys_store(w);
	if (r == 0) {
		w->changed_target = other || !json_equal(stored, w->config);
		w->set_config = true;
		if (!put_json(w, &w->row->config, w->config))
			r = 1;
	}
	json_decref(stored);
	return r;
}

/* The archive token proves who archived; any word of a client about status or metadata ends that. */
static int drop_archive_token(struct write *w)
{
	json_t *m = w->row->metadata ? json_loads(w->row->metadata, 0, NULL) : NULL;
	int r = 0;

	if (json_object_get(m, META_ARCHIVE)) {
		(void)json_object_del(m, META_ARCHIVE);
		r = !put_json(w, &w->row->metadata, m);
	}
	json_decref(m);
	return r;
}

static int update_parts(struct write *w)
{
	struct call *c = w->c;
	struct environment_row *row = w->row;
	json_t *name = json_object_get(c->body, "name"),
	       *vars = json_object_get(c->body, "envVars"),
	       *status = json_object_get(c->body, "status"),
	       *driver = json_object_get(c->body, "driver"),
	       *metadata = json_object_get(c->body, "metadata"),
	       *description = json_object_get(c->body, "description");
	const char *to = driver ? json_string_value(driver) : row->driver;
	int r = 0;

	if (json_object_get(c->body, "config") || driver)
		r = update_config(w, to);
	if (driver)
		(void)snprintf(row->driver, sizeof(row->driver), "%s", to);
	if (r == 0 && vars) {
		w->vars = envconfig_variables(c, vars, w->company);
		w->set_vars = true;
		r = !w->vars || !put_json(w, &row->env_vars, w->vars);
	}
	if (r == 0 && name)
		r = !put_text(w, &row->name, name);
	if (r == 0 && description)
		r = !put_text(w, &row->description, description);
	if (r == 0 && status)
		(void)snprintf(row->status, sizeof(row->status), "%s", json_string_value(status));
	if (r == 0 && metadata) {
		r = !put_json(w, &row->metadata, metadata);
		row->managed = marked(metadata);
	} else if (r == 0 && status) {
		r = drop_archive_token(w);
	}
	return r;
}

static int update(struct write *w)
{
	struct call *c = w->c;
	int r = env_find(c, w->row);

	if (r == 0)
		r = may_update(w);
	if (r != 0)
		return r;
	if (json_object_get(c->body, "config") || json_object_get(c->body, "driver") ||
	    json_object_get(c->body, "envVars")) {
		r = env_company(c, w->row->id, w->company);
		if (r == 0 && !w->company[0]) {
			(void)reply_error(
			    c, 422,
			    "Environment secret management requires a companyId context during the "
			    "instance-scoped transition.");
			r = 1;
		}
	}
	if (r == 0)
		r = update_parts(w);
	if (r == 0)
		r = check_unique(w);
	if (r == 0 && json_object_size(c->body))
		r = environment_save(c->api->db, w->row, w->changed_target, &w->e);
	return r == 0 ? envkeys_bind(w) : r;
}

/* Names of what changed, never values. */
static json_t *update_log(const struct write *w)
{
	static const char *const shown[] = {"name", "driver", "status"};
	json_t *body = w->c->body, *j = json_object(), *fields = json_array();
	static const char *const all[] = {"config",   "description", "driver", "envVars",
					  "metadata", "name",	     "status"};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (json_object_get(body, all[i]))
			(void)json_array_append_new(fields, json_string(all[i]));
	(void)json_object_set_new(j, "changedFields", fields);
	for (size_t i = 0; i < ARRAY_LEN(shown); i++)
		if (json_object_get(body, shown[i]))
			(void)json_object_set(j, shown[i], json_object_get(body, shown[i]));
	if (json_object_get(body, "description"))
		(void)json_object_set_new(j, "descriptionChanged", json_true());
	if (w->config) {
		(void)json_object_set_new(j, "configChanged", json_true());
		(void)json_object_set_new(j, "configTopLevelKeyCount",
					  json_integer((json_int_t)json_object_size(w->config)));
	}
	if (json_object_get(body, "metadata")) {
		(void)json_object_set_new(j, "metadataChanged", json_true());
		(void)json_object_set_new(
		    j, "metadataTopLevelKeyCount",
		    json_integer((json_int_t)json_object_size(json_object_get(body, "metadata"))));
	}
	return j;
}

int h_env_update(struct call *c)
{
	_cleanup_environment_ struct environment_row row = {0};
	_cleanup_write_ struct write w = {.c = c, .row = &row, .e = ERR_INIT};

	/* From reading the row to writing it nobody else writes: no edit is lost (api.md 14). */
	if (db_begin(c->api->db, &w.e) < 0)
		return reply_failed(c, &w.e);
	if (ends(&w, update(&w)))
		return 0;
	/* An empty patch changes nothing and says nothing. */
	if (json_object_size(c->body))
		api_activity(c, NULL, "environment.updated", "environment", row.id, update_log(&w));
	/* Runs may have waited for this. */
	jobs_pump(c->api);
	/* Runs may have waited for this. */
	jobs_pump(c->api);
	view_environment(c, &row);
	return reply_out(c, 200);
}
