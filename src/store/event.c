#include "store/event.h"

#include "base/clock.h"
#include "store/sql.h"

int event_add(struct db *s, const struct event_row *v, struct err *e)
{
	int r =
	    sql_change(s, "note event", e,
		       "INSERT INTO events(at_ns,company_id,kind,entity_id,environment_id,status)"
		       " VALUES(?1,?2,?3,?4,?5,?6)",
		       "isssss", clock_real_ns(), v->company_id, v->kind, v->entity_id,
		       v->environment_id, v->status);

	return r < 0 ? r : 0;
}

int event_range(struct db *s, int64_t *ret_first, int64_t *ret_last, struct err *e)
{
	int r = sql_number(s, "read events", ret_first, e, "SELECT min(id) FROM events", "");

	if (r >= 0)
		r = sql_number(s, "read events", ret_last, e, "SELECT max(id) FROM events", "");
	return r < 0 ? r : 0;
}

int event_each(struct db *s, int64_t after, int64_t limit,
	       int (*cb)(void *arg, const struct event_row *v), void *arg, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(
	    s, &q, "read events", e,
	    "SELECT id,at_ns,company_id,kind,entity_id,environment_id,status FROM events"
	    " WHERE id>?1 ORDER BY id LIMIT ?2",
	    "ii", after, limit);

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		struct event_row v = {sql_i64(&q, 0),  sql_i64(&q, 1),	sql_text(&q, 2),
				      sql_text(&q, 3), sql_text(&q, 4), sql_text(&q, 5),
				      sql_text(&q, 6)};

		r = cb(arg, &v);
	}
	return r;
}
