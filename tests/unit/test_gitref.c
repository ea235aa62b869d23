/* S1-06, I6: a ref is set by compare-and-swap, and not by a git whose airlock was killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "os/beneath.h"
#include "sync/gitref.h"
#include "sync/quarantine.h"

#define MAIN "refs/heads/main"

static char top[] = "/tmp/test-gitref-XXXXXX";
static struct git_repo *g;
static char first[65], second[65];
static struct err e;

static void ask(const char *const *words, char out[65])
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct process_opts io = PROCESS_OPTS_INIT;

	io.out = &b;
	if (git_run(g, words, quarantine_identity, &io, &e) < 0)
		fail_msg("%s", e.text);
	(void)snprintf(out, 65, "%.*s", (int)strcspn(buf_text(&b), "\n"), buf_text(&b));
}

static void assert_main(const char *want)
{
	char got[65];

	ask((const char *const[]){"for-each-ref", "--format=%(objectname)", MAIN, NULL}, got);
	assert_string_equal(got, want);
}

static int set(const char *to, const char *old)
{
	return gitref_set(g, MAIN, to, old, "a message", quarantine_identity, &e);
}

static void test_compare_and_swap(void **state)
{
	(void)state;
	assert_int_equal(set(first, second), 0);
	assert_main("");
	assert_int_equal(set(first, ""), 1);
	assert_main(first);
	assert_int_equal(set(second, ""), 0);
	assert_int_equal(set(first, second), 0);
	assert_main(first);
	assert_int_equal(set(second, first), 1);
	assert_main(second);
	assert_int_equal(set(first, NULL), 1);
	assert_main(first);
	assert_int_equal(gitref_set(g, "refs/heads/a..b", first, NULL, "m", NULL, &e), 0);
}

/* A git that is about to begin when its airlock is killed: it says that it is there, and waits for a word. */
static void make_program(void)
{
	_cleanup_free_ char *path = path_join(top, "slow-git");
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);

	assert_true(fd >= 0);
	assert_true(dprintf(fd,
			    "#!/bin/sh\n"
			    "exec 9>%s/there\n"
			    "echo >&9\n"
			    "read go <%s/go\n"
			    "exec %s \"$@\"\n",
			    top, top, g->program) > 0);
	free(g->program);
	g->program = strdup(path);
	assert_non_null(g->program);
}

static void test_a_git_that_is_left_alone_moves_nothing(void **state)
{
	_cleanup_free_ char *there = path_join(top, "there"), *go = path_join(top, "go");
	_cleanup_free_ char *real = strdup(g->program);
	_cleanup_fd_ int from = -1, to = -1;
	char c;
	pid_t pid;

	(void)state;
	assert_int_equal(set(first, ""), 1);
	assert_int_equal(mkfifo(there, 0600) | mkfifo(go, 0600), 0);
	make_program();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(set(second, first) != 1);
	from = open(there, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(from, &c, 1), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	to = open(go, O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(to, "\n", 1), 1);
	while (read(from, &c, 1) > 0) /* until it has ended */
		;
	free(g->program);
	g->program = strdup(real);
	assert_main(first);
	/* Nor is a lock of it left. */
	assert_int_equal(set(second, first), 1);
}

static int set_up(void **state)
{
	struct process_opts io = PROCESS_OPTS_INIT;
	enum git_found found;
	int status = 1;

	(void)state;
	e = (struct err)ERR_INIT;
	memcpy(top + sizeof(top) - 7, "XXXXXX", 6);
	if (!mkdtemp(top))
		return -1;
	(void)alarm(60); /* a word that is never said must not hang the suite */
	io.argv = (const char *const[]){"git", "init", "-q", "-b", "main", top, NULL};
	io.envp = (const char *const *)environ;
	if (process_run(&io, &status, NULL, &e) < 0 || status ||
	    git_open(top, false, NULL, &g, &found, &e) < 0 || found != GIT_FOUND_REPO)
		return -1;
	ask((const char *const[]){"commit-tree", git_empty_tree(g), "-m", "1", NULL}, first);
	ask((const char *const[]){"commit-tree", git_empty_tree(g), "-m", "2", NULL}, second);
	return 0;
}

static int tear_down(void **state)
{
	struct beneath b = {.root = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	int r = beneath_remove_tree(&b, top + 5);

	(void)state;
	(void)alarm(0);
	git_free(g);
	g = NULL;
	cleanup_fd(&b.root);
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_compare_and_swap, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_git_that_is_left_alone_moves_nothing, set_up,
					    tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
