/* S1-02: nothing outside the root is opened, by openat2 and by the step-wise fallback alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/beneath.h"
#include "scratch.h"

struct place {
	char top[64];
	int top_fd;
	struct beneath b;
};

static int set_up(void **state)
{
	static struct place p;
	bool stepwise = *state != NULL;

	(void)snprintf(p.top, sizeof(p.top), "/tmp/test-beneath-XXXXXX");
	if (!scratch_dir(p.top))
		return -1;
	p.top_fd = open(p.top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdirat(p.top_fd, "root", 0755) || mkdirat(p.top_fd, "out", 0755) ||
	    mkdirat(p.top_fd, "root/d", 0755) || symlinkat("../out", p.top_fd, "root/up") ||
	    symlinkat("d", p.top_fd, "root/in") ||
	    symlinkat("/proc/self/fd", p.top_fd, "root/magic") ||
	    symlinkat("nowhere", p.top_fd, "root/dangling"))
		return -1;
	p.b = (struct beneath){.root = openat(p.top_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			       .stepwise = stepwise};
	(void)close(openat(p.top_fd, "root/d/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	*state = &p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct beneath top = {.root = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	int r = beneath_remove_tree(&top, p->top + 5);

	(void)close(top.root);
	(void)close(p->b.root);
	(void)close(p->top_fd);
	return r;
}

static void test_open(void **state)
{
	static const struct {
		const char *path;
		int flags, want;
	} rows[] = {
	    {"d/f", O_RDONLY, 0},
	    {"", O_RDONLY | O_DIRECTORY, 0},
	    {"up", O_RDONLY, -ELOOP},
	    {"up", O_PATH, -ELOOP},
	    {"up/x", O_RDONLY, -ELOOP},
	    {"in", O_RDONLY, -ELOOP},
	    {"in/f", O_RDONLY, -ELOOP},
	    {"magic/0", O_RDONLY, -ELOOP},
	    {"dangling", O_WRONLY | O_CREAT, -ELOOP},
	    {"d/f/x", O_RDONLY, -ENOTDIR},
	    {"d/none", O_RDONLY, -ENOENT},
	    {"none/x", O_RDONLY, -ENOENT},
	    {"../out", O_RDONLY, -EINVAL},
	    {"d/../d/f", O_RDONLY, -EINVAL},
	    {"/etc/passwd", O_RDONLY, -EINVAL},
	    {"d//f", O_RDONLY, -EINVAL},
	    {"./d", O_RDONLY, -EINVAL},
	};
	struct place *p = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int fd = beneath_open(&p->b, rows[i].path, rows[i].flags, 0600);

		if ((rows[i].want == 0) != (fd >= 0) || (fd < 0 && fd != rows[i].want))
			fail_msg("%s: %d", rows[i].path, fd);
		if (fd >= 0) {
			assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
			(void)close(fd);
		}
	}
	assert_int_equal(faccessat(p->top_fd, "root/nowhere", F_OK, 0), -1);
}

static void test_make(void **state)
{
	struct place *p = *state;
	struct stat st;
	int fd;

	assert_int_equal(beneath_mkdirs(&p->b, "a/b/c", 0700), 1);
	assert_int_equal(beneath_mkdirs(&p->b, "a/b/c", 0700), 0);
	assert_int_equal(beneath_mkdirs(&p->b, "up/x", 0700), -ELOOP);
	assert_int_equal(beneath_mkdirs(&p->b, "in/x", 0700), -ELOOP);
	assert_int_equal(beneath_mkdirs(&p->b, "d/f/x", 0700), -ENOTDIR);
	assert_int_equal(beneath_mkdirs(&p->b, "d/f", 0700), -ENOTDIR);
	assert_int_equal(beneath_mkparents(&p->b, "e/g/file", 0700), 1);
	fd = beneath_create(&p->b, "e/g/file", 0640);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(beneath_create(&p->b, "e/g/file", 0640), -EEXIST);
	assert_int_equal(beneath_create(&p->b, "dangling", 0640), -EEXIST);
	assert_int_equal(beneath_stat(&p->b, "up", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(beneath_stat(&p->b, "up/x", &st), -ELOOP);
	assert_int_equal(faccessat(p->top_fd, "out/x", F_OK, 0), -1);
}

/* C4: closed modes and depth beyond any descriptor limit do not stop the removal. */
static void test_remove_tree(void **state)
{
	struct place *p = *state;
	int dir, next;

	dir = beneath_open(&p->b, "d", O_RDONLY | O_DIRECTORY, 0);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(mkdirat(dir, "x", 0700), 0);
		assert_int_equal(symlinkat("/etc", dir, "l"), 0);
		next = openat(dir, "x", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(dir);
		dir = next;
	}
	(void)close(dir);
	assert_int_equal(mkdirat(p->b.root, "d/closed", 0), 0);
	assert_int_equal(beneath_remove_tree(&p->b, "d"), 0);
	assert_int_equal(beneath_remove_tree(&p->b, "d"), 0);
	assert_int_equal(beneath_remove_tree(&p->b, "up"), 0);
	assert_int_equal(faccessat(p->top_fd, "out", F_OK, 0), 0);
	assert_int_equal(faccessat(p->b.root, "d", F_OK, 0), -1);
}

int main(void)
{
	static int stepwise;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_prestate_setup_teardown(test_open, set_up, tear_down, NULL),
	    cmocka_unit_test_prestate_setup_teardown(test_make, set_up, tear_down, NULL),
	    cmocka_unit_test_prestate_setup_teardown(test_remove_tree, set_up, tear_down, NULL),
	    cmocka_unit_test_prestate_setup_teardown(test_open, set_up, tear_down, &stepwise),
	    cmocka_unit_test_prestate_setup_teardown(test_make, set_up, tear_down, &stepwise),
	    cmocka_unit_test_prestate_setup_teardown(test_remove_tree, set_up, tear_down,
						     &stepwise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
