#include "store/activity.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/limits.h"
#include "store/sql.h"

int activity_add(struct db *s, const char *company_id, const struct activity_row *a, struct err *e)
{
	int r = sql_change(
	    s, "write activity", e,
	    "INSERT INTO activity(at_ns,company_id,actor_type,actor_id,agent_id,run_id,action,"
	    "entity_type,entity_id,details)"
	    " SELECT ?1,id,?3,?4,?5,?6,?7,?8,?9,?10 FROM companies WHERE ?2 IS NULL OR id=?2",
	    "isssssssss", clock_real_ns(), company_id, a->actor_type, a->actor_id, a->agent_id,
	    a->run_id, a->action, a->entity_type, a->entity_id, a->details);

	/*
	 * Who writes without end pushes out what it wrote itself, never what others did; looked at now and then, for it costs a walk
	 * over what there is; by chance, for by the number of the row one of several who write in turn would never be.
	 */
	if (r > 0)
		r = sql_change(
		    s, "prune activity", e,
		    "DELETE FROM activity WHERE company_id=?1 AND actor_type=?2 AND actor_id IS ?3"
		    " AND id <= CASE WHEN (SELECT random() & 255) THEN -1 ELSE"
		    " (SELECT id FROM activity WHERE company_id=?1 AND actor_type=?2 AND actor_id IS ?3"
		    "  ORDER BY id DESC LIMIT 1 OFFSET ?4) END",
		    "sssi", company_id, a->actor_type, a->actor_id, (int64_t)API_ACTIVITY_KEPT);
	return r < 0 ? r : 0;
}

int activity_each(struct db *s, const char *company_id, int64_t limit,
		  int (*cb)(void *arg, int64_t id, int64_t at_ns, const struct activity_row *a),
		  void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(
	    s, &q, "read activity", e,
	    "SELECT actor_type,actor_id,agent_id,run_id,action,entity_type,entity_id,details,id,at_ns"
	    " FROM activity WHERE company_id=?1 ORDER BY id DESC LIMIT ?2",
	    "si", company_id, limit);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		struct activity_row a = {sql_text(&q, 0), sql_text(&q, 1), sql_text(&q, 2),
					 sql_text(&q, 3), sql_text(&q, 4), sql_text(&q, 5),
					 sql_text(&q, 6), sql_text(&q, 7)};

		r = cb(arg, sql_i64(&q, 8), sql_i64(&q, 9), &a);
	}
	return r;
}

int setting_get(struct db *s, const char *key, char *ret, size_t n, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read setting", e, "SELECT value FROM settings WHERE key=?1",
			    "s", key);

	ret[0] = '\0';
	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		sql_copy(&q, 0, ret, n);
	return r < 0 ? r : 0;
}

int setting_put(struct db *s, const char *key, const char *value, struct err *e)
{
	int r;

	if (!value || !value[0])
		r = sql_change(s, "clear setting", e, "DELETE FROM settings WHERE key=?1", "s",
			       key);
	else
		r = sql_change(
		    s, "write setting", e,
		    "INSERT INTO settings VALUES(?1,?2) ON CONFLICT DO UPDATE SET value=?2", "ss",
		    key, value);
	return r < 0 ? r : 0;
}
