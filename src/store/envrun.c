#include "store/envrun.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/sql.h"

static const char *const names[ER_STATUS_COUNT] = {
    [ER_QUEUED] = "queued",	      [ER_RUNNING] = "running",	    [ER_SUCCEEDED] = "succeeded",
    [ER_FAILED] = "failed",	      [ER_TIMED_OUT] = "timed_out", [ER_CANCELLED] = "cancelled",
    [ER_INTERRUPTED] = "interrupted",
};

#define COLUMNS                                                                                 \
	"id, company_id, environment_id, root, path, command, review, kept, timeout_s, status," \
	" exit_status, reason, owner_pid, owner_start, owner_boot, created_ns, started_ns, ended_ns, user_id"

const char *envrun_status_name(enum envrun_status s)
{
	return names[s];
}

void envrun_row_done(struct envrun_row *r)
{
	free(r->command);
	r->command = NULL;
}

static enum envrun_status parse(const char *word)
{
	for (int i = 0; i < ER_STATUS_COUNT; i++)
		if (strcmp(names[i], word) == 0)
			return (enum envrun_status)i;
	return ER_FAILED;
}

static int load(struct sql *q, struct envrun_row *r, struct err *e)
{
	bool oom = false;
	char status[20];

	*r = (struct envrun_row){.review = sql_i64(q, 6) != 0,
				 .kept = sql_i64(q, 7) != 0,
				 .timeout_s = sql_i64(q, 8),
				 .exit_status = (int)sql_i64(q, 10),
				 .owner.pid = (pid_t)sql_i64(q, 12),
				 .owner.start = (uint64_t)sql_i64(q, 13),
				 .created_ns = sql_i64(q, 15),
				 .started_ns = sql_i64(q, 16),
				 .ended_ns = sql_i64(q, 17)};
	sql_copy(q, 0, r->id, sizeof(r->id));
	sql_copy(q, 1, r->company_id, sizeof(r->company_id));
	sql_copy(q, 2, r->environment_id, sizeof(r->environment_id));
	sql_copy(q, 3, r->root, sizeof(r->root));
	sql_copy(q, 4, r->path, sizeof(r->path));
	r->command = sql_dup(q, 5, &oom);
	sql_copy(q, 9, status, sizeof(status));
	r->status = parse(status);
	sql_copy(q, 11, r->reason, sizeof(r->reason));
	sql_copy(q, 14, r->owner.boot, sizeof(r->owner.boot));
	sql_copy(q, 18, r->user_id, sizeof(r->user_id));
	return oom ? err_set(e, ERR_NOMEM, "read run: out of memory") : 0;
}

int envrun_get(struct db *s, const char *id, struct envrun_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read run", e, "SELECT " COLUMNS " FROM env_runs WHERE id=?1",
			    "s", id);

	*ret = (struct envrun_row){0};
	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		r = load(&q, ret, e) < 0 ? -1 : 1;
	return r;
}

int envrun_add(struct db *s, struct envrun_row *r, struct err *e)
{
	int k;

	r->created_ns = clock_real_ns();
	r->status = ER_QUEUED;
	r->exit_status = -1;
	k = sql_change(
	    s, "add run", e,
	    "INSERT INTO env_runs(id, company_id, environment_id, root, path, command,"
	    " review, timeout_s, status, owner_pid, owner_start, owner_boot, created_ns, user_id)"
	    " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,'queued',?9,?10,?11,?12,?13)",
	    "ssssssiiiisis", r->id, r->company_id, r->environment_id, r->root, r->path, r->command,
	    (int64_t)r->review, r->timeout_s, (int64_t)r->owner.pid, (int64_t)r->owner.start,
	    r->owner.boot, r->created_ns, r->user_id);
	return k < 0 ? k : 0;
}

int envrun_take(struct db *s, const char *id, const struct proc_id *owner, struct err *e)
{
	return sql_change(s, "begin run", e,
			  "UPDATE env_runs SET status='running', owner_pid=?2, owner_start=?3,"
			  " owner_boot=?4, started_ns=?5 WHERE id=?1 AND status='queued'",
			  "siisi", id, (int64_t)owner->pid, (int64_t)owner->start, owner->boot,
			  clock_real_ns());
}

int envrun_end(struct db *s, const struct envrun_row *r, enum envrun_status from, struct err *e)
{
	return sql_change(s, "end run", e,
			  "UPDATE env_runs SET status=?2, exit_status=?3, reason=?4, kept=?5,"
			  " owner_pid=0, ended_ns=?6 WHERE id=?1 AND status=?7",
			  "ssisiis", r->id, names[r->status], (int64_t)r->exit_status,
			  r->reason[0] ? r->reason : NULL, (int64_t)r->kept, clock_real_ns(),
			  names[from]);
}

int envrun_recovered(struct db *s, const char *id, struct err *e)
{
	return sql_change(s, "note that the work is back", e,
			  "UPDATE env_runs SET kept=0 WHERE id=?1", "s", id);
}

int envrun_each(struct db *s, const struct envrun_filter *f,
		int (*cb)(void *arg, const struct envrun_row *r), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r =
	    sql_prepare(s, &q, "list runs", e,
			"SELECT " COLUMNS " FROM env_runs WHERE (?1 IS NULL OR environment_id=?1)"
			" AND (?2 IS NULL OR company_id IN (SELECT company_id FROM memberships"
			" WHERE user_id=?2 AND status='active'))"
			" AND (?3=0 OR status IN ('queued','running'))"
			" AND (?6=0 OR (kept AND status NOT IN ('queued','running')))"
			" ORDER BY created_ns DESC, id LIMIT ?4 OFFSET ?5",
			"ssiiii", f->environment_id, f->user_id, (int64_t)f->open, f->limit,
			f->offset, (int64_t)f->kept);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		_cleanup_envrun_ struct envrun_row row = {0};

		r = load(&q, &row, e);
		if (r == 0)
			r = cb(arg, &row);
	}
	return r;
}
