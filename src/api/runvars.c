#include "api/runvars.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/seal.h"
#include "api/secrets.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "store/vault.h"
#include "wire/jsonmember.h"

static bool is_ref(const json_t *v)
{
	return strcmp(json_member_text(v, "type"), "secret_ref") == 0;
}

void runvars_consumer(const char *run_id, char out[RUN_CONSUMER_MAX])
{
	(void)snprintf(out, RUN_CONSUMER_MAX, "run:%s", run_id);
}

static void path_of(const char *name, char out[300])
{
	(void)snprintf(out, 300, "env.%s", name);
}

int runvars_bound(struct db *db, const struct runvars_use *u, json_t *vars, const char **ret_name,
		  struct err *e)
{
	const char *name;
	json_t *v;

	json_object_foreach(vars, name, v)
	{
		char path[300];
		int r;

		if (!is_ref(v))
			continue;
		path_of(name, path);
		r = binding_exists(db, u->company_id, json_member_text(v, "secretId"),
				   u->environment_id, path, e);
		*ret_name = name;
		if (r <= 0)
			return r;
	}
	return 1;
}

static int open_one(struct db *db, const struct seal *keys, const struct runvars_use *u,
		    const char *name, const json_t *v, char **ret, struct err *e)
{
	char path[300], consumer[RUN_CONSUMER_MAX];
	const char *code;
	const struct secret_use use = {
	    .company_id = u->company_id,
	    .secret_id = json_member_text(v, "secretId"),
	    .target_id = u->environment_id,
	    .path = path,
	    .consumer = consumer,
	    .actor = u->actor,
	    .version = json_integer_value(json_object_get(v, "version")), /* "latest": 0 */
	};

	path_of(name, path);
	runvars_consumer(u->run_id, consumer);
	return secret_resolve(db, keys, &use, ret, &code, e);
}

static int add(char ***vars, const char *name, const char *value, struct err *e)
{
	char *pair = NULL;
	int r;

	if (asprintf(&pair, "%s=%s", name, value) < 0)
		pair = NULL;
	r = pair ? strv_add(vars, pair) : -1;
	seal_wipe(&pair);
	return r < 0 ? err_set(e, ERR_NOMEM, "run: out of memory") : 0;
}

static int make_all(struct db *db, const struct seal *keys, const struct runvars_use *u,
		    json_t *vars, char ***ret, struct err *e)
{
	const char *name;
	json_t *v;
	int r = 0;

	json_object_foreach(vars, name, v)
	{
		_cleanup_secret_ char *opened = NULL;
		const char *value = json_string_value(json_object_get(v, "value"));

		if (is_ref(v))
			r = open_one(db, keys, u, name, v, &opened, e);
		else if (!value)
			r = err_set(e, ERR_UNAVAILABLE,
				    "variable %s is neither a value nor a reference to a secret",
				    name);
		if (r == 0)
			r = add(ret, name, opened ? opened : value, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int runvars_make(struct state *st, struct db *db, const struct runvars_use *u, json_t *vars,
		 char ***ret, const char **ret_reason, struct err *e)
{
	const char *name = "";
	struct seal keys = {0};
	int r = runvars_bound(db, u, vars, &name, e);

	*ret_reason = "secret_unavailable";
	/* All of them before the first is opened: half of what is missing helps nobody. */
	if (r == 0) {
		*ret_reason = "secret_binding_missing";
		return err_set(e, ERR_PERMISSION, "variable %s: its secret is not bound", name);
	}
	if (r > 0)
		r = seal_open(&keys, st->dir, e);
	if (r == 0)
		r = make_all(db, &keys, u, vars, ret, e);
	seal_done(&keys);
	return r;
}

void runvars_free(char ***vars)
{
	for (char **v = *vars; v && *v; v++)
		sodium_memzero(*v, strlen(*v));
	strv_free(*vars);
	*vars = NULL;
}
