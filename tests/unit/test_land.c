/* guest/land.h, guest/front_lock.h: what goes away again on another machine, and who may be ended for it (B-09). */
#include "guest/land.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guest/front_lock.h"
#include "scratch.h"

#include <cmocka.h>

#define WAIT_MS 60000
#define IN_VAIN_MS 200 /* how long it is asked for where it cannot be had */

static char top[] = "/tmp/test_land.XXXXXX";

static int set_up(void **state)
{
	(void)state;
	return scratch_dir(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return rmdir(top);
}

static void deep(int at, int levels)
{
	for (int i = 0; i < levels; i++) {
		int next;

		assert_int_equal(mkdirat(at, "d", 0755), 0);
		next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(openat(next, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		/* Names that ours must not meet, and some that deny their owner. */
		if (i % 100 == 50)
			assert_int_equal(mkdirat(next, ".airlock-deep-0", 0), 0);
		if (i % 200 == 7)
			assert_int_equal(fchmod(at, 0), 0);
		(void)close(at);
		at = next;
	}
	(void)close(at);
}

static void trees_deeper_than_any_stack_go_away(void **state)
{
	_cleanup_fd_ int at = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int tree;

	(void)state;
	assert_int_equal(mkdirat(at, "t", 0700), 0);
	tree = openat(at, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(tree, ".airlock-deep-0", 0700), 0);
	(void)close(openat(tree, ".airlock-deep-1", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	/* Beside it what is read later and not deep. */
	for (int i = 0; i < 50; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "n%d", i);
		assert_int_equal(mkdirat(tree, name, 0700), 0);
		(void)snprintf(name, sizeof(name), "n%d/x", i);
		assert_int_equal(mkdirat(tree, name, 0700), 0);
	}
	deep(tree, 3000);
	assert_int_equal(land_remove(at, "t"), 0);
	assert_int_equal(faccessat(at, "t", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(land_remove(at, "t"), 0);
}

static void links_are_removed_and_not_followed(void **state)
{
	_cleanup_fd_ int at = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_int_equal(mkdirat(at, "kept", 0700), 0);
	assert_int_equal(mkdirat(at, "t", 0700), 0);
	assert_int_equal(symlinkat("../kept", at, "t/l"), 0);
	assert_int_equal(land_remove(at, "t"), 0);
	assert_int_equal(unlinkat(at, "kept", AT_REMOVEDIR), 0);
}

static int open_lock(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/lock", top);
	return open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void remove_lock(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/lock", top);
	assert_int_equal(unlink(path), 0);
}

/* A child that holds it, as a front does, until it is ended. */
static pid_t hold(void)
{
	char node[FRONT_NODE_MAX + 1], c = 0;
	int p[2];
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		c = (char)(front_lock_take(open_lock(), true, WAIT_MS, node) == 0);
		(void)!write(p[1], &c, 1);
		for (;;)
			(void)pause();
	}
	(void)close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	assert_int_equal(c, 1);
	(void)close(p[0]);
	return pid;
}

static void who_holds_it_is_ended_and_who_shares_it_is_not(void **state)
{
	char node[FRONT_NODE_MAX + 1];
	_cleanup_fd_ int lock = -1;
	pid_t a, b;
	int st, beside;

	(void)state;
	a = hold();
	b = hold();
	beside = open_lock();
	assert_int_equal(front_lock_take(beside, true, WAIT_MS, node), 0);
	assert_int_equal(waitpid(a, &st, WNOHANG), 0);
	(void)close(beside);
	lock = open_lock();
	assert_int_equal(front_lock_take(lock, false, WAIT_MS, node), 0);
	assert_int_equal(waitpid(a, &st, 0), a);
	assert_true(WIFSIGNALED(st));
	assert_int_equal(waitpid(b, &st, 0), b);
	remove_lock();
}

/* The number is a living process's: its start, its boot, its machine or all of them are not. */
static void a_number_alone_is_nobody(void **state)
{
	char node[FRONT_NODE_MAX + 1], text[256] = "", boot[64], name[160], lines[4][256];
	_cleanup_fd_ int lock = open_lock();
	unsigned long long start = 0;
	pid_t child = fork();
	int st, self;

	(void)state;
	if (child == 0)
		for (;;)
			(void)pause();
	assert_int_equal(front_lock_take(lock, false, WAIT_MS, node), 0);
	assert_true(pread(lock, text, sizeof(text) - 1, 0) > 0);
	assert_int_equal(sscanf(text, "%d %llu %63s %159s", &self, &start, boot, name), 4);
	assert_int_equal(self, (int)getpid());
	assert_true(start > 1);
	(void)snprintf(lines[0], sizeof(lines[0]), "%d\n", (int)child);
	(void)snprintf(lines[1], sizeof(lines[1]), "%d 1 %s %s\n", (int)child, boot, name);
	(void)snprintf(lines[2], sizeof(lines[2]), "%d %llu x%s %s\n", (int)child, start, boot + 1,
		       name);
	(void)snprintf(lines[3], sizeof(lines[3]), "%d %llu %s other:1\n", (int)child, start, boot);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		int other = open_lock();
		ssize_t n = (ssize_t)strlen(lines[i]);

		assert_int_equal(ftruncate(lock, 0), 0);
		assert_int_equal(write(lock, lines[i], (size_t)n), n);
		assert_int_equal(front_lock_take(other, false, IN_VAIN_MS, node), -EBUSY);
		assert_string_equal(node, i == 3 ? "other" : "");
		(void)close(other);
		assert_int_equal(waitpid(child, &st, WNOHANG), 0);
	}
	(void)kill(child, SIGKILL);
	(void)waitpid(child, &st, 0);
	remove_lock();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(trees_deeper_than_any_stack_go_away),
	    cmocka_unit_test(links_are_removed_and_not_followed),
	    cmocka_unit_test(who_holds_it_is_ended_and_who_shares_it_is_not),
	    cmocka_unit_test(a_number_alone_is_nobody),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
