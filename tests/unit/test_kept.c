/* The directory of kept roots: a lock is on what the name leads to, what somebody has stays, and a sweep ends when it was told to (B-05, RT-01). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "provider/native/kept.h"
#include "scratch.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define OLD (time(NULL) - KEPT_UNUSED_S - 100)

static int top = -1;		  /* of one test */
static void (*before_lock)(void); /* once, when a root is about to be locked */

/* In place of the C library's: what others do between the open and the lock. */
int flock(int fd, int how)
{
	void (*now)(void) = before_lock;
	struct stat st, dir;

	if (now && fstat(fd, &st) == 0 && fstat(top, &dir) == 0 && st.st_ino != dir.st_ino) {
		before_lock = NULL;
		now();
	}
	return (int)syscall(SYS_flock, fd, how);
}

static int up(void **state)
{
	char dir[] = "/tmp/airlock-kept-XXXXXX";

	(void)state;
	if (!scratch_dir(dir))
		return -1;
	top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return top < 0 ? -1 : 0;
}

static int down(void **state)
{
	(void)state;
	before_lock = NULL;
	cleanup_fd(&top);
	return 0;
}

static void age(const char *name, time_t when)
{
	const struct timespec t[2] = {{.tv_sec = when}, {.tv_sec = when}};

	assert_int_equal(utimensat(top, name, t, 0), 0);
}

static void make(const char *name, unsigned files, time_t when)
{
	char path[PATH_MAX];

	assert_int_equal(mkdirat(top, name, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/root", name);
	assert_int_equal(mkdirat(top, path, 0755), 0);
	for (unsigned i = 0; i < files; i++) {
		(void)snprintf(path, sizeof(path), "%s/root/%u", name, i);
		assert_int_equal(mknodat(top, path, S_IFREG | 0444, 0), 0);
	}
	age(name, when);
}

static bool there(const char *name)
{
	return faccessat(top, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static struct kept_sweep all(void)
{
	return (struct kept_sweep){
	    .unused_s = KEPT_UNUSED_S, .entries = UINT_MAX, .until_ns = INT64_MAX};
}

static void replace(void)
{
	assert_int_equal(renameat(top, A, top, "away"), 0);
	make(A, 1, OLD);
}

static void remove_begins(void)
{
	assert_int_equal(renameat(top, A, top, KEPT_MAKING "x"), 0);
}

static void use(void)
{
	age(A, time(NULL));
}

static void test_one_that_took_the_name_meanwhile_stays(void **state)
{
	struct kept_sweep s = all();

	(void)state;
	make(A, 1, OLD);
	before_lock = replace;
	assert_int_equal(kept_sweep(top, &s), 0);
	assert_null(before_lock);
	assert_true(there(A "/root/0"));
	assert_int_equal(s.gone, 0);
}

static void test_one_that_was_used_meanwhile_stays(void **state)
{
	struct kept_sweep s = all();

	(void)state;
	make(A, 1, OLD);
	before_lock = use;
	assert_int_equal(kept_sweep(top, &s), 0);
	assert_null(before_lock);
	assert_true(there(A "/root/0"));
}

static void test_what_is_being_removed_is_not_held(void **state)
{
	_cleanup_fd_ int fd = -1;

	(void)state;
	assert_int_equal(kept_hold(top, A), -ENOENT);
	make(A, 1, OLD);
	before_lock = remove_begins;
	assert_int_equal(kept_hold(top, A), -EBUSY);
	make(A, 1, OLD);
	before_lock = replace;
	assert_int_equal(kept_hold(top, A), -EBUSY);
	fd = openat(top, A, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(kept_hold(top, A), -EBUSY);
}

static void test_what_is_held_stays_and_what_nobody_holds_goes(void **state)
{
	_cleanup_fd_ int held = -1, making = -1;
	struct kept_sweep s = all();

	(void)state;
	make(A, 3, OLD);
	make(B, 3, OLD);
	make(KEPT_MAKING "held", 3, OLD);
	make(KEPT_MAKING "killed", 3, time(NULL) - 100);
	make(KEPT_MAKING "begun", 3, time(NULL));
	held = kept_hold(top, A);
	assert_true(held >= 0);
	/* That alone would keep it; the lock is to. */
	age(A, OLD);
	making = openat(top, KEPT_MAKING "held", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(making, LOCK_SH), 0);
	assert_int_equal(kept_sweep(top, &s), 0);
	assert_true(there(A "/root/2"));
	assert_true(there(KEPT_MAKING "held/root/2"));
	assert_true(there(KEPT_MAKING "begun/root/2"));
	assert_false(there(B));
	assert_false(there(KEPT_MAKING "killed"));
	assert_int_equal(s.gone, 2);
	assert_int_equal(s.used, 2);
	cleanup_fd(&held);
	assert_int_equal(kept_sweep(top, &s), 0);
	assert_false(there(A));
}

static void test_hold_notes_the_day(void **state)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	(void)state;
	make(A, 1, OLD);
	fd = kept_hold(top, A);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_mtime >= time(NULL) - 60);
}

static void test_one_remover_at_a_time(void **state)
{
	_cleanup_fd_ int other = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct kept_sweep s = all();

	(void)state;
	make(A, 1, OLD);
	assert_int_equal(flock(other, LOCK_EX), 0);
	assert_int_equal(kept_sweep(top, &s), -EAGAIN);
	assert_true(there(A));
	assert_int_equal(flock(other, LOCK_UN), 0);
	assert_int_equal(kept_sweep(top, &s), 0);
	assert_false(there(A));
}

static unsigned count(void)
{
	_cleanup_dir_ DIR *d = fdopendir(openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	unsigned n = 0;

	while (readdir(d))
		n++;
	return n - 2;
}

static void test_a_budget_is_kept_and_the_rest_goes_the_next_time(void **state)
{
	char name[KEPT_NAME + 1];
	struct kept_sweep s = all();
	unsigned calls = 0;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		(void)snprintf(name, sizeof(name), "%032x", i);
		make(name, 38, OLD);
	}
	s.until_ns = 0;
	assert_int_equal(kept_sweep(top, &s), -EAGAIN);
	/* One always, or a slow machine would never be rid of them. */
	assert_int_equal(count(), 19);
	/* Each is 40 entries: two and a half at a time. */
	do {
		s = all();
		s.entries = 100;
		calls++;
	} while (kept_sweep(top, &s) == -EAGAIN && calls < 100);
	assert_int_equal(count(), 0);
	assert_in_range(calls, 7, 10);
}

static void note(void *arg, const char *name)
{
	(void)snprintf(arg, KEPT_NAME + 1, "%s", name);
}

static void test_a_dry_run_changes_nothing(void **state)
{
	char seen[KEPT_NAME + 1] = "";
	struct kept_sweep s = all();

	(void)state;
	make(A, 3, OLD);
	s.dry_run = true;
	s.each = note;
	s.arg = seen;
	assert_int_equal(kept_sweep(top, &s), 0);
	assert_int_equal(s.gone, 1);
	assert_string_equal(seen, A);
	assert_true(there(A "/root/2"));
}

static void test_what_is_not_ours_stays(void **state)
{
	static const char *const names[] = {"lost+found", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
					    "aaaa"};
	struct kept_sweep s = all();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		make(names[i], 1, OLD);
	assert_int_equal(symlinkat("lost+found", top, A), 0);
	(void)kept_sweep(top, &s);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_true(there(names[i]));
	assert_true(there(A));
	assert_true(there("lost+found/root/0"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_one_that_took_the_name_meanwhile_stays, up, down),
	    cmocka_unit_test_setup_teardown(test_one_that_was_used_meanwhile_stays, up, down),
	    cmocka_unit_test_setup_teardown(test_what_is_being_removed_is_not_held, up, down),
	    cmocka_unit_test_setup_teardown(test_what_is_held_stays_and_what_nobody_holds_goes, up,
					    down),
	    cmocka_unit_test_setup_teardown(test_hold_notes_the_day, up, down),
	    cmocka_unit_test_setup_teardown(test_one_remover_at_a_time, up, down),
	    cmocka_unit_test_setup_teardown(test_a_budget_is_kept_and_the_rest_goes_the_next_time,
					    up, down),
	    cmocka_unit_test_setup_teardown(test_a_dry_run_changes_nothing, up, down),
	    cmocka_unit_test_setup_teardown(test_what_is_not_ours_stays, up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
