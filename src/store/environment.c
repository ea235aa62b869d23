#include "store/environment.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/sql.h"

#define COLUMNS                                                                              \
	"id, name, description, driver, status, config, env_vars, metadata, proof, managed," \
	" created_ns, updated_ns"

void environment_row_done(struct environment_row *r)
{
	free(r->name);
	free(r->description);
	free(r->config);
	free(r->env_vars);
	free(r->metadata);
	free(r->proof);
	*r = (struct environment_row){0};
}

static void fixed(struct sql *q, struct environment_row *r)
{
	*r = (struct environment_row){.managed = sql_i64(q, 9) != 0,
				      .created_ns = sql_i64(q, 10),
				      .updated_ns = sql_i64(q, 11)};
	sql_copy(q, 0, r->id, sizeof(r->id));
	sql_copy(q, 3, r->driver, sizeof(r->driver));
	sql_copy(q, 4, r->status, sizeof(r->status));
}

/* Texts of the statement itself, until its next step: a list copies none. Not for environment_row_done. */
static void borrow(struct sql *q, struct environment_row *r)
{
	char **const at[] = {&r->name,	 &r->description, NULL,		NULL,
			     &r->config, &r->env_vars,	  &r->metadata, &r->proof};

	fixed(q, r);
	for (int i = 0; i < (int)ARRAY_LEN(at); i++)
		if (at[i])
			*at[i] = (char *)(uintptr_t)sql_text(q, i + 1);
}

static int load(struct sql *q, struct environment_row *r, struct err *e)
{
	bool oom = false;

	fixed(q, r);
	r->name = sql_dup(q, 1, &oom);
	r->description = sql_dup(q, 2, &oom);
	r->config = sql_dup(q, 5, &oom);
	r->env_vars = sql_dup(q, 6, &oom);
	r->metadata = sql_dup(q, 7, &oom);
	r->proof = sql_dup(q, 8, &oom);
	if (!oom)
		return 0;
	environment_row_done(r);
	return err_set(e, ERR_NOMEM, "read environment: out of memory");
}

int environment_get(struct db *s, const char *id, struct environment_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read environment", e,
			    "SELECT " COLUMNS " FROM envs WHERE id=?1", "s", id);

	*ret = (struct environment_row){0};
	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		r = load(&q, ret, e) < 0 ? -1 : 1;
	return r;
}

int environment_local(struct db *s, char ret_id[UUID_LEN + 1], struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read environment", e,
			    "SELECT id FROM envs WHERE driver='local'", "");

	ret_id[0] = '\0';
	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		sql_copy(&q, 0, ret_id, UUID_LEN + 1);
	return r;
}

int environment_name_taken(struct db *s, const char *name, const char *except, bool *ret,
			   struct err *e)
{
	int64_t v;
	int r = sql_number(s, "look for environment", &v, e,
			   "SELECT 1 FROM envs WHERE name=?1 AND id IS NOT ?2", "ss", name, except);

	*ret = r > 0;
	return r < 0 ? r : 0;
}

int environment_managed_taken(struct db *s, const char *except, bool *ret, struct err *e)
{
	int64_t v;
	int r =
	    sql_number(s, "look for environment", &v, e,
		       "SELECT 1 FROM envs WHERE managed=1 AND driver='sandbox' AND id IS NOT ?1",
		       "s", except);

	*ret = r > 0;
	return r < 0 ? r : 0;
}

int environment_add(struct db *s, struct environment_row *r, struct err *e)
{
	int k;

	r->created_ns = r->updated_ns = clock_real_ns();
	k = sql_change(s, "add environment", e,
		       "INSERT INTO envs(" COLUMNS
		       ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,NULL,?9,?10,?10)",
		       "ssssssssii", r->id, r->name, r->description, r->driver, r->status,
		       r->config, r->env_vars, r->metadata, (int64_t)r->managed, r->created_ns);
	return k < 0 ? k : 0;
}

int environment_save(struct db *s, struct environment_row *r, bool drop_proof, struct err *e)
{
	int64_t now = clock_real_ns();
	int k;

	/* Lists are ordered by it: never the same instant as the change before. */
	r->updated_ns = now > r->updated_ns ? now : r->updated_ns + 1;
	k = sql_change(s, "save environment", e,
		       "UPDATE envs SET name=?2, description=?3, driver=?4, status=?5, config=?6,"
		       " env_vars=?7, metadata=?8, managed=?9, updated_ns=?10,"
		       " proof=CASE WHEN ?11 THEN NULL ELSE proof END WHERE id=?1",
		       "ssssssssiii", r->id, r->name, r->description, r->driver, r->status,
		       r->config, r->env_vars, r->metadata, (int64_t)r->managed, r->updated_ns,
		       (int64_t)drop_proof);
	return k < 0 ? k : 0;
}

int environment_set_proof(struct db *s, const char *id, const char *driver, const char *config,
			  const char *proof, struct err *e)
{
	return sql_change(s, "record qualification", e,
			  "UPDATE envs SET proof=?4 WHERE id=?1 AND driver=?2 AND config=?3",
			  "ssss", id, driver, config, proof);
}

int environment_each(struct db *s, const struct environment_filter *f,
		     int (*cb)(void *arg, const struct environment_row *r), void *arg,
		     struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "list environments", e,
			    "SELECT " COLUMNS " FROM envs WHERE (?1 IS NULL OR status=?1)"
			    " AND (?2 IS NULL OR driver=?2)"
			    " ORDER BY updated_ns DESC, created_ns DESC LIMIT ?3 OFFSET ?4",
			    "ssii", f->status, f->driver, f->limit, f->offset);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		struct environment_row row;

		borrow(&q, &row);
		r = cb(arg, &row);
	}
	return r;
}

#define REUSABLE                                                                             \
	"SELECT 1 FROM env_leases WHERE environment_id=?1 AND policy='reuse_by_environment'" \
	" AND status IN ('active','released','retained')"
#define PENDING "SELECT 1 FROM env_leases WHERE environment_id=?1 AND status='pending_cleanup'"
#define OPEN_RUNS \
	"SELECT 1 FROM env_runs WHERE environment_id=?1 AND status IN ('queued','running')"
#define IS_DEFAULT "SELECT 1 FROM settings WHERE key='defaultEnvironmentId' AND value=?1"

int environment_blast(struct db *s, const char *id, struct environment_blast *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(
	    s, &q, "read what uses an environment", e,
	    "SELECT EXISTS(" IS_DEFAULT "), (SELECT count(*) FROM (" PENDING ")),"
	    " (SELECT count(*) FROM (" REUSABLE ")),"
	    " (SELECT count(*) FROM env_leases WHERE environment_id=?1 AND status='active'),"
	    " (SELECT count(*) FROM agents WHERE environment_id=?1),"
	    " (SELECT count(*) FROM projects WHERE environment_id=?1),"
	    " (SELECT count(*) FROM secret_bindings WHERE target_type='environment' AND target_id=?1),"
	    " (SELECT count(*) FROM (" OPEN_RUNS "))",
	    "s", id);

	*ret = (struct environment_blast){0};
	if (r == 0)
		r = sql_step(&q, e);
	if (r < 0)
		return r;
	*ret = (struct environment_blast){sql_i64(&q, 0) != 0, sql_i64(&q, 1), sql_i64(&q, 2),
					  sql_i64(&q, 3),      sql_i64(&q, 4), sql_i64(&q, 5),
					  sql_i64(&q, 6),      sql_i64(&q, 7), 0};
	return 0;
}

int environment_remove(struct db *s, const char *id, bool with_runs, struct err *e)
{
	return sql_change(
	    s, "delete environment", e,
	    "DELETE FROM envs WHERE id=?1 AND driver<>'local' AND NOT EXISTS(" IS_DEFAULT
	    ") AND NOT EXISTS(" PENDING ") AND NOT EXISTS(" REUSABLE
	    ") AND (?2 OR NOT EXISTS(" OPEN_RUNS "))",
	    "si", id, (int64_t)with_runs);
}

int environment_count(struct db *s, int64_t *ret, struct err *e)
{
	int r = sql_number(s, "count environments", ret, e, "SELECT count(*) FROM envs", "");

	return r < 0 ? r : 0;
}

int environment_ensure_local(struct db *s, struct err *e)
{
	char id[UUID_LEN + 1];
	int r = uuid_new(id);

	if (r < 0)
		return err_sys(e, -r, "make an id");
	/* Nothing happens when there is one, whatever its name, or when another driver has the name. */
	r = sql_change(
	    s, "add local environment", e,
	    "INSERT OR IGNORE INTO envs(" COLUMNS ") VALUES(?1,'Local',"
	    "'Default execution environment for Paperclip runs on this machine.','local','active',"
	    "'{}','{}','{\"managedByPaperclip\":true,\"defaultForInstance\":true}',NULL,1,?2,?2)",
	    "si", id, clock_real_ns());
	return r < 0 ? r : 0;
}
