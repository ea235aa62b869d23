/* Unit tests of src/guest/lanes.c: small files made by two threads are those that were given, or a failure names one. */
#include "guest/lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/land.h"
#include "scratch.h"

#define FILES 3000
#define OLD_NS INT64_C(-1500000000)

static char top[] = "/tmp/test_lanes.XXXXXX";
static int tree = -1;

static int set_up(void **state)
{
	(void)state;
	if (!scratch_dir(top))
		return -1;
	tree = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return tree < 0 ? -1 : 0;
}

static int empty(void **state)
{
	(void)state;
	return land_remove(tree, "d");
}

static int tear_down(void **state)
{
	(void)state;
	(void)close(tree);
	return rmdir(top);
}

static size_t size_of(size_t i)
{
	return i % 500 == 0 ? LANES_FILE_MAX : i * 37 % 900;
}

static void fill(char *p, size_t n, size_t i)
{
	for (size_t k = 0; k < n; k++)
		p[k] = (char)(k * 7 + i);
}

static void give(struct lanes *l, size_t i)
{
	static char bytes[LANES_FILE_MAX];
	char path[32];
	size_t n = size_of(i), half = n / 2;

	(void)snprintf(path, sizeof(path), "d/f%zu", i);
	fill(bytes, n, i);
	lanes_begin(l, &(struct lanes_file){.path = path,
					    .path_len = strlen(path),
					    .mode = i % 2 ? 0640 : 0555,
					    .mtime_ns = i % 3 ? (int64_t)i * NS_PER_S : OLD_NS,
					    .size = n});
	lanes_data(l, bytes, half);
	lanes_data(l, bytes + half, n - half);
	lanes_end(l);
}

static void see(size_t i)
{
	static char want[LANES_FILE_MAX], got[LANES_FILE_MAX + 1];
	_cleanup_fd_ int fd = -1;
	char path[32];
	struct stat st;
	size_t n = size_of(i);

	(void)snprintf(path, sizeof(path), "d/f%zu", i);
	fd = openat(tree, path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	fill(want, n, i);
	assert_int_equal(read(fd, got, sizeof(got)), (ssize_t)n);
	assert_memory_equal(want, got, n);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, i % 2 ? 0640 : 0555);
	assert_int_equal((int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec,
			 i % 3 ? (int64_t)i * NS_PER_S : OLD_NS);
}

static void all_are_made(bool exact, mode_t mask)
{
	mode_t before = umask(mask);
	struct lanes *l = lanes_new(tree, exact);
	const char *path;

	assert_non_null(l);
	assert_int_equal(mkdirat(tree, "d", 0700), 0);
	for (size_t i = 0; i < FILES; i++) {
		give(l, i);
		/* More comes after a drain. */
		if (i == FILES / 2)
			assert_int_equal(lanes_drain(l, &path), 0);
	}
	assert_int_equal(lanes_drain(l, &path), 0);
	assert_false(lanes_failed(l));
	for (size_t i = 0; i < FILES; i++)
		see(i);
	lanes_free(l);
	(void)umask(before);
}

static void files_are_as_they_were_given(void **state)
{
	(void)state;
	all_are_made(true, 0);
}

static void modes_hold_where_somebody_has_a_say_in_them(void **state)
{
	(void)state;
	all_are_made(false, 077);
}

static void a_name_that_is_taken_is_told_and_kept(void **state)
{
	struct lanes *l = lanes_new(tree, true);
	const char *path = NULL;
	_cleanup_fd_ int fd = -1;
	struct stat st;

	(void)state;
	assert_non_null(l);
	assert_int_equal(mkdirat(tree, "d", 0700), 0);
	fd = openat(tree, "d/f7", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "mine", 4), 4);
	/* It goes on taking what is given: the caller may be in the middle of something. */
	for (size_t i = 0; i < FILES; i++)
		give(l, i);
	assert_int_equal(lanes_drain(l, &path), -EEXIST);
	assert_string_equal(path, "d/f7");
	assert_true(lanes_failed(l));
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 4);
	lanes_free(l);
}

static void one_that_is_given_up_ends(void **state)
{
	struct lanes *l = lanes_new(tree, true);

	(void)state;
	assert_non_null(l);
	assert_int_equal(mkdirat(tree, "d", 0700), 0);
	for (size_t i = 0; i < FILES; i++)
		give(l, i);
	lanes_free(l);
	lanes_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(files_are_as_they_were_given, empty),
	    cmocka_unit_test_teardown(modes_hold_where_somebody_has_a_say_in_them, empty),
	    cmocka_unit_test_teardown(a_name_that_is_taken_is_told_and_kept, empty),
	    cmocka_unit_test_teardown(one_that_is_given_up_ends, empty),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
