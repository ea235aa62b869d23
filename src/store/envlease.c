#include "store/envlease.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/sql.h"

static const char *const names[EL_STATUS_COUNT] = {
    [EL_ACTIVE] = "active", [EL_RELEASED] = "released", [EL_EXPIRED] = "expired",
    [EL_FAILED] = "failed", [EL_RETAINED] = "retained", [EL_PENDING] = "pending_cleanup",
};

#define COLUMNS                                                                                       \
	"id, company_id, environment_id, workspace_id, issue_id, run_id, status, policy, provider,"   \
	" provider_lease_id, acquired_ns, used_ns, expires_ns, released_ns, failure_reason, cleanup," \
	" metadata, attempts, owner_pid, owner_start, owner_boot, monitor_pid, monitor_start,"        \
	" created_ns, updated_ns, monitor_boot"

const char *envlease_status_name(enum envlease_status s)
{
	return names[s];
}

enum envlease_status envlease_status_parse(const char *word)
{
	for (int i = 0; i < EL_STATUS_COUNT; i++)
		if (strcmp(names[i], word) == 0)
			return (enum envlease_status)i;
	return EL_STATUS_COUNT;
}

void envlease_row_done(struct envlease_row *l)
{
	free(l->metadata);
	l->metadata = NULL;
}

static const char *opt(const char *text)
{
	return text[0] ? text : NULL;
}

static int load(struct sql *q, struct envlease_row *l, struct err *e)
{
	bool oom = false;
	char status[20];

	*l = (struct envlease_row){0};
	sql_copy(q, 0, l->id, sizeof(l->id));
	sql_copy(q, 1, l->company_id, sizeof(l->company_id));
	sql_copy(q, 2, l->environment_id, sizeof(l->environment_id));
	sql_copy(q, 3, l->workspace_id, sizeof(l->workspace_id));
	sql_copy(q, 4, l->issue_id, sizeof(l->issue_id));
	sql_copy(q, 5, l->run_id, sizeof(l->run_id));
	sql_copy(q, 6, status, sizeof(status));
	l->status = envlease_status_parse(status);
	sql_copy(q, 7, l->policy, sizeof(l->policy));
	sql_copy(q, 8, l->provider, sizeof(l->provider));
	sql_copy(q, 9, l->provider_lease_id, sizeof(l->provider_lease_id));
	l->acquired_ns = sql_i64(q, 10);
	l->used_ns = sql_i64(q, 11);
	l->expires_ns = sql_i64(q, 12);
	l->released_ns = sql_i64(q, 13);
	sql_copy(q, 14, l->reason, sizeof(l->reason));
	sql_copy(q, 15, l->cleanup, sizeof(l->cleanup));
	l->metadata = sql_dup(q, 16, &oom);
	l->attempts = (int)sql_i64(q, 17);
	l->owner.pid = (pid_t)sql_i64(q, 18);
	l->owner.start = (uint64_t)sql_i64(q, 19);
	sql_copy(q, 20, l->owner.boot, sizeof(l->owner.boot));
	l->monitor.pid = (pid_t)sql_i64(q, 21);
	l->monitor.start = (uint64_t)sql_i64(q, 22);
	l->created_ns = sql_i64(q, 23);
	l->updated_ns = sql_i64(q, 24);
	sql_copy(q, 25, l->monitor.boot, sizeof(l->monitor.boot));
	return oom ? err_set(e, ERR_NOMEM, "read lease: out of memory") : 0;
}

int envlease_add(struct db *s, struct envlease_row *l, struct err *e)
{
	int r;

	l->created_ns = l->updated_ns = clock_real_ns();
	r = sql_change(s, "add lease", e,
		       "INSERT INTO env_leases(" COLUMNS
		       ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,"
		       "?18,?19,?20,?21,?22,?23,?24,?24,?25)",
		       "ssssssssssiiiisssiiisiiis", l->id, l->company_id, opt(l->environment_id),
		       opt(l->workspace_id), opt(l->issue_id), opt(l->run_id), names[l->status],
		       l->policy, opt(l->provider), opt(l->provider_lease_id), l->acquired_ns,
		       l->used_ns, l->expires_ns, l->released_ns, opt(l->reason), opt(l->cleanup),
		       l->metadata, (int64_t)l->attempts, (int64_t)l->owner.pid,
		       (int64_t)l->owner.start, l->owner.boot, (int64_t)l->monitor.pid,
		       (int64_t)l->monitor.start, l->created_ns, l->monitor.boot);
	return r < 0 ? r : 0;
}

static int first(struct sql *q, int r, struct envlease_row *ret, struct err *e)
{
	*ret = (struct envlease_row){0};
	if (r == 0)
		r = sql_step(q, e);
	if (r <= 0)
		return r;
	r = load(q, ret, e);
	return r < 0 ? r : 1;
}

int envlease_get(struct db *s, const char *id, struct envlease_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read lease", e,
			    "SELECT " COLUMNS " FROM env_leases WHERE id=?1", "s", id);

	return first(&q, r, ret, e);
}

int envlease_of_place(struct db *s, const char *provider_lease_id, struct envlease_row *ret,
		      struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read lease", e,
			    "SELECT " COLUMNS " FROM env_leases WHERE provider_lease_id=?1", "s",
			    provider_lease_id);

	return first(&q, r, ret, e);
}

int envlease_move(struct db *s, struct envlease_row *l, const struct envlease_row *from,
		  struct err *e)
{
	l->updated_ns = clock_real_ns();
	return sql_change(
	    s, "move lease", e,
	    "UPDATE env_leases SET status=?2, policy=?3, used_ns=?4, expires_ns=?5, released_ns=?6,"
	    " failure_reason=?7, cleanup=?8, metadata=?9, attempts=?10, owner_pid=?11, owner_start=?12,"
	    " owner_boot=?13, monitor_pid=?14, monitor_start=?15, updated_ns=?16, run_id=?21, monitor_boot=?22,"
	    " provider_lease_id=?23"
	    " WHERE id=?1 AND status=?17 AND attempts=?18 AND owner_pid=?19 AND owner_start=?20",
	    "sssiiisssiiisiiisiiisss", l->id, names[l->status], l->policy, l->used_ns,
	    l->expires_ns, l->released_ns, opt(l->reason), opt(l->cleanup), l->metadata,
	    (int64_t)l->attempts, (int64_t)l->owner.pid, (int64_t)l->owner.start, l->owner.boot,
	    (int64_t)l->monitor.pid, (int64_t)l->monitor.start, l->updated_ns, names[from->status],
	    (int64_t)from->attempts, (int64_t)from->owner.pid, (int64_t)from->owner.start,
	    opt(l->run_id), l->monitor.boot, opt(l->provider_lease_id));
}

/* Its storage is kept, for whoever resumes it. */
#define REUSABLE "(policy='reuse_by_environment' AND status IN ('active','released','retained'))"

static int walk(struct sql *q, int r, int (*cb)(void *arg, const struct envlease_row *l), void *arg,
		struct err *e)
{
	while (r >= 0 && (r = sql_step(q, e)) > 0) {
		_cleanup_envlease_ struct envlease_row l;

		r = load(q, &l, e);
		if (r == 0)
			r = cb(arg, &l);
	}
	return r;
}

int envlease_each(struct db *s, const struct envlease_filter *f,
		  int (*cb)(void *arg, const struct envlease_row *l), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r;

	if (f->reusable) {
		r = sql_prepare(s, &q, "list leases", e,
				"SELECT " COLUMNS " FROM env_leases WHERE environment_id=?1"
				" AND " REUSABLE " ORDER BY used_ns DESC, created_ns DESC LIMIT ?2",
				"si", f->environment_id, f->limit);
		return walk(&q, r, cb, arg, e);
	}
	/* Two statements: with one the index on the environment could not be used. */
	if (f->environment_id)
		r = sql_prepare(
		    s, &q, "list leases", e,
		    "SELECT " COLUMNS " FROM env_leases WHERE environment_id=?1"
		    " AND (?2 IS NULL OR company_id IN (SELECT company_id FROM memberships WHERE"
		    " user_id=?2 AND status='active')) AND (?3 IS NULL OR status=?3)"
		    " ORDER BY used_ns DESC, created_ns DESC LIMIT ?4 OFFSET ?5",
		    "sssii", f->environment_id, f->user_id, f->status, f->limit, f->offset);
	else
		r = sql_prepare(
		    s, &q, "list leases", e,
		    "SELECT " COLUMNS " FROM env_leases WHERE (?1 IS NULL OR company_id IN"
		    " (SELECT company_id FROM memberships WHERE user_id=?1 AND status='active'))"
		    " AND (?2 IS NULL OR status=?2) ORDER BY used_ns DESC, created_ns DESC LIMIT ?3"
		    " OFFSET ?4",
		    "ssii", f->user_id, f->status, f->limit, f->offset);
	return walk(&q, r, cb, arg, e);
}

int envlease_due(struct db *s, const struct envlease_due *d,
		 int (*cb)(void *arg, const struct envlease_row *l), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(
	    s, &q, "list leases to clean up", e,
	    "SELECT " COLUMNS " FROM env_leases WHERE (status='pending_cleanup' AND attempts<?3"
	    " AND (updated_ns<=?1 OR attempts<?5)) OR ((status='active' OR " REUSABLE
	    ") AND expires_ns>0 AND expires_ns<=?2)"
	    " ORDER BY updated_ns LIMIT ?4",
	    "iiiii", d->pending_before_ns, d->now_ns, d->attempts_max, d->limit, d->at_once);

	return walk(&q, r, cb, arg, e);
}

int envlease_counts(struct db *s, int64_t ret[EL_STATUS_COUNT], struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(
	    s, &q, "count leases", e,
	    "SELECT status, count(*) FROM env_leases WHERE status<>'released' OR " REUSABLE
	    " GROUP BY status",
	    "");

	memset(ret, 0, sizeof(int64_t) * EL_STATUS_COUNT);
	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		enum envlease_status k = envlease_status_parse(sql_text(&q, 0));

		if (k < EL_STATUS_COUNT)
			ret[k] = sql_i64(&q, 1);
	}
	return r;
}
