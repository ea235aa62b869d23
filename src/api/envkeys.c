/*
 * envkeys.c: secrets that an environment uses: its raw key becomes one, references become bindings.
 *
 * A secret belongs to its company. Only the one that was made of an environment's own raw key goes with that, and only
 * when no binding of any environment names it any more: whoever shares it keeps it.
 */
#include <stdio.h>
#include <string.h>

#include "api/envheld.h"
#include "api/envwrite.h"
#include "api/secrets.h"
#include "base/str.h"
#include "engine/sweep.h"
#include "store/vault.h"

static void slug(const char *name, char out[49])
{
	size_t n = 0;

	for (; *name && n < 48; name++) {
		char ch = (char)(*name >= 'A' && *name <= 'Z' ? *name | 0x20 : *name);

		if ((ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9'))
			out[n++] = ch;
		else if (n && out[n - 1] != '-')
			out[n++] = '-';
	}
	out[n] = '\0';
}

int envkeys_store(struct write *w)
{
	struct api *a = w->c->api;
	char part[49], name[SECRET_NAME_MAX + 1], about[256], rnd[UUID_LEN + 1], id[UUID_LEN + 1];
	int r = uuid_new(rnd);

	if (r < 0)
		return r;
	slug(w->row->name, part);
	(void)snprintf(name, sizeof(name), "environment-ssh-%s-private-key-%.8s", part, rnd);
	/* The slug, not the name: a name could be cut inside a character. */
	(void)snprintf(about, sizeof(about), "Secret for %s private-key.", part);
	r = secret_store(a, &(struct secret_new){w->company, name, about, w->key, w->row->id}, id,
			 &w->e);
	if (r < 0)
		return r;
	(void)json_object_set_new(w->config, "privateKeySecretRef",
				  json_pack("{s:s,s:s,s:s}", "type", "secret_ref", "secretId", id,
					    "version", "latest"));
	return 0;
}

const char *envkeys_ref(json_t *config)
{
	return json_string_value(
	    json_object_get(json_object_get(config, "privateKeySecretRef"), "secretId"));
}

static int bind_one(struct write *w, const char *path, json_t *ref)
{
	const char *id = json_string_value(json_object_get(ref, "secretId"));
	json_t *v = json_object_get(ref, "version");
	struct secret_row s = {0};
	char version[24] = "latest";
	int r = secret_get(w->c->api->db, id, &s, &w->e);

	if (r == 0) {
		char text[200];

		(void)snprintf(text, sizeof(text), "Secret referenced at %.*s was not found",
			       str_fit(path, 150), path);
		(void)reply_coded(w->c, 422, "secret_missing", text, NULL);
		return 1;
	}
	if (json_is_integer(v))
		(void)snprintf(version, sizeof(version), "%lld", (long long)json_integer_value(v));
	/* Stored under the company that owns the secret, whichever the request named. */
	return r < 0
		   ? r
		   : binding_put(w->c->api->db, s.company_id, id, w->row->id, path, version, &w->e);
}

static int bind_all(struct write *w)
{
	struct db *db = w->c->api->db;
	const char *key;
	json_t *v;
	int r = 0;

	if (w->set_config) {
		r = binding_clear(db, w->row->id, false, &w->e);
		if (r == 0 && envkeys_ref(w->config))
			r = bind_one(w, "privateKeySecretRef",
				     json_object_get(w->config, "privateKeySecretRef"));
	}
	if (r == 0 && w->set_vars)
		r = binding_clear(db, w->row->id, true, &w->e);
	if (r != 0 || !w->set_vars)
		return r;
	json_object_foreach(w->vars, key, v)
	{
		char path[300];

		if (r != 0 || !json_object_get(v, "secretId"))
			continue;
		(void)snprintf(path, sizeof(path), "env.%s", key);
		r = bind_one(w, path, v);
	}
	return r;
}

int envkeys_bind(struct write *w)
{
	const char *now = w->config ? envkeys_ref(w->config) : NULL;
	int r = bind_all(w);

	if (r != 0 || !w->set_config || !w->old_key[0] || (now && strcmp(now, w->old_key) == 0))
		return r;
	r = secret_drop_unused(w->c->api->db, w->old_key, w->row->id, &w->e);
	return r < 0 ? r : 0;
}

int envkeys_drop(struct call *c, const struct environment_row *row, struct err *e)
{
	json_t *config = json_loads(row->config, 0, NULL);
	const char *id = envkeys_ref(config);
	int r = id ? secret_drop_unused(c->api->db, id, row->id, e) : 0;

	json_decref(config);
	return r < 0 ? r : 0;
}

struct owed {
	struct api *a;
	const char *env_id;
	int64_t n;
	struct err *e;
};

static int count_owed(void *arg, const char *name, const char *run_id)
{
	struct owed *o = arg;
	char env_id[UUID_LEN + 1];
	int r = envheld_owner(o->a, name, run_id, env_id, o->e);

	o->n += r == 0 && strcmp(env_id, o->env_id) == 0;
	return r;
}

int envkeys_owed(struct api *a, const char *env_id, int64_t *ret, struct err *e)
{
	struct owed o = {a, env_id, 0, e};
	int r = sweep_owed_each(&a->st, false, count_owed, &o, e);

	*ret = o.n;
	return r;
}
