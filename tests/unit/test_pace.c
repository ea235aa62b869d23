/* Unit tests of src/bridge/pace.c: S2-09, a run that floods is held back while another is served, and only then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "bridge/pace.h"
#include "scratch.h"

#define RATE 1000
#define EACH (NS_PER_S / RATE)
#define T0 (INT64_C(1000) * NS_PER_S)

static char dir[] = "/tmp/airlock-pace-XXXXXX";
static char path[sizeof(dir) + 64];

static struct pace run(const char *id)
{
	struct pace p;
	int fd = pace_board_open();

	assert_true(fd >= 0);
	pace_init(&p, fd, (struct view){id, strlen(id)});
	(void)close(fd);
	assert_non_null(p.board);
	return p;
}

/* What the second process does with it (lastword.h): other runs' numbers are not in its memory. */
static void forgotten_is_not_mapped(void **state)
{
	struct pace a = run("a");
	void *board = a.board;
	unsigned char in;

	(void)state;
	assert_int_equal(mincore(board, sizeof(struct pace_board), &in), 0);
	pace_forget(&a);
	assert_null(a.board);
	assert_int_equal(mincore(board, sizeof(struct pace_board), &in), -1);
	assert_int_equal(errno, ENOMEM);
	pace_forget(&a);
}

/* A new board for each test. */
static int setup(void **state)
{
	(void)state;
	(void)unlink(path);
	return 0;
}

static void alone_nobody_waits(void **state)
{
	struct pace a = run("a");

	(void)state;
	for (int i = 0; i < 10 * RATE; i++)
		assert_int_equal(pace_request(&a, RATE, false, T0 + i), T0 + i);
}

static void beside_another_run_there_is_a_pace(void **state)
{
	struct pace a = run("a"), b = run("b");
	int64_t at = 0;

	(void)state;
	(void)pace_request(&b, RATE, false, T0);
	for (int i = 0; i < PACE_BURST + 1; i++)
		assert_int_equal(pace_request(&a, RATE, false, T0), T0);
	for (int i = 1; i <= 100; i++) {
		at = pace_request(&a, RATE, false, T0);
		assert_int_equal(at, T0 + i * EACH);
	}
	/* Nor does one that is asked for alone. */
	assert_int_equal(pace_request(&a, RATE, true, T0), T0);
	/* The other one, which asks little, does not wait for it. */
	assert_int_equal(pace_request(&b, RATE, false, T0 + 1), T0 + 1);
	/* Long after the other's last request it is alone again. */
	at = T0 + (PACE_BESIDE_MS + 1) * NS_PER_MS;
	assert_int_equal(pace_request(&a, RATE, false, at), at);
}

static void what_is_saved_up_is_bounded_and_so_is_debt(void **state)
{
	struct pace a = run("a"), b = run("b");
	int64_t now = T0, at = 0;

	(void)state;
	(void)pace_request(&b, RATE, false, now);
	(void)pace_request(&a, RATE, false, now);
	now += NS_PER_S;
	(void)pace_request(&b, RATE, false, now);
	for (int i = 0; i < PACE_BURST + 1; i++)
		assert_int_equal(pace_request(&a, RATE, false, now), now);
	assert_true(pace_request(&a, RATE, false, now) > now);
	for (int i = 0; i < 100 * RATE; i++)
		at = pace_request(&a, RATE, false, now);
	assert_true(at <= now + PACE_DEBT_MS * NS_PER_MS + EACH);
}

static void bytes_count(void **state)
{
	struct pace a = run("a"), b = run("b");
	int64_t at;

	(void)state;
	(void)pace_request(&b, RATE, false, T0);
	at = pace_bytes(&a, RATE, (PACE_BURST + 10) * (uint64_t)PACE_REQUEST_BYTES, T0);
	assert_int_equal(at, T0);
	assert_int_equal(pace_request(&a, RATE, false, T0), T0 + 10 * EACH);
}

static void one_run_is_not_another(void **state)
{
	struct pace a = run("a"), again = run("a");

	(void)state;
	(void)pace_request(&again, RATE, false, T0);
	for (int i = 0; i < 10 * RATE; i++)
		assert_int_equal(pace_request(&a, RATE, false, T0), T0);
}

/* The board holds whatever somebody wrote there. */
static void odd_boards(void **state)
{
	struct pace a = run("a"), none;

	(void)state;
	for (size_t i = 0; i < PACE_SLOTS; i++) {
		a.board->slot[i].who = i * UINT64_C(0x9e3779b97f4a7c15);
		a.board->slot[i].at_ns = i % 2 ? INT64_MAX : INT64_MIN;
	}
	for (int i = 0; i < 10 * RATE; i++)
		assert_int_equal(pace_request(&a, RATE, false, T0), T0);
	pace_init(&none, -1, (struct view){"a", 1});
	assert_null(none.board);
	for (int i = 0; i < 10 * RATE; i++)
		assert_int_equal(pace_request(&none, 1, false, T0), T0);
}

/* Two runs with one slot see each other all the same. */
static void a_shared_slot(void **state)
{
	struct pace a = run("a"), b = run("b");
	int64_t now = T0, at = 0;

	(void)state;
	b.who = a.who + PACE_SLOTS;
	(void)pace_request(&b, RATE, false, now);
	for (int i = 0; i < 2 * PACE_BURST; i++)
		at = pace_request(&a, RATE, false, now);
	assert_true(at > now);
	now += 2 * NS_PER_MS;
	for (int i = 0; i < 2 * PACE_BURST; i++)
		at = pace_request(&b, RATE, false, now);
	assert_true(at > now);
}

static bool opens_here(void)
{
	struct stat a, b;
	int fd = pace_board_open();
	bool here;

	if (fd < 0)
		return false;
	here = stat(path, &a) == 0 && fstat(fd, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
	(void)close(fd);
	return here;
}

static void somebody_elses_file_is_not_taken(void **state)
{
	int fd;

	(void)state;
	assert_true(opens_here());
	assert_int_equal(chmod(path, 0666), 0);
	assert_false(opens_here());
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("target", path), 0);
	assert_false(opens_here());
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_false(opens_here());
	assert_int_equal(unlink(path), 0);
	/* One that is too short is made longer. */
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	(void)close(fd);
	(void)run("a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(alone_nobody_waits, setup),
	    cmocka_unit_test_setup(beside_another_run_there_is_a_pace, setup),
	    cmocka_unit_test_setup(what_is_saved_up_is_bounded_and_so_is_debt, setup),
	    cmocka_unit_test_setup(bytes_count, setup),
	    cmocka_unit_test_setup(one_run_is_not_another, setup),
	    cmocka_unit_test_setup(odd_boards, setup),
	    cmocka_unit_test_setup(a_shared_slot, setup),
	    cmocka_unit_test_setup(somebody_elses_file_is_not_taken, setup),
	    cmocka_unit_test_setup(forgotten_is_not_mapped, setup),
	};
	int r;

	if (!scratch_dir(dir) || setenv("XDG_RUNTIME_DIR", dir, 1) < 0)
		return 1;
	(void)snprintf(path, sizeof(path), "%s/airlock-board-%u", dir, (unsigned)geteuid());
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(path);
	(void)rmdir(dir);
	return r;
}
