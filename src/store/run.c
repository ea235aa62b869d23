#include "store/run.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/clock.h"
#include "store/sql.h"

static const char *const names[RUN_STATE_COUNT] = {
    [RUN_RUNNING] = "running",	       [RUN_FINISHED] = "finished",   [RUN_FAILED] = "failed",
    [RUN_INTERRUPTED] = "interrupted", [RUN_RECOVERED] = "recovered",
};

#define COLUMNS                                                                                 \
	"id,lease_id,workspace,command,state,phase,exit_status,error,stop_requested,owner_pid," \
	"owner_start,owner_boot,started_ns,ended_ns"

const char *run_state_name(enum run_state s)
{
	return names[s];
}

void run_row_done(struct run_row *r)
{
	free(r->command);
	free(r->error);
	r->command = NULL;
	r->error = NULL;
}

int run_add(struct db *s, const struct run_row *row, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r =
	    sql_prepare(s, &q, "add run", e,
			"INSERT INTO runs(id,lease_id,workspace,command,state,phase,owner_pid,"
			"owner_start,owner_boot,started_ns) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)",
			"ssssssiisi", row->id, row->lease_id, row->workspace, row->command,
			names[row->state], row->phase, (int64_t)row->owner.pid,
			(int64_t)row->owner.start, row->owner.boot, row->started_ns);

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}

int run_set_phase(struct db *s, const char *id, const char *phase, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "note phase", e, "UPDATE runs SET phase=?2 WHERE id=?1", "ss",
			    id, phase);

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}

int run_end(struct db *s, const struct run_row *row, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r =
	    sql_prepare(s, &q, "end run", e,
			"UPDATE runs SET state=?2, phase=?3, exit_status=?4, error=?5, ended_ns=?6"
			" WHERE id=?1 AND state='running'",
			"sssisi", row->id, names[row->state], row->phase, (int64_t)row->exit_status,
			row->error ? row->error : "", row->ended_ns);

	return r < 0 ? r : sql_run(&q, e);
}

int run_set_recovered(struct db *s, const char *id, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "note recovery", e,
			    "UPDATE runs SET state='recovered' WHERE id=?1 AND state IN"
			    " ('interrupted','failed','finished')",
			    "s", id);

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}

int run_request_stop(struct db *s, const char *id, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "request stop", e,
			    "UPDATE runs SET stop_requested=1 WHERE id=?1", "s", id);

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}

static int load(struct sql *q, struct run_row *w, struct err *e)
{
	bool oom = false;
	char state[16];

	*w = (struct run_row){.state = RUN_STATE_COUNT};
	sql_copy(q, 0, w->id, sizeof(w->id));
	sql_copy(q, 1, w->lease_id, sizeof(w->lease_id));
	sql_copy(q, 2, w->workspace, sizeof(w->workspace));
	w->command = sql_dup(q, 3, &oom);
	sql_copy(q, 4, state, sizeof(state));
	for (int i = 0; i < RUN_STATE_COUNT; i++)
		if (strcmp(state, names[i]) == 0)
			w->state = (enum run_state)i;
	sql_copy(q, 5, w->phase, sizeof(w->phase));
	w->exit_status = (int)sql_i64(q, 6);
	w->error = sql_dup(q, 7, &oom);
	w->stop_requested = sql_i64(q, 8) != 0;
	w->owner.pid = (pid_t)sql_i64(q, 9);
	w->owner.start = (uint64_t)sql_i64(q, 10);
	sql_copy(q, 11, w->owner.boot, sizeof(w->owner.boot));
	w->started_ns = sql_i64(q, 12);
	w->ended_ns = sql_i64(q, 13);
	if (oom)
		return err_set(e, ERR_NOMEM, "read run: out of memory");
	if (w->state == RUN_STATE_COUNT)
		return err_set(e, ERR_INTERNAL, "run %s has the unknown state \"%s\"", w->id,
			       state);
	return 0;
}

/* Runs a prepared query and loads every row. */
static int collect(struct sql *q, struct run_row **ret, size_t *ret_n, struct err *e)
{
	struct run_row *v = NULL;
	size_t n = 0;
	int r;

	while ((r = sql_step(q, e)) > 0) {
		struct run_row *p = reallocarray(v, n + 1, sizeof(*v));

		if (!p) {
			r = err_set(e, ERR_NOMEM, "list runs: out of memory");
			break;
		}
		v = p;
		r = load(q, &v[n], e);
		n++;
		if (r < 0)
			break;
	}
	if (r < 0) {
		run_list_free(v, n);
		return r;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

int run_get(struct db *s, const char *id, struct run_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r =
	    sql_prepare(s, &q, "read run", e, "SELECT " COLUMNS " FROM runs WHERE id=?1", "s", id);

	*ret = (struct run_row){.state = RUN_FAILED};
	if (r == 0)
		r = sql_step(&q, e);
	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "there is no run %s", id);
	return load(&q, ret, e);
}

int run_find(struct db *s, const char *word, struct run_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	bool last = strcmp(word, "last") == 0;
	struct run_row *v = NULL;
	size_t n = 0;
	int r;

	*ret = (struct run_row){.state = RUN_FAILED};
	if (!last && !id_is_prefix(word))
		return err_set(e, ERR_NOT_FOUND,
			       "\"%.40s\" is not a run: give an id from 'airlock ps -a', the "
			       "beginning of one, or \"last\"",
			       word);
	/* The alphabet of ids has no LIKE wildcard. */
	r = last ? sql_prepare(s, &q, "find run", e,
			       "SELECT " COLUMNS " FROM runs ORDER BY id DESC LIMIT 1", "")
		 : sql_prepare(s, &q, "find run", e,
			       "SELECT " COLUMNS
			       " FROM runs WHERE id LIKE ?1 || '%' ORDER BY id LIMIT 2",
			       "s", word);
	if (r == 0)
		r = collect(&q, &v, &n, e);
	if (r < 0)
		return r;
	if (n == 1) {
		*ret = v[0];
		free(v);
		return 0;
	}
	run_list_free(v, n);
	if (n == 0)
		return err_set(
		    e, ERR_NOT_FOUND,
		    last ? "there is no run yet" : "there is no run %s: see 'airlock ps -a'", word);
	return err_set(e, ERR_INVALID, "several runs begin with %s: give more letters", word);
}

int run_list(struct db *s, bool all, const char *lease_id, struct run_row **ret, size_t *ret_n,
	     struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r =
	    sql_prepare(s, &q, "list runs", e,
			"SELECT " COLUMNS " FROM runs WHERE (?1=1 OR state='running' OR lease_id IN"
			" (SELECT id FROM leases WHERE state NOT IN ('released','cleanup')))"
			" AND (?2 IS NULL OR lease_id=?2) ORDER BY id DESC",
			"is", (int64_t)all, lease_id);

	return r < 0 ? r : collect(&q, ret, ret_n, e);
}

int run_ids_ended(struct db *s, int64_t before_ns, char ***ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	char id[ID_LEN + 1];
	int r = sql_prepare(s, &q, "list old runs", e,
			    "SELECT id FROM runs WHERE ended_ns>0 AND ended_ns<?1 AND lease_id IN"
			    " (SELECT id FROM leases WHERE state='released') ORDER BY id",
			    "i", before_ns);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		sql_copy(&q, 0, id, sizeof(id));
		if (strv_add(ret, id) < 0)
			return err_set(e, ERR_NOMEM, "list old runs: out of memory");
	}
	return r;
}

void run_list_free(struct run_row *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		run_row_done(&v[i]);
	free(v);
}

int phase_add(struct db *s, const char *run_id, const struct phase_row *p, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "note phase", e,
			    "INSERT INTO phases(run_id,seq,name,started_ns,duration_ns,outcome)"
			    " VALUES(?1,?2,?3,?4,?5,?6)",
			    "sisiis", run_id, (int64_t)p->seq, p->name, p->started_ns,
			    p->duration_ns, p->outcome);

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}

int phase_list(struct db *s, const char *run_id, struct phase_row **ret, size_t *ret_n,
	       struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	_cleanup_free_ struct phase_row *v = NULL;
	size_t n = 0;
	int r =
	    sql_prepare(s, &q, "read phases", e,
			"SELECT seq,name,started_ns,duration_ns,outcome FROM phases WHERE run_id=?1"
			" ORDER BY seq",
			"s", run_id);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		struct phase_row *p = reallocarray(v, n + 1, sizeof(*v));

		if (!p)
			return err_set(e, ERR_NOMEM, "read phases: out of memory");
		v = p;
		v[n] = (struct phase_row){.seq = (int)sql_i64(&q, 0),
					  .started_ns = sql_i64(&q, 2),
					  .duration_ns = sql_i64(&q, 3)};
		sql_copy(&q, 1, v[n].name, sizeof(v[n].name));
		sql_copy(&q, 4, v[n].outcome, sizeof(v[n].outcome));
		n++;
	}
	if (r < 0)
		return r;
	*ret = TAKE_PTR(v);
	*ret_n = n;
	return 0;
}

int report_put(struct db *s, const char *run_id, const char *record, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "write report", e,
			    "INSERT INTO reports(run_id,record,written_ns) VALUES(?1,?2,?3)"
			    " ON CONFLICT(run_id) DO UPDATE SET record=?2, written_ns=?3",
			    "ssi", run_id, record, clock_real_ns());

	if (r == 0)
		r = sql_run(&q, e);
	return r < 0 ? r : 0;
}

int report_get(struct db *s, const char *run_id, char **ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	bool oom = false;
	int r = sql_prepare(s, &q, "read report", e, "SELECT record FROM reports WHERE run_id=?1",
			    "s", run_id);

	*ret = NULL;
	if (r == 0)
		r = sql_step(&q, e);
	if (r <= 0)
		return r;
	*ret = sql_dup(&q, 0, &oom);
	return oom ? err_set(e, ERR_NOMEM, "read report: out of memory") : 0;
}
