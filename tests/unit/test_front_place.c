/* A run's directory on another machine: who waited for its lock looks whether it still has its name (B-04, B-07). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "guest/front_place.h"
#include "before_lock.h"
#include "scratch.h"

#define LEASE "1m0000000000abcd"
#define RUN ".airlock-runtime/runs/" LEASE

static char top[64], lease[] = LEASE;
static int root = -1;

static int up(void **state)
{
	(void)state;
	(void)snprintf(top, sizeof(top), "/tmp/airlock-place-XXXXXX");
	if (!scratch_dir(top))
		return -1;
	root = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return root < 0 || mkdirat(root, ".airlock-runtime", 0700) < 0 ||
		       mkdirat(root, ".airlock-runtime/runs", 0700) < 0
		   ? -1
		   : 0;
}

static int down(void **state)
{
	(void)state;
	before_lock = NULL;
	cleanup_fd(&root);
	return 0;
}

static void make(void)
{
	assert_int_equal(mkdirat(root, RUN, 0700), 0);
}

static void take_away(void)
{
	assert_int_equal(renameat(root, RUN, root, "away"), 0);
}

static void replace(void)
{
	take_away();
	make();
	assert_int_equal(mknodat(root, RUN "/new", S_IFREG | 0600, 0), 0);
}

static bool there(const char *name)
{
	return faccessat(root, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static struct front_place none(void)
{
	return (struct front_place){
	    .run = -1, .lock = -1, .alone = -1, .programs = -1, .pack = {.tree = -1, .index = -1}};
}

static void done(struct front_place *p)
{
	cleanup_fd(&p->lock);
	cleanup_fd(&p->run);
	cleanup_fd(&p->programs);
}

static struct rm_open request(unsigned flags)
{
	return (struct rm_open){.root = top, .lease = lease, .flags = flags};
}

static void test_a_session_whose_directory_was_cleaned_away_makes_another(void **state)
{
	struct front_place p = none();
	struct rm_open m = request(0);
	char what[RM_WHAT_MAX + 1] = "";

	(void)state;
	before_lock = take_away;
	assert_int_equal(front_place_open(&p, &m, what), 0);
	assert_null(before_lock);
	assert_true(fd_has_name(p.run, root, RUN, AT_SYMLINK_NOFOLLOW));
	assert_true(p.lock >= 0);
	done(&p);
}

static void test_one_that_resumes_does_not_get_one_that_was_taken_away(void **state)
{
	struct front_place p = none();
	struct rm_open m = request(RO_RESUME);
	char what[RM_WHAT_MAX + 1] = "";

	(void)state;
	make();
	before_lock = take_away;
	assert_int_equal(front_place_open(&p, &m, what), 0);
	assert_null(before_lock);
	assert_int_equal(p.pack.index, -1);
	assert_int_equal(p.run, -1);
	assert_false(there(RUN));
	done(&p);
}

static void test_a_removal_leaves_what_took_the_name(void **state)
{
	struct front_place p = none();
	struct rm_open m = request(RO_REMOVE);
	char what[RM_WHAT_MAX + 1] = "";

	(void)state;
	make();
	before_lock = replace;
	assert_int_equal(front_place_open(&p, &m, what), 0);
	assert_null(before_lock);
	assert_true(there(RUN "/new"));
	done(&p);
}

static void test_a_clean_leaves_what_took_the_name(void **state)
{
	struct front_place p = none();
	struct rm_cleaned c;
	char what[RM_WHAT_MAX + 1] = "";

	(void)state;
	make();
	assert_int_equal(close(openat(root, RUN "/lock", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
	p.programs = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	before_lock = replace;
	assert_int_equal(front_place_clean(&p, top, &c, what), 0);
	assert_null(before_lock);
	assert_true(there(RUN "/new"));
	assert_int_equal(c.runs, 0);
	done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		test_a_session_whose_directory_was_cleaned_away_makes_another, up, down),
	    cmocka_unit_test_setup_teardown(
		test_one_that_resumes_does_not_get_one_that_was_taken_away, up, down),
	    cmocka_unit_test_setup_teardown(test_a_removal_leaves_what_took_the_name, up, down),
	    cmocka_unit_test_setup_teardown(test_a_clean_leaves_what_took_the_name, up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
