#include "api/secrets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/envheld.h"
#include "api/envwrite.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "store/tenant.h"

int secret_store(struct api *a, const struct secret_new *s, char id[UUID_LEN + 1], struct err *e)
{
	_cleanup_free_ char *sealed = NULL;
	struct secret_row row = {0};
	int r = uuid_new(row.id);

	if (r < 0)
		return err_sys(e, -r, "make an id");
	(void)snprintf(row.company_id, sizeof(row.company_id), "%s", s->company_id);
	(void)snprintf(row.name, sizeof(row.name), "%s", s->name);
	(void)snprintf(row.description, sizeof(row.description), "%s", s->description);
	(void)snprintf(row.made_for, sizeof(row.made_for), "%s", s->made_for ? s->made_for : "");
	r = seal_put(&a->seal, row.id, 1, s->value, &sealed, e);
	if (r == 0)
		r = secret_add(a->db, &row, a->seal.v[0].id, sealed, e);
	memcpy(id, row.id, sizeof(row.id));
	return r;
}

static void note(struct db *db, const struct secret_use *u, int64_t version, const char *code)
{
	char text[24];
	struct secret_event v = {u->company_id,
				 u->secret_id,
				 u->consumer,
				 u->actor,
				 u->path,
				 text,
				 code ? "denied" : "resolved",
				 code};
	struct err e = ERR_INIT;

	(void)snprintf(text, sizeof(text), "%lld", (long long)version);
	if (secret_event_add(db, &v, &e) < 0)
		(void)fprintf(stderr, "airlockd: %s\n", e.text);
}

int secret_resolve(struct db *db, const struct seal *keys, const struct secret_use *u, char **ret,
		   const char **ret_code, struct err *e)
{
	_cleanup_free_ char *sealed = NULL;
	char key[SECRET_KEY_ID_LEN + 1];
	struct secret_row row = {0};
	int64_t version = u->version;
	const char *code = NULL;
	int r = secret_get(db, u->secret_id, &row, e);

	*ret = NULL;
	if (r < 0)
		return r;
	if (r == 0)
		code = "secret_deleted";
	else if (strcmp(row.company_id, u->company_id) != 0)
		code = "secret_scope_invalid";
	else if (strcmp(row.status, "active") != 0)
		code = "secret_inactive";
	else if ((r = binding_exists(db, u->company_id, u->secret_id, u->target_id, u->path, e)) ==
		 0)
		code = "binding_missing";
	if (!code && r > 0) {
		r = secret_sealed(db, u->secret_id, u->version, key, &sealed, &version, e);
		if (r == 0)
			code = "version_missing";
		else if (r > 0)
			r = seal_get(keys, u->secret_id, version, sealed, ret, e);
	}
	note(db, u, version, code ? code : r < 0 ? "failed" : NULL);
	*ret_code = code;
	if (!code)
		return r < 0 ? r : 0;
	return err_set(e, ERR_PERMISSION, "Secret is not bound to environment:%s at %s (%s)",
		       u->target_id, u->path, code);
}

/* --- routes ------------------------------------------------------------------------------- */

/* The company of the path, which must exist; false: answered. */
static bool company(struct call *c, char out[UUID_LEN + 1])
{
	struct err e = ERR_INIT;
	bool there = false;

	if (call_uuid(c, 0, out) && company_exists(c->api->db, out, &there, &e) < 0) {
		(void)reply_failed(c, &e);
		return false;
	}
	if (!there)
		(void)reply_error(c, 404, "Company not found");
	return there;
}

static void put(struct call *c, const struct secret_row *s)
{
	struct buf *b = &c->out;

	view_text(b, "{\"id\":", s->id);
	view_text(b, ",\"companyId\":", s->company_id);
	view_text(b, ",\"name\":", s->name);
	view_text_or_null(b, ",\"description\":", s->description);
	view_text(b, ",\"status\":", s->status);
	(void)buf_putf(b, ",\"latestVersion\":%lld", (long long)s->latest);
	view_time(b, ",\"createdAt\":", s->created_ns);
	view_time(b, ",\"updatedAt\":", s->updated_ns);
	(void)buf_putc(b, '}');
}

static int put_one(void *arg, const struct secret_row *s)
{
	struct call *c = arg;

	(void)buf_putc(&c->out, c->out.len ? ',' : '[');
	put(c, s);
	return c->out.err;
}

int h_secret_list(struct call *c)
{
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;

	if (!company(c, id))
		return 0;
	if (secret_each(c->api->db, id, put_one, c, &e) < 0 && !c->out.err)
		return reply_failed(c, &e);
	(void)buf_puts(&c->out, c->out.len ? "]" : "[]");
	return reply_out(c, 200);
}

static const char *text_of(const struct call *c, const char *name)
{
	const char *v = json_string_value(json_object_get(c->body, name));

	return v ? v : "";
}

static int show(struct call *c, const char *id, unsigned status)
{
	struct secret_row row = {0};
	struct err e = ERR_INIT;

	if (secret_get(c->api->db, id, &row, &e) <= 0)
		return reply_failed(c, &e);
	put(c, &row);
	return reply_out(c, status);
}

int h_secret_create(struct call *c)
{
	char cid[UUID_LEN + 1], id[UUID_LEN + 1];
	struct secret_new s = {cid, text_of(c, "name"), text_of(c, "description"),
			       text_of(c, "value"), NULL};
	struct err e = ERR_INIT;
	int r;

	if (!company(c, cid))
		return 0;
	r = db_begin(c->api->db, &e);
	if (r == 0)
		r = db_end(c->api->db, secret_store(c->api, &s, id, &e), &e);
	if (r < 0)
		return e.code == ERR_EXISTS
			   ? reply_error(c, 409, "A secret with this name already exists.")
			   : reply_failed(c, &e);
	/* Without its name: who reads the log of a company may not read the names of its secrets. */
	api_activity(c, cid, "secret.created", "secret", id, json_object());
	return show(c, id, 201);
}

/* 0 and the row, or 1: answered. */
static int find(struct call *c, struct secret_row *row)
{
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;
	int r = call_uuid(c, 0, id) ? secret_get(c->api->db, id, row, &e) : 0;

	if (r > 0)
		return 0;
	(void)(r < 0 ? reply_failed(c, &e) : reply_error(c, 404, "Secret not found"));
	return 1;
}

int h_secret_renew(struct call *c)
{
	_cleanup_free_ char *sealed = NULL;
	struct secret_row row = {0};
	struct err e = ERR_INIT;
	int64_t version = 0;
	int r;

	if (find(c, &row))
		return 0;
	r = db_begin(c->api->db, &e);
	if (r < 0)
		return reply_failed(c, &e);
	/* The number is part of what is sealed, so it is read in the same transaction. */
	r = secret_get(c->api->db, row.id, &row, &e) > 0 ? 0 : -ENOENT;
	if (r == 0)
		r = seal_put(&c->api->seal, row.id, row.latest + 1, text_of(c, "value"), &sealed,
			     &e);
	if (r == 0)
		r = secret_renew(c->api->db, row.id, c->api->seal.v[0].id, sealed, &version, &e);
	r = db_end(c->api->db, r, &e);
	if (r < 0)
		return reply_failed(c, &e);
	api_activity(c, row.company_id, "secret.rotated", "secret", row.id,
		     json_pack("{s:I}", "version", (json_int_t)version));
	return show(c, row.id, 200);
}

int h_secret_remove(struct call *c)
{
	struct secret_row row = {0};
	struct err e = ERR_INIT;

	int needed;

	if (find(c, &row))
		return 0;
	needed =
	    envheld_refuse(c,
			   &(struct envheld_of){.company_id = row.company_id, .secret_id = row.id},
			   "delete the key", &e);
	if (needed > 0)
		return 0;
	if (needed < 0 || secret_remove(c->api->db, row.id, &e) < 0)
		return reply_failed(c, &e);
	api_activity(c, row.company_id, "secret.deleted", "secret", row.id, json_object());
	put(c, &row);
	return reply_out(c, 200);
}
