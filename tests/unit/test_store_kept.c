/* What the daemon writes down without being asked does not grow without end: activity, uses of secrets, events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "store/activity.h"
#include "store/event.h"
#include "store/sql.h"
#include "store/tenant.h"
#include "store/vault.h"
#include "scratch.h"

/* Pruning comes by chance: the chance that none of so many calls does it is one in 10^13. */
#define LATE_ACTIVITY 8000
#define LATE_EVENTS 2000

static char dir[] = "/tmp/airlock-kept-XXXXXX";
static struct db *db;

static int setup(void **state)
{
	char path[PATH_MAX];

	(void)state;
	memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
	assert_non_null(scratch_dir(dir));
	(void)snprintf(path, sizeof(path), "%s/server.db", dir);
	assert_int_equal(db_open_server(path, &db, NULL), 0);
	assert_int_equal(sql_begin(db, NULL), 0);
	return 0;
}

static int teardown(void **state)
{
	static const char *const ends[] = {"", "-wal", "-shm", ".lock"};
	char path[PATH_MAX];

	(void)state;
	(void)sql_end(db, 0, NULL);
	db_close(db);
	for (size_t i = 0; i < 4; i++) {
		(void)snprintf(path, sizeof(path), "%s/server.db%s", dir, ends[i]);
		(void)unlink(path);
	}
	return rmdir(dir);
}

static int64_t number(const char *what)
{
	_cleanup_sql_ struct sql q = {0};

	assert_int_equal(sql_prepare(db, &q, "count", NULL, what, ""), 0);
	assert_int_equal(sql_step(&q, NULL), 1);
	return sql_i64(&q, 0);
}

/* Two who write in turn: each loses its own oldest lines, and a third that wrote once loses none. */
static void test_activity_of_each_actor(void **state)
{
	struct company_row c = {.name = "C"};
	struct activity_row a = {.actor_type = "user",
				 .actor_id = "quiet",
				 .action = "x",
				 .entity_type = "y",
				 .entity_id = "z",
				 .details = "{}"};

	(void)state;
	assert_int_equal(company_add(db, &c, NULL), 0);
	assert_int_equal(activity_add(db, c.id, &a, NULL), 0);
	for (int i = 0; i < API_ACTIVITY_KEPT + LATE_ACTIVITY; i++) {
		a.actor_id = "even";
		assert_int_equal(activity_add(db, c.id, &a, NULL), 0);
		a.actor_id = "odd";
		assert_int_equal(activity_add(db, c.id, &a, NULL), 0);
	}
	assert_int_equal(number("SELECT count(*) FROM activity WHERE actor_id='quiet'"), 1);
	assert_in_range(number("SELECT count(*) FROM activity WHERE actor_id='odd'"),
			API_ACTIVITY_KEPT, API_ACTIVITY_KEPT + LATE_ACTIVITY - 1);
	assert_in_range(number("SELECT count(*) FROM activity WHERE actor_id='even'"),
			API_ACTIVITY_KEPT, API_ACTIVITY_KEPT + LATE_ACTIVITY - 1);
	/* The newest ones. */
	assert_int_equal(number("SELECT max(id) FROM activity"),
			 1 + 2 * (API_ACTIVITY_KEPT + LATE_ACTIVITY));
}

static void use(const char *secret)
{
	struct secret_event v = {"c", secret, "run:1", "system", "env.A", "1", "resolved", NULL};

	assert_int_equal(secret_event_add(db, &v, NULL), 0);
}

static void test_uses_of_each_secret(void **state)
{
	(void)state;
	use("quiet");
	for (int i = 0; i < API_SECRET_EVENTS_KEPT + LATE_EVENTS; i++) {
		use("even");
		use("odd");
	}
	assert_int_equal(number("SELECT count(*) FROM secret_events WHERE secret_id='quiet'"), 1);
	assert_in_range(number("SELECT count(*) FROM secret_events WHERE secret_id='odd'"),
			API_SECRET_EVENTS_KEPT, API_SECRET_EVENTS_KEPT + LATE_EVENTS - 1);
	assert_in_range(number("SELECT count(*) FROM secret_events WHERE secret_id='even'"),
			API_SECRET_EVENTS_KEPT, API_SECRET_EVENTS_KEPT + LATE_EVENTS - 1);
}

static void test_uses_of_all_secrets(void **state)
{
	int64_t last;

	(void)state;
	use("first");
	assert_int_equal(sql_change(db, "skip", NULL, "UPDATE secret_events SET id=id+?1", "i",
				    (int64_t)API_SECRET_EVENTS_ALL - 2),
			 1);
	use("second");
	assert_int_equal(number("SELECT count(*) FROM secret_events"), 2);
	last = number("SELECT max(id) FROM secret_events");
	assert_int_equal(last, API_SECRET_EVENTS_ALL);
	assert_int_equal(sql_change(db, "skip", NULL, "UPDATE secret_events SET id=1 WHERE id=?1",
				    "i", last - 1),
			 1);
	use("third");
	assert_int_equal(number("SELECT count(*) FROM secret_events WHERE secret_id='first'"), 0);
	assert_int_equal(number("SELECT count(*) FROM secret_events"), 2);
}

/* Of events the newest EVENTS_KEPT, under numbers that are never used twice. */
static void test_events(void **state)
{
	const struct event_row v = {.kind = "probe", .entity_id = "e", .status = "ok"};
	int64_t first = 0, last = 0;

	(void)state;
	for (int i = 0; i < EVENTS_KEPT + 500; i++)
		assert_int_equal(event_add(db, &v, NULL), 0);
	assert_int_equal(event_range(db, &first, &last, NULL), 0);
	assert_int_equal(last, EVENTS_KEPT + 500);
	assert_int_equal(first, 501);
	assert_int_equal(number("SELECT count(*) FROM events"), EVENTS_KEPT);
	assert_int_equal(sql_change(db, "clear", NULL, "DELETE FROM events", ""), EVENTS_KEPT);
	assert_int_equal(event_add(db, &v, NULL), 0);
	assert_int_equal(event_range(db, &first, &last, NULL), 0);
	assert_int_equal(first, EVENTS_KEPT + 501);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_activity_of_each_actor, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_uses_of_each_secret, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_uses_of_all_secrets, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_events, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
