#include "store/lease.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/sql.h"

static const char *const names[LEASE_STATE_COUNT] = {
    [LEASE_ACQUIRING] = "acquiring",
    [LEASE_ACTIVE] = "active",
    [LEASE_KEPT] = "kept",
    [LEASE_RECOVERABLE] = "recoverable",
    [LEASE_RECOVERING] = "recovering",
    [LEASE_CLEANUP] = "cleanup",
    [LEASE_RELEASED] = "released",
};

#define COLUMNS                                                                         \
	"id,provider,env,workspace,state,owner_pid,owner_start,owner_boot,monitor_pid," \
	"monitor_start,created_ns,updated_ns,expires_ns,spec,pending"

const char *lease_state_name(enum lease_state s)
{
	return names[s];
}

void lease_row_done(struct lease_row *l)
{
	free(l->spec);
	l->spec = NULL;
}

int lease_add(struct db *s, const struct lease_row *l, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "add lease", e,
			    "INSERT INTO leases(" COLUMNS
			    ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?11,?12,?13,0)",
			    "sssssiisiiiis", l->id, l->provider, l->env, l->workspace,
			    names[l->state], (int64_t)l->owner.pid, (int64_t)l->owner.start,
			    l->owner.boot, (int64_t)l->monitor.pid, (int64_t)l->monitor.start,
			    clock_real_ns(), l->expires_ns, l->spec ? l->spec : "{}");

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}

static int load(struct sql *q, struct lease_row *l, struct err *e)
{
	bool oom = false;
	char state[16];

	*l = (struct lease_row){.state = LEASE_STATE_COUNT};
	sql_copy(q, 0, l->id, sizeof(l->id));
	sql_copy(q, 1, l->provider, sizeof(l->provider));
	sql_copy(q, 2, l->env, sizeof(l->env));
	sql_copy(q, 3, l->workspace, sizeof(l->workspace));
	sql_copy(q, 4, state, sizeof(state));
	for (int i = 0; i < LEASE_STATE_COUNT; i++)
		if (strcmp(state, names[i]) == 0)
			l->state = (enum lease_state)i;
	l->owner.pid = (pid_t)sql_i64(q, 5);
	l->owner.start = (uint64_t)sql_i64(q, 6);
	sql_copy(q, 7, l->owner.boot, sizeof(l->owner.boot));
	l->monitor.pid = (pid_t)sql_i64(q, 8);
	l->monitor.start = (uint64_t)sql_i64(q, 9);
	memcpy(l->monitor.boot, l->owner.boot, sizeof(l->monitor.boot));
	l->created_ns = sql_i64(q, 10);
	l->updated_ns = sql_i64(q, 11);
	l->expires_ns = sql_i64(q, 12);
	l->spec = sql_dup(q, 13, &oom);
	l->pending = sql_i64(q, 14) != 0;
	if (oom)
		return err_set(e, ERR_NOMEM, "read lease: out of memory");
	if (l->state == LEASE_STATE_COUNT)
		return err_set(e, ERR_INTERNAL, "lease %s has the unknown state \"%s\"", l->id,
			       state);
	return 0;
}

int lease_get(struct db *s, const char *id, struct lease_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read lease", e, "SELECT " COLUMNS " FROM leases WHERE id=?1",
			    "s", id);

	*ret = (struct lease_row){.state = LEASE_RELEASED};
	if (r == 0)
		r = sql_step(&q, e);
	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "there is no lease %s", id);
	return load(&q, ret, e);
}

int lease_save(struct db *s, const struct lease_row *l, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r =
	    sql_prepare(s, &q, "save lease", e,
			"UPDATE leases SET state=?2, owner_pid=?3, owner_start=?4, owner_boot=?5,"
			" monitor_pid=?6, monitor_start=?7, expires_ns=?8, spec=?9, updated_ns=?10"
			" WHERE id=?1",
			"ssiisiiisi", l->id, names[l->state], (int64_t)l->owner.pid,
			(int64_t)l->owner.start, l->owner.boot, (int64_t)l->monitor.pid,
			(int64_t)l->monitor.start, l->expires_ns, l->spec ? l->spec : "{}",
			clock_real_ns());

	if (r == 0)
		r = sql_run(&q, e);
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "lease %s has disappeared from the state database",
			       l->id);
	return r < 0 ? r : 0;
}

int lease_claim(struct db *s, struct lease_row *l, enum lease_state to, const struct proc_id *owner,
		struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(
	    s, &q, "claim lease", e,
	    "UPDATE leases SET state=?5, owner_pid=?6, owner_start=?7, owner_boot=?8,"
	    " updated_ns=?9 WHERE id=?1 AND state=?2 AND owner_pid=?3 AND owner_start=?4"
	    " AND (state != 'kept' OR NOT EXISTS"
	    "  (SELECT 1 FROM runs WHERE lease_id=?1 AND runs.state='running'))",
	    "ssiisiisi", l->id, names[l->state], (int64_t)l->owner.pid, (int64_t)l->owner.start,
	    names[to], (int64_t)owner->pid, (int64_t)owner->start, owner->boot, clock_real_ns());

	if (r == 0)
		r = sql_run(&q, e);
	if (r <= 0)
		return r;
	l->state = to;
	l->owner = *owner;
	return 1;
}

int lease_use(struct db *s, const char *id, int64_t expires_ns, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "use lease", e,
			    "UPDATE leases SET pending=1, expires_ns=max(expires_ns,?2),"
			    " updated_ns=?3 WHERE id=?1 AND state='kept'",
			    "sii", id, expires_ns, clock_real_ns());

	return r < 0 ? r : sql_run(&q, e);
}

int lease_settled(struct db *s, const char *id, const char *run_id, int64_t turn_ns, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "settle lease", e,
			    "UPDATE leases SET pending=0 WHERE id=?1 AND NOT EXISTS"
			    " (SELECT 1 FROM runs WHERE lease_id=?1 AND id!=?2 AND (state='running'"
			    "  OR (state IN ('failed','interrupted') AND ended_ns>=?3)))",
			    "ssi", id, run_id, turn_ns);

	return r < 0 ? r : sql_run(&q, e);
}

int lease_lost(struct db *s, const char *id, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "give up lease", e,
			    "UPDATE leases SET state='recoverable', monitor_pid=0, monitor_start=0,"
			    " updated_ns=?2 WHERE id=?1 AND state='kept'",
			    "si", id, clock_real_ns());

	return r < 0 ? r : sql_run(&q, e);
}

int lease_list(struct db *s, struct lease_row **ret, size_t *ret_n, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct lease_row *v = NULL;
	size_t n = 0;
	int r =
	    sql_prepare(s, &q, "list leases", e,
			"SELECT " COLUMNS " FROM leases WHERE state != 'released' ORDER BY id", "");

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		struct lease_row *p = reallocarray(v, n + 1, sizeof(*v));

		if (!p) {
			r = err_set(e, ERR_NOMEM, "list leases: out of memory");
			break;
		}
		v = p;
		r = load(&q, &v[n], e);
		n++;
	}
	if (r < 0) {
		lease_list_free(v, n);
		return r;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

void lease_list_free(struct lease_row *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		lease_row_done(&v[i]);
	free(v);
}

int lease_remove(struct db *s, const char *id, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "remove lease", e, "DELETE FROM leases WHERE id=?1", "s", id);

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}
