#include "store/env.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/sql.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

int env_check_name(const char *name, struct err *e)
{
	size_t n = strlen(name);

	if (n == 0 || n > NAME_MAX_LEN || strspn(name, LETTERS "._-") != n ||
	    strspn(name, LETTERS) == 0)
		return err_set(
		    e, ERR_INVALID,
		    "\"%.80s\" is not an environment name: 1 to %d letters, digits, '.', '_' "
		    "or '-', the first a letter or digit",
		    name, NAME_MAX_LEN);
	return 0;
}

void env_row_done(struct env_row *r)
{
	free(r->options);
	r->options = NULL;
}

int env_put(struct db *s, const char *name, const char *options, bool replace, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = env_check_name(name, e);

	if (r < 0)
		return r;
	if (strcmp(name, "native") == 0 || strcmp(name, "local") == 0)
		return err_set(e, ERR_EXISTS, "environment %s is built in and cannot be changed",
			       name);
	r = sql_prepare(s, &q, "save environment", e,
			replace ? "INSERT INTO environments VALUES(?1,?2,?3,?3) ON CONFLICT(name)"
				  " DO UPDATE SET options=?2, updated_ns=?3"
				: "INSERT OR IGNORE INTO environments VALUES(?1,?2,?3,?3)",
			"ssi", name, options, clock_real_ns());
	if (r == 0)
		r = sql_run(&q, e);
	if (r == 0)
		return err_set(
		    e, ERR_EXISTS,
		    "environment %s exists: 'airlock env rm %s' first, or create with --force",
		    name, name);
	return r < 0 ? r : 0;
}

static int load(struct sql *q, struct env_row *w, struct err *e)
{
	bool oom = false;

	*w = (struct env_row){.created_ns = sql_i64(q, 2), .updated_ns = sql_i64(q, 3)};
	sql_copy(q, 0, w->name, sizeof(w->name));
	w->options = sql_dup(q, 1, &oom);
	return oom ? err_set(e, ERR_NOMEM, "read environment: out of memory") : 0;
}

int env_get(struct db *s, const char *name, struct env_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read environment", e,
			    "SELECT * FROM environments WHERE name=?1", "s", name);

	*ret = (struct env_row){0};
	if (r == 0)
		r = sql_step(&q, e);
	if (r < 0)
		return r;
	if (r == 0)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "there is no environment \"%.80s\": 'airlock env list' shows what there is",
		    name);
	return load(&q, ret, e);
}

int env_list(struct db *s, struct env_row **ret, size_t *ret_n, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct env_row *v = NULL;
	size_t n = 0;
	int r = sql_prepare(s, &q, "list environments", e,
			    "SELECT * FROM environments ORDER BY name", "");

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		struct env_row *p = reallocarray(v, n + 1, sizeof(*v));

		if (!p) {
			r = err_set(e, ERR_NOMEM, "list environments: out of memory");
			break;
		}
		v = p;
		r = load(&q, &v[n], e);
		n++;
	}
	if (r < 0) {
		env_list_free(v, n);
		return r;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

void env_list_free(struct env_row *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		env_row_done(&v[i]);
	free(v);
}

int env_remove(struct db *s, const char *name, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "remove environment", e,
			    "DELETE FROM environments WHERE name=?1", "s", name);

	if (r == 0)
		r = sql_run(&q, e);
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "there is no environment \"%.80s\"", name);
	return r < 0 ? r : 0;
}
