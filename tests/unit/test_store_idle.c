/* Whether a store is in use: what has its name now is asked, not what had it before the lock (B-07, FR-B023). */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "before_lock.h"
#include "scratch.h"
#include "sync/store.h"

static char top[64], path[80];

static int up(void **state)
{
	(void)state;
	(void)snprintf(top, sizeof(top), "/tmp/airlock-idle-XXXXXX");
	if (!scratch_dir(top))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/store", top);
	return mkdir(path, 0700);
}

static void put_lock(void)
{
	char lock[sizeof(path) + 8];

	(void)snprintf(lock, sizeof(lock), "%s/lock", path);
	assert_int_equal(close(open(lock, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
}

static void replace(void)
{
	char away[sizeof(path)];

	(void)snprintf(away, sizeof(away), "%s/away", top);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int idle(bool *ret_used)
{
	struct err e = ERR_INIT;
	_cleanup_fd_ int lock = -1;

	return store_idle(path, clock_real_ns(), &lock, ret_used, &e);
}

static void test_one_that_took_the_name_is_left_alone(void **state)
{
	bool used;

	(void)state;
	put_lock();
	assert_int_equal(idle(&used), 1);
	before_lock = replace;
	assert_int_equal(idle(&used), 0);
	assert_null(before_lock);
}

static void test_one_that_is_just_made_has_no_lock_yet(void **state)
{
	const struct timespec old[2] = {{.tv_sec = time(NULL) - 100}, {.tv_sec = time(NULL) - 100}};
	bool used;

	(void)state;
	assert_int_equal(idle(&used), 0);
	assert_true(used);
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(idle(&used), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(test_one_that_took_the_name_is_left_alone, up),
	    cmocka_unit_test_setup(test_one_that_is_just_made_has_no_lock_yet, up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
