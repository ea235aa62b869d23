#include "store/vault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/sql.h"

#define SECRET                                                                       \
	"id, company_id, name, description, status, latest, created_ns, updated_ns," \
	" made_for"

static void load(struct sql *q, struct secret_row *r)
{
	sql_copy(q, 0, r->id, sizeof(r->id));
	sql_copy(q, 1, r->company_id, sizeof(r->company_id));
	sql_copy(q, 2, r->name, sizeof(r->name));
	sql_copy(q, 3, r->description, sizeof(r->description));
	sql_copy(q, 4, r->status, sizeof(r->status));
	r->latest = sql_i64(q, 5);
	r->created_ns = sql_i64(q, 6);
	r->updated_ns = sql_i64(q, 7);
	sql_copy(q, 8, r->made_for, sizeof(r->made_for));
}

static int add_version(struct db *s, const char *id, int64_t version, const char *key_id,
		       const char *sealed, struct err *e)
{
	int r = sql_change(s, "add secret version", e,
			   "INSERT INTO secret_versions VALUES(?1,?2,?3,?4,?5)", "sissi", id,
			   version, key_id, sealed, clock_real_ns());

	return r < 0 ? r : 0;
}

int secret_add(struct db *s, struct secret_row *r, const char *key_id, const char *sealed,
	       struct err *e)
{
	int k;

	r->created_ns = r->updated_ns = clock_real_ns();
	r->latest = 1;
	(void)snprintf(r->status, sizeof(r->status), "active");
	k = sql_change(s, "add secret", e,
		       "INSERT INTO secrets(" SECRET ") VALUES(?1,?2,?3,?4,'active',1,?5,?5,?6)",
		       "ssssis", r->id, r->company_id, r->name, r->description, r->created_ns,
		       r->made_for[0] ? r->made_for : NULL);
	if (k == -EEXIST)
		return err_set(e, ERR_EXISTS, "there is a secret \"%s\" already", r->name);
	return k < 0 ? k : add_version(s, r->id, 1, key_id, sealed, e);
}

int secret_get(struct db *s, const char *id, struct secret_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read secret", e, "SELECT " SECRET " FROM secrets WHERE id=?1",
			    "s", id);

	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		load(&q, ret);
	return r;
}

int secret_each(struct db *s, const char *company_id,
		int (*cb)(void *arg, const struct secret_row *r), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct secret_row row = {0};
	int r = sql_prepare(s, &q, "list secrets", e,
			    "SELECT " SECRET " FROM secrets WHERE company_id=?1 ORDER BY name", "s",
			    company_id);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		load(&q, &row);
		r = cb(arg, &row);
	}
	return r;
}

int secret_renew(struct db *s, const char *id, const char *key_id, const char *sealed,
		 int64_t *ret_version, struct err *e)
{
	int r = sql_number(s, "renew secret", ret_version, e,
			   "UPDATE secrets SET latest=latest+1, updated_ns=?2 WHERE id=?1"
			   " RETURNING latest",
			   "si", id, clock_real_ns());

	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "there is no secret %s", id);
	return r < 0 ? r : add_version(s, id, *ret_version, key_id, sealed, e);
}

int secret_remove(struct db *s, const char *id, struct err *e)
{
	int r = sql_change(s, "remove secret", e, "DELETE FROM secrets WHERE id=?1", "s", id);

	return r < 0 ? r : 0;
}

int secret_drop_unused(struct db *s, const char *id, const char *made_for, struct err *e)
{
	return sql_change(s, "remove secret", e,
			  "DELETE FROM secrets WHERE id=?1 AND made_for=?2 AND NOT EXISTS"
			  " (SELECT 1 FROM secret_bindings WHERE secret_id=?1)",
			  "ss", id, made_for);
}

int secret_sealed(struct db *s, const char *id, int64_t version, char key_id[SECRET_KEY_ID_LEN + 1],
		  char **ret_sealed, int64_t *ret_version, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	bool oom = false;
	int r = sql_prepare(s, &q, "read secret version", e,
			    "SELECT v.key_id, v.sealed, v.version FROM secret_versions v"
			    " JOIN secrets s ON s.id=v.secret_id WHERE s.id=?1"
			    " AND v.version=CASE WHEN ?2=0 THEN s.latest ELSE ?2 END",
			    "si", id, version);

	*ret_sealed = NULL;
	if (r == 0)
		r = sql_step(&q, e);
	if (r <= 0)
		return r;
	sql_copy(&q, 0, key_id, SECRET_KEY_ID_LEN + 1);
	*ret_sealed = sql_dup(&q, 1, &oom);
	*ret_version = sql_i64(&q, 2);
	return oom ? err_set(e, ERR_NOMEM, "read secret: out of memory") : 1;
}

int secret_keys(struct db *s, int (*cb)(void *arg, const char *key_id, int64_t n), void *arg,
		struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read keys of secrets", e,
			    "SELECT key_id, count(*) FROM secret_versions GROUP BY key_id", "");

	while (r >= 0 && (r = sql_step(&q, e)) > 0)
		r = cb(arg, sql_text(&q, 0), sql_i64(&q, 1));
	return r;
}

int secret_sealed_each(struct db *s,
		       int (*cb)(void *arg, const char *secret_id, int64_t version,
				 const char *sealed, struct err *e),
		       void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read sealed secrets", e,
			    "SELECT secret_id, version, sealed FROM secret_versions"
			    " ORDER BY secret_id, version",
			    ""),
	    k = 0;

	while (k == 0 && r >= 0 && (r = sql_step(&q, e)) > 0)
		k = cb(arg, sql_text(&q, 0), sql_i64(&q, 1), sql_text(&q, 2), e);
	return r < 0 ? r : k;
}

/* How many: 1, or 0. */
static int reseal_one(struct db *s, const struct secret_reseal *how, const char *id,
		      int64_t version, const char *was, struct err *e)
{
	_cleanup_free_ char *sealed = NULL;
	int r = how->cb(how->arg, id, version, was, &sealed, e);

	if (r)
		return r < 0 ? r : 0;
	return sql_change(s, "seal secret anew", e,
			  "UPDATE secret_versions SET sealed=?3, key_id=?4"
			  " WHERE secret_id=?1 AND version=?2",
			  "siss", id, version, sealed, how->key_id);
}

int secret_reseal(struct db *s, const struct secret_reseal *how, int64_t *ret_n, struct err *e)
{
	char id[UUID_LEN + 1] = "";
	int64_t version = 0;
	int r = sql_begin(s, e);

	if (r < 0)
		return r;
	*ret_n = 0;
	for (;;) {
		_cleanup_sql_ struct sql q = {0};

		/* One at a time: what is read must not change under the reader. */
		r = sql_prepare(
		    s, &q, "read sealed secrets", e,
		    "SELECT secret_id, version, sealed FROM secret_versions WHERE key_id<>?1"
		    " AND (secret_id, version) > (?2, ?3) ORDER BY secret_id, version LIMIT 1",
		    "ssi", how->key_id, id, version);
		if (r == 0)
			r = sql_step(&q, e);
		if (r <= 0)
			break;
		sql_copy(&q, 0, id, sizeof(id));
		version = sql_i64(&q, 1);
		r = reseal_one(s, how, id, version, sql_text(&q, 2), e);
		if (r < 0)
			break;
		*ret_n += r;
	}
	return sql_end(s, r, e);
}

/* --- bindings ----------------------------------------------------------------------------- */

int binding_put(struct db *s, const char *company_id, const char *secret_id, const char *target_id,
		const char *path, const char *version, struct err *e)
{
	int r = sql_change(s, "bind secret", e,
			   "INSERT INTO secret_bindings VALUES(?1,?2,'environment',?3,?4,?5)"
			   " ON CONFLICT DO UPDATE SET secret_id=?2, version=?5",
			   "sssss", company_id, secret_id, target_id, path, version);

	return r < 0 ? r : 0;
}

int binding_clear(struct db *s, const char *target_id, bool env, struct err *e)
{
	int r = sql_change(s, "unbind secrets", e,
			   "DELETE FROM secret_bindings WHERE target_type='environment' AND"
			   " target_id=?1 AND (substr(path,1,4)='env.')=?2",
			   "si", target_id, (int64_t)env);

	return r < 0 ? r : 0;
}

int binding_clear_all(struct db *s, const char *target_id, struct err *e)
{
	int r = sql_change(
	    s, "unbind secrets", e,
	    "DELETE FROM secret_bindings WHERE target_type='environment' AND target_id=?1", "s",
	    target_id);

	return r < 0 ? r : 0;
}

int binding_exists(struct db *s, const char *company_id, const char *secret_id,
		   const char *target_id, const char *path, struct err *e)
{
	int64_t v;

	return sql_number(s, "read binding", &v, e,
			  "SELECT 1 FROM secret_bindings WHERE company_id=?1 AND secret_id=?2 AND"
			  " target_type='environment' AND target_id=?3 AND path=?4",
			  "ssss", company_id, secret_id, target_id, path);
}

int binding_each(struct db *s, const char *target_id,
		 int (*cb)(void *arg, const struct binding_row *b), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(
	    s, &q, "list bindings", e,
	    "SELECT b.path, s.id, s.name, s.status, s.company_id, c.name FROM secret_bindings b"
	    " JOIN secrets s ON s.id=b.secret_id JOIN companies c ON c.id=s.company_id"
	    " WHERE b.target_type='environment' AND b.target_id=?1 ORDER BY b.path",
	    "s", target_id);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		struct binding_row b = {sql_text(&q, 0), sql_text(&q, 1), sql_text(&q, 2),
					sql_text(&q, 3), sql_text(&q, 4), sql_text(&q, 5)};

		r = cb(arg, &b);
	}
	return r;
}

int binding_company(struct db *s, const char *target_id, char ret[UUID_LEN + 1], bool *ret_several,
		    struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read bindings", e,
			    "SELECT DISTINCT company_id FROM secret_bindings"
			    " WHERE target_type='environment' AND target_id=?1 LIMIT 2",
			    "s", target_id);

	ret[0] = '\0';
	*ret_several = false;
	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		sql_copy(&q, 0, ret, UUID_LEN + 1);
	if (r > 0 && (r = sql_step(&q, e)) > 0) {
		*ret_several = true;
		ret[0] = '\0';
	}
	return r < 0 ? r : 0;
}

int binding_allows(struct db *s, const char *target_id, const char *company_id, bool *ret,
		   struct err *e)
{
	int64_t all = 0, own = 0;
	int r = sql_number(s, "read bindings", &all, e,
			   "SELECT count(*) FROM secret_bindings"
			   " WHERE target_type='environment' AND target_id=?1",
			   "s", target_id);

	if (r >= 0)
		r = sql_number(s, "read bindings", &own, e,
			       "SELECT count(*) FROM secret_bindings WHERE"
			       " target_type='environment' AND target_id=?1 AND company_id=?2",
			       "ss", target_id, company_id);
	*ret = r >= 0 && (!all || own);
	return r < 0 ? r : 0;
}

int secret_event_add(struct db *s, const struct secret_event *v, struct err *e)
{
	int r = sql_change(
	    s, "note use of secret", e,
	    "INSERT INTO secret_events(at_ns,company_id,secret_id,consumer,actor,path,version,"
	    "outcome,error_code) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)",
	    "issssssss", clock_real_ns(), v->company_id, v->secret_id, v->consumer, v->actor,
	    v->path, v->version, v->outcome, v->error_code);

	/*
	 * A secret that is used without end pushes out its own notes; secrets without end those that are oldest. Looked at now and
	 * then, by chance: by the number of the row those of two secrets in turn would never be.
	 */
	if (r > 0)
		r = sql_change(s, "prune notes of the use of secrets", e,
			       "DELETE FROM secret_events WHERE secret_id=?1 AND id <="
			       " CASE WHEN (SELECT random() & 63) THEN -1 ELSE"
			       " (SELECT id FROM secret_events WHERE secret_id=?1"
			       "  ORDER BY id DESC LIMIT 1 OFFSET ?2) END",
			       "si", v->secret_id, (int64_t)API_SECRET_EVENTS_KEPT);
	if (r >= 0)
		r = sql_change(s, "prune notes of the use of secrets", e,
			       "DELETE FROM secret_events WHERE id <= last_insert_rowid() - ?1",
			       "i", (int64_t)API_SECRET_EVENTS_ALL);
	return r < 0 ? r : 0;
}
