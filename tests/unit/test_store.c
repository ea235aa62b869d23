/* Rows, migrations and many processes at once: FR-B023, FR-B030, and "safe with many processes" of issue 2 point 8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/env.h"
#include "store/lease.h"
#include "store/run.h"
#include "scratch.h"

#define PROCESSES 20
#define ROUNDS 15

static char dir[] = "/tmp/airlock-store-XXXXXX";
static char path[PATH_MAX];

static int setup(void **state)
{
	(void)state;
	memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
	assert_non_null(scratch_dir(dir));
	(void)snprintf(path, sizeof(path), "%s/airlock.db", dir);
	return 0;
}

static int teardown(void **state)
{
	static const char *const names[] = {"airlock.db", "airlock.db-wal", "airlock.db-shm",
					    "airlock.db.lock"};
	char p[PATH_MAX];

	(void)state;
	(void)chmod(dir, 0700);
	for (size_t i = 0; i < 4; i++) {
		(void)snprintf(p, sizeof(p), "%s/%s", dir, names[i]);
		(void)unlink(p);
	}
	return rmdir(dir);
}

static struct db *open_ok(void)
{
	struct db *s = NULL;
	struct err e = ERR_INIT;

	if (db_open(path, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static void make_lease(struct db *s, struct lease_row *l)
{
	struct err e = ERR_INIT;

	*l = (struct lease_row){
	    .state = LEASE_ACQUIRING, .provider = "local", .env = "local", .workspace = "/w"};
	l->expires_ns = 77;
	assert_int_equal(id_new(l->id), 0);
	assert_int_equal(proc_self(&l->owner, &e), 0);
	if (lease_add(s, l, &e) < 0)
		fail_msg("%s", e.text);
}

static void make_run(struct db *s, const struct lease_row *l, struct run_row *r)
{
	struct err e = ERR_INIT;

	*r = (struct run_row){
	    .state = RUN_RUNNING, .workspace = "/w", .phase = "resolve", .started_ns = 5};
	r->command = (char *)(uintptr_t) "[\"true\"]";
	r->owner = l->owner;
	memcpy(r->lease_id, l->id, sizeof(r->lease_id));
	assert_int_equal(id_new(r->id), 0);
	if (run_add(s, r, &e) < 0)
		fail_msg("%s", e.text);
}

static void test_lease_round_trip(void **state)
{
	struct db *s = open_ok();
	struct lease_row l, got;
	struct err e = ERR_INIT;

	(void)state;
	make_lease(s, &l);
	l.state = LEASE_KEPT;
	l.monitor.pid = 4711;
	l.monitor.start = 12;
	l.spec = strdup("{\"a\":1}");
	assert_int_equal(lease_save(s, &l, &e), 0);
	assert_int_equal(lease_get(s, l.id, &got, &e), 0);
	assert_int_equal(got.state, LEASE_KEPT);
	assert_int_equal(got.monitor.pid, 4711);
	assert_int_equal(got.owner.start, l.owner.start);
	assert_int_equal(got.expires_ns, 77);
	assert_string_equal(got.spec, "{\"a\":1}");
	lease_row_done(&got);
	lease_row_done(&l);
	assert_int_equal(lease_get(s, "nosuch", &got, &e), -ENOENT);
	db_close(s);
}

/* A close brings commits into the file; a relaxed one leaves them in the log, where the next opening finds them. */
static void test_relaxed_close(void **state)
{
	char wal[PATH_MAX];

	(void)state;
	(void)snprintf(wal, sizeof(wal), "%s-wal", path);
	for (int relaxed = 0; relaxed < 2; relaxed++) {
		for (int cut = 0; cut < 2; cut++) {
			struct db *s = open_ok();
			struct lease_row l, got = {0};
			struct err e = ERR_INIT;

			make_lease(s, &l);
			if (relaxed)
				db_relax(s);
			db_close(s);
			if (cut)
				assert_int_equal(unlink(wal), 0);
			s = open_ok();
			assert_int_equal(lease_get(s, l.id, &got, &e) == 0, !relaxed || !cut);
			lease_row_done(&got);
			db_close(s);
		}
	}
}

static void test_claim_is_for_one(void **state)
{
	struct db *s = open_ok();
	struct lease_row l, stale;
	struct proc_id other = {.pid = 99, .start = 3, .boot = "b"};
	struct err e = ERR_INIT;

	(void)state;
	make_lease(s, &l);
	stale = l;
	assert_int_equal(lease_claim(s, &l, LEASE_RECOVERING, &other, &e), 1);
	assert_int_equal(l.owner.pid, 99);
	assert_int_equal(lease_claim(s, &stale, LEASE_RECOVERING, &other, &e), 0);
	db_close(s);
}

static void test_run_find_and_end(void **state)
{
	struct db *s = open_ok();
	struct lease_row l;
	struct run_row a, b, got;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(run_find(s, "last", &got, &e), -ENOENT);
	make_lease(s, &l);
	make_run(s, &l, &a);
	make_run(s, &l, &b);
	assert_int_equal(run_find(s, a.id, &got, &e), 0);
	assert_string_equal(got.id, a.id);
	run_row_done(&got);
	/* Both were made in the same second: their first letters are the same. */
	assert_int_equal(run_find(s, "1", &got, &e), -EINVAL);
	assert_non_null(strstr(e.text, "several"));
	assert_int_equal(run_find(s, "../x", &got, &e), -ENOENT);
	assert_int_equal(run_find(s, "%", &got, &e), -ENOENT);
	a.state = RUN_FINISHED;
	a.exit_status = 3;
	assert_int_equal(run_end(s, &a, &e), 1);
	a.exit_status = 4;
	assert_int_equal(run_end(s, &a, &e), 0); /* only the first end counts */
	assert_int_equal(run_get(s, a.id, &got, &e), 0);
	assert_int_equal(got.exit_status, 3);
	run_row_done(&got);
	db_close(s);
}

/* What another command of the sandbox left in it, after this one's packer had begun, is not on the host. */
static void test_settled_is_not_for_others(void **state)
{
	static const struct {
		enum run_state other;
		int64_t ended, pending;
	} cases[] = {
	    {RUN_RUNNING, 0, 1},      {RUN_FAILED, 200, 1},   {RUN_INTERRUPTED, 100, 1},
	    {RUN_INTERRUPTED, 99, 0}, {RUN_FINISHED, 200, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct db *s = open_ok();
		struct lease_row l, got;
		struct run_row a, b;
		struct err e = ERR_INIT;

		make_lease(s, &l);
		l.state = LEASE_KEPT;
		assert_int_equal(lease_save(s, &l, &e), 0);
		make_run(s, &l, &a);
		make_run(s, &l, &b);
		assert_int_equal(lease_use(s, l.id, 99, &e), 1);
		b.state = cases[i].other;
		b.ended_ns = cases[i].ended;
		if (b.state != RUN_RUNNING)
			assert_int_equal(run_end(s, &b, &e), 1);
		assert_true(lease_settled(s, l.id, a.id, 100, &e) >= 0);
		assert_int_equal(lease_get(s, l.id, &got, &e), 0);
		if (got.pending != cases[i].pending)
			fail_msg("case %zu: pending %d", i, (int)got.pending);
		lease_row_done(&got);
		db_close(s);
	}
}

static void test_run_needs_its_lease(void **state)
{
	struct db *s = open_ok();
	struct lease_row l = {.id = "nosuchlease"};
	struct run_row r = {
	    .state = RUN_RUNNING, .phase = "resolve", .command = (char *)(uintptr_t) "[]"};
	struct err e = ERR_INIT;

	(void)state;
	memcpy(r.lease_id, l.id, sizeof(r.lease_id));
	assert_int_equal(id_new(r.id), 0);
	assert_true(run_add(s, &r, &e) < 0); /* foreign key */
	db_close(s);
}

static void test_environments(void **state)
{
	static const char *const bad[] = {
	    "",	      "-x",
	    ".x",     "a b",
	    "a/b",    "local",
	    "native", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	struct db *s = open_ok();
	struct env_row row;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(env_put(s, bad[i], "[]", false, &e) < 0);
	assert_int_equal(env_put(s, "ci", "[\"--net\",\"host\"]", false, &e), 0);
	assert_int_equal(env_put(s, "ci", "[]", false, &e), -EEXIST);
	assert_int_equal(env_put(s, "ci", "[]", true, &e), 0);
	assert_int_equal(env_get(s, "ci", &row, &e), 0);
	assert_string_equal(row.options, "[]");
	env_row_done(&row);
	assert_int_equal(env_remove(s, "ci", &e), 0);
	assert_int_equal(env_remove(s, "ci", &e), -ENOENT);
	db_close(s);
}

static void work(void)
{
	struct db *s = NULL;
	struct err e = ERR_INIT;

	if (db_open(path, &s, &e) < 0)
		_exit(1);
	for (int i = 0; i < ROUNDS; i++) {
		struct lease_row l = {.state = LEASE_ACQUIRING,
				      .provider = "local",
				      .env = "local",
				      .workspace = "/w"};
		struct run_row r = {
		    .state = RUN_RUNNING, .phase = "resolve", .command = (char *)(uintptr_t) "[]"};
		struct phase_row p = {.name = "execute", .outcome = "ok"};

		if (id_new(l.id) < 0 || id_new(r.id) < 0)
			_exit(2);
		memcpy(r.lease_id, l.id, sizeof(r.lease_id));
		if (db_begin(s, &e) < 0 || lease_add(s, &l, &e) < 0 || run_add(s, &r, &e) < 0 ||
		    db_end(s, 0, &e) < 0)
			_exit(3);
		if (phase_add(s, r.id, &p, &e) < 0 || report_put(s, r.id, "{}", &e) < 0)
			_exit(4);
	}
	db_close(s);
	_exit(0);
}

/* The file does not exist yet: creation and migration race as well. */
static void test_twenty_processes(void **state)
{
	struct run_row *v = NULL;
	struct err e = ERR_INIT;
	struct db *s;
	size_t n = 0;
	int st;

	(void)state;
	for (int i = 0; i < PROCESSES; i++)
		if (fork() == 0)
			work();
	for (int i = 0; i < PROCESSES; i++) {
		assert_true(wait(&st) > 0);
		assert_int_equal(st, 0);
	}
	s = open_ok();
	assert_int_equal(run_list(s, true, NULL, &v, &n, &e), 0);
	assert_int_equal(n, PROCESSES * ROUNDS);
	run_list_free(v, n);
	db_close(s);
}

static void raw(const char *sql)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
}

static void test_newer_schema_is_refused(void **state)
{
	struct db *s = open_ok();
	struct err e = ERR_INIT;
	int v = 0;

	(void)state;
	assert_int_equal(db_version(s, &v, &e), 0);
	assert_true(v >= 1);
	db_close(s);
	raw("PRAGMA user_version=9999");
	s = NULL;
	assert_int_equal(db_open(path, &s, &e), -EOPNOTSUPP);
	assert_non_null(strstr(e.text, "9999"));
	assert_non_null(strstr(e.text, "newer"));
}

static void test_half_migration_is_repeated(void **state)
{
	struct db *s;

	(void)state;
	/* A killed first opening leaves an empty file of version 0. */
	raw("PRAGMA journal_mode=WAL; PRAGMA user_version=0");
	s = open_ok();
	db_close(s);
}

static void test_corrupt_file(void **state)
{
	static const char junk[] =
	    "this is not a database, and it is longer than one hundred bytes, "
	    "as SQLite reads a header of that size before it judges";
	struct db *s = NULL;
	struct err e = ERR_INIT;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)state;
	assert_int_equal(write(fd, junk, sizeof(junk)), (ssize_t)sizeof(junk));
	(void)close(fd);
	assert_true(db_open(path, &s, &e) < 0);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, "mv "));
}

/* Root writes everywhere, so the attempt is made as nobody. */
static void test_read_only_directory(void **state)
{
	int st;
	pid_t p;

	(void)state;
	assert_int_equal(chmod(dir, 0555), 0);
	p = fork();
	if (p == 0) {
		struct db *s = NULL;
		struct err e = ERR_INIT;

		if (getuid() == 0 && setuid(65534) < 0)
			_exit(3);
		if (db_open(path, &s, &e) != -EACCES)
			_exit(1);
		_exit(strstr(e.text, "XDG_STATE_HOME") ? 0 : 2);
	}
	assert_int_equal(waitpid(p, &st, 0), p);
	assert_int_equal(st, 0);
}

/* A tmpfs of a few pages in a mount namespace of its own; where that is not allowed there is no way to fill a disk. */
static void test_full_disk(void **state)
{
	struct err e = ERR_INIT;
	int st;
	pid_t p;

	(void)state;
	p = fork();
	if (p == 0) {
		struct db *s = NULL;
		int r = 0;

		if (unshare(getuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0 ||
		    mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("tmpfs", dir, "tmpfs", 0, "size=512k") < 0)
			_exit(77);
		if (db_open(path, &s, &e) < 0)
			_exit(1);
		for (int i = 0; i < 100000 && r >= 0; i++) {
			struct lease_row l = {.provider = "local", .env = "x", .workspace = "/w"};

			if (id_new(l.id) < 0)
				_exit(2);
			r = lease_add(s, &l, &e);
		}
		if (r >= 0)
			_exit(3);
		_exit(e.code == ERR_NO_SPACE || strstr(e.text, "disk full") ? 0 : 4);
	}
	assert_int_equal(waitpid(p, &st, 0), p);
	if (WEXITSTATUS(st) == 77)
		skip();
	assert_int_equal(st, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_lease_round_trip, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_relaxed_close, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_settled_is_not_for_others, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_claim_is_for_one, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_run_find_and_end, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_run_needs_its_lease, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_environments, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_twenty_processes, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_newer_schema_is_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_half_migration_is_repeated, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_corrupt_file, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_read_only_directory, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
