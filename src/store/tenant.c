#include "store/tenant.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "store/sql.h"

int tenant_check_name(const char *what, const char *name, struct err *e)
{
	size_t n = strlen(name), k;

	if (n == 0 || n > TENANT_NAME_MAX)
		return err_set(e, ERR_INVALID, "the name of a %s has 1 to %d bytes, not %zu", what,
			       TENANT_NAME_MAX, n);
	for (size_t i = 0; i < n; i += k) {
		k = str_printable_len(name + i, n - i);
		if (k == 0)
			return err_set(
			    e, ERR_INVALID,
			    "the name of a %s is UTF-8 without control characters: byte %zu is none",
			    what, i + 1);
	}
	return 0;
}

static int fresh(char id[UUID_LEN + 1], struct err *e)
{
	int r = uuid_new(id);

	return r < 0 ? err_sys(e, -r, "make an id") : 0;
}

/* ERR_EXISTS of the database says what index it was; a person wants to hear of the name. */
static int taken(int r, const char *what, const char *name, struct err *e)
{
	return r == -EEXIST ? err_set(e, ERR_EXISTS, "there is a %s \"%s\" already", what, name)
			    : r;
}

static int missing(const char *what, const char *word, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "there is no %s \"%.100s\": 'airlock %s list' shows them",
		       what, word, what);
}

/* --- companies ---------------------------------------------------------------------------- */

#define COMPANY "id, name, created_ns"

static void load_company(struct sql *q, struct company_row *c)
{
	sql_copy(q, 0, c->id, sizeof(c->id));
	sql_copy(q, 1, c->name, sizeof(c->name));
	c->created_ns = sql_i64(q, 2);
}

int company_add(struct db *s, struct company_row *c, struct err *e)
{
	int r = tenant_check_name("company", c->name, e);

	if (r == 0)
		r = fresh(c->id, e);
	if (r < 0)
		return r;
	c->created_ns = clock_real_ns();
	r = sql_change(s, "add company", e, "INSERT INTO companies VALUES(?1,?2,?3)", "ssi", c->id,
		       c->name, c->created_ns);
	return taken(r < 0 ? r : 0, "company", c->name, e);
}

int company_find(struct db *s, const char *word, struct company_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read company", e,
			    "SELECT " COMPANY " FROM companies WHERE id=?1 OR name=?1", "s", word);

	if (r == 0)
		r = sql_step(&q, e);
	if (r == 0)
		return missing("company", word, e);
	if (r > 0)
		load_company(&q, ret);
	return r < 0 ? r : 0;
}

int company_exists(struct db *s, const char *id, bool *ret, struct err *e)
{
	int64_t v;
	int r =
	    sql_number(s, "read company", &v, e, "SELECT 1 FROM companies WHERE id=?1", "s", id);

	*ret = r > 0;
	return r < 0 ? r : 0;
}

int company_only(struct db *s, char ret[UUID_LEN + 1], struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read company", e,
			    "SELECT min(id) FROM companies HAVING count(*)=1", "");

	ret[0] = '\0';
	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		sql_copy(&q, 0, ret, UUID_LEN + 1);
	return r < 0 ? r : 0;
}

int company_idle(struct db *s, const char *id, struct err *e)
{
	int64_t n, runs = 0;
	int r =
	    sql_number(s, "count leases", &n, e,
		       "SELECT count(*) FROM env_leases WHERE company_id=?1 AND"
		       " (status IN ('active','retained','pending_cleanup') OR (status='released'"
		       " AND policy='reuse_by_environment'))",
		       "s", id);

	/* Their rows go with the company, and what they do would go on: with nobody to cancel it. */
	if (r >= 0)
		r = sql_number(s, "count runs", &runs, e,
			       "SELECT count(*) FROM env_runs WHERE company_id=?1 AND"
			       " status IN ('queued','running')",
			       "s", id);
	if (r < 0)
		return r;
	if (runs)
		return err_set(e, ERR_CONFLICT,
			       "the company has %lld runs that are not over: cancel them first",
			       (long long)runs);
	return n ? err_set(e, ERR_CONFLICT,
			   "the company has %lld leases that are not over: destroy them first",
			   (long long)n)
		 : 0;
}

int company_remove(struct db *s, const char *id, struct err *e)
{
	int r = sql_begin(s, e);

	if (r < 0)
		return r;
	/* Looked at and removed at once: what begins in between would be removed too. */
	r = company_idle(s, id, e);
	if (r == 0)
		r = sql_change(s, "remove company", e, "DELETE FROM companies WHERE id=?1", "s",
			       id);
	return sql_end(s, r < 0 ? r : 0, e);
}

int company_each(struct db *s, int (*cb)(void *arg, const struct company_row *c), void *arg,
		 struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct company_row c = {0};
	int r = sql_prepare(s, &q, "list companies", e,
			    "SELECT " COMPANY " FROM companies ORDER BY created_ns, id", "");

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		load_company(&q, &c);
		r = cb(arg, &c);
	}
	return r;
}

/* --- users -------------------------------------------------------------------------------- */

#define USER "id, name, admin, created_ns"

static void load_user(struct sql *q, struct user_row *u)
{
	sql_copy(q, 0, u->id, sizeof(u->id));
	sql_copy(q, 1, u->name, sizeof(u->name));
	u->admin = sql_i64(q, 2) != 0;
	u->created_ns = sql_i64(q, 3);
}

int user_add(struct db *s, struct user_row *u, struct err *e)
{
	int r = tenant_check_name("user", u->name, e);

	if (r == 0)
		r = fresh(u->id, e);
	if (r < 0)
		return r;
	u->created_ns = clock_real_ns();
	r = sql_change(s, "add user", e, "INSERT INTO users VALUES(?1,?2,?3,?4)", "ssii", u->id,
		       u->name, (int64_t)u->admin, u->created_ns);
	return taken(r < 0 ? r : 0, "user", u->name, e);
}

int user_find(struct db *s, const char *word, struct user_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read user", e,
			    "SELECT " USER " FROM users WHERE id=?1 OR name=?1", "s", word);

	if (r == 0)
		r = sql_step(&q, e);
	if (r == 0)
		return missing("user", word, e);
	if (r > 0)
		load_user(&q, ret);
	return r < 0 ? r : 0;
}

int user_set_admin(struct db *s, const char *id, bool admin, struct err *e)
{
	int r = sql_change(s, "change user", e, "UPDATE users SET admin=?2 WHERE id=?1", "si", id,
			   (int64_t)admin);

	return r < 0 ? r : 0;
}

int user_remove(struct db *s, const char *id, struct err *e)
{
	int r = sql_change(s, "remove user", e, "DELETE FROM users WHERE id=?1", "s", id);

	return r < 0 ? r : 0;
}

int user_each(struct db *s, int (*cb)(void *arg, const struct user_row *u), void *arg,
	      struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct user_row u = {0};
	int r = sql_prepare(s, &q, "list users", e,
			    "SELECT " USER " FROM users ORDER BY created_ns, id", "");

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		load_user(&q, &u);
		r = cb(arg, &u);
	}
	return r;
}

int membership_put(struct db *s, const char *company_id, const char *user_id, const char *role,
		   struct err *e)
{
	int r;

	if (!role[0])
		r = sql_change(s, "remove membership", e,
			       "DELETE FROM memberships WHERE company_id=?1 AND user_id=?2", "ss",
			       company_id, user_id);
	else
		r = sql_change(s, "add membership", e,
			       "INSERT INTO memberships VALUES(?1,?2,?3,'active')"
			       " ON CONFLICT DO UPDATE SET role=?3, status='active'",
			       "sss", company_id, user_id, role);
	return r < 0 ? r : 0;
}

int membership_each(struct db *s, const char *user_id,
		    int (*cb)(void *arg, const struct membership_row *m), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct membership_row m = {0};
	int r = sql_prepare(s, &q, "list memberships", e,
			    "SELECT company_id, role, status FROM memberships"
			    " WHERE user_id=?1 AND status='active' ORDER BY company_id",
			    "s", user_id);

	(void)snprintf(m.user_id, sizeof(m.user_id), "%s", user_id);
	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		sql_copy(&q, 0, m.company_id, sizeof(m.company_id));
		sql_copy(&q, 1, m.role, sizeof(m.role));
		sql_copy(&q, 2, m.status, sizeof(m.status));
		r = cb(arg, &m);
	}
	return r;
}

int membership_role(struct db *s, const char *company_id, const char *user_id, char role[8],
		    struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read membership", e,
			    "SELECT role FROM memberships WHERE company_id=?1 AND user_id=?2"
			    " AND status='active'",
			    "ss", company_id, user_id);

	role[0] = '\0';
	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		sql_copy(&q, 0, role, 8);
	return r;
}

/* --- agents ------------------------------------------------------------------------------- */

#define AGENT                                                                                         \
	"id, company_id, name, adapter_type, status, responsible_user_id, environment_id, configure," \
	" created_ns, updated_ns"

/* A reference that is "" here is NULL there. */
static const char *ref(const char *id)
{
	return id[0] ? id : NULL;
}

static void load_agent(struct sql *q, struct agent_row *a)
{
	sql_copy(q, 0, a->id, sizeof(a->id));
	sql_copy(q, 1, a->company_id, sizeof(a->company_id));
	sql_copy(q, 2, a->name, sizeof(a->name));
	sql_copy(q, 3, a->adapter, sizeof(a->adapter));
	sql_copy(q, 4, a->status, sizeof(a->status));
	sql_copy(q, 5, a->user_id, sizeof(a->user_id));
	sql_copy(q, 6, a->environment_id, sizeof(a->environment_id));
	a->configure = sql_i64(q, 7) != 0;
	a->created_ns = sql_i64(q, 8);
	a->updated_ns = sql_i64(q, 9);
}

int agent_add(struct db *s, struct agent_row *a, struct err *e)
{
	int r = tenant_check_name("agent", a->name, e);

	if (r == 0)
		r = fresh(a->id, e);
	if (r < 0)
		return r;
	a->created_ns = a->updated_ns = clock_real_ns();
	r = sql_change(s, "add agent", e,
		       "INSERT INTO agents(" AGENT ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?9)",
		       "sssssssii", a->id, a->company_id, a->name, a->adapter, a->status,
		       ref(a->user_id), ref(a->environment_id), (int64_t)a->configure,
		       a->created_ns);
	return taken(r < 0 ? r : 0, "agent", a->name, e);
}

int agent_get(struct db *s, const char *id, struct agent_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read agent", e, "SELECT " AGENT " FROM agents WHERE id=?1", "s",
			    id);

	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		load_agent(&q, ret);
	return r;
}

int agent_find(struct db *s, const char *company_id, const char *word, struct agent_row *ret,
	       struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r =
	    sql_prepare(s, &q, "read agent", e,
			"SELECT " AGENT
			" FROM agents WHERE id=?1 OR (name=?1 AND (?2 IS NULL OR company_id=?2))"
			" ORDER BY created_ns LIMIT 2",
			"ss", word, company_id);

	if (r == 0)
		r = sql_step(&q, e);
	if (r == 0)
		return missing("agent", word, e);
	if (r > 0)
		load_agent(&q, ret);
	if (r > 0 && (r = sql_step(&q, e)) > 0)
		return err_set(e, ERR_INVALID,
			       "several companies have an agent \"%s\": name it by its id", word);
	return r < 0 ? r : 0;
}

int agent_save(struct db *s, struct agent_row *a, struct err *e)
{
	int r;

	a->updated_ns = clock_real_ns();
	r = sql_change(s, "save agent", e,
		       "UPDATE agents SET name=?2, adapter_type=?3, status=?4,"
		       " responsible_user_id=?5, environment_id=?6, configure=?7, updated_ns=?8"
		       " WHERE id=?1",
		       "ssssssii", a->id, a->name, a->adapter, a->status, ref(a->user_id),
		       ref(a->environment_id), (int64_t)a->configure, a->updated_ns);
	return taken(r < 0 ? r : 0, "agent", a->name, e);
}

int agent_set_status(struct db *s, const char *id, const char *status, struct err *e)
{
	int r =
	    sql_change(s, "save agent", e, "UPDATE agents SET status=?2, updated_ns=?3 WHERE id=?1",
		       "ssi", id, status, clock_real_ns());

	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "the agent is gone");
	return r < 0 ? r : 0;
}

int agent_each(struct db *s, const char *company_id,
	       int (*cb)(void *arg, const struct agent_row *a), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct agent_row a = {0};
	int r = sql_prepare(s, &q, "list agents", e,
			    "SELECT " AGENT " FROM agents WHERE ?1 IS NULL OR company_id=?1"
			    " ORDER BY company_id, name",
			    "s", company_id);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		load_agent(&q, &a);
		r = cb(arg, &a);
	}
	return r;
}

/* --- projects ----------------------------------------------------------------------------- */

#define PROJECT "id, company_id, name, environment_id, created_ns, updated_ns"

static void load_project(struct sql *q, struct project_row *p)
{
	sql_copy(q, 0, p->id, sizeof(p->id));
	sql_copy(q, 1, p->company_id, sizeof(p->company_id));
	sql_copy(q, 2, p->name, sizeof(p->name));
	sql_copy(q, 3, p->environment_id, sizeof(p->environment_id));
	p->created_ns = sql_i64(q, 4);
	p->updated_ns = sql_i64(q, 5);
}

int project_add(struct db *s, struct project_row *p, struct err *e)
{
	int r = tenant_check_name("project", p->name, e);

	if (r == 0)
		r = fresh(p->id, e);
	if (r < 0)
		return r;
	p->created_ns = p->updated_ns = clock_real_ns();
	r = sql_change(s, "add project", e,
		       "INSERT INTO projects(" PROJECT ") VALUES(?1,?2,?3,?4,?5,?5)", "ssssi",
		       p->id, p->company_id, p->name, ref(p->environment_id), p->created_ns);
	return taken(r < 0 ? r : 0, "project", p->name, e);
}

int project_get(struct db *s, const char *id, struct project_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read project", e,
			    "SELECT " PROJECT " FROM projects WHERE id=?1", "s", id);

	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		load_project(&q, ret);
	return r;
}

int project_save(struct db *s, struct project_row *p, struct err *e)
{
	int r;

	p->updated_ns = clock_real_ns();
	r = sql_change(s, "save project", e,
		       "UPDATE projects SET name=?2, environment_id=?3, updated_ns=?4 WHERE id=?1",
		       "sssi", p->id, p->name, ref(p->environment_id), p->updated_ns);
	return taken(r < 0 ? r : 0, "project", p->name, e);
}

int project_each(struct db *s, const char *company_id,
		 int (*cb)(void *arg, const struct project_row *p), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct project_row p = {0};
	int r = sql_prepare(s, &q, "list projects", e,
			    "SELECT " PROJECT " FROM projects WHERE ?1 IS NULL OR company_id=?1"
			    " ORDER BY company_id, name",
			    "s", company_id);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		load_project(&q, &p);
		r = cb(arg, &p);
	}
	return r;
}
