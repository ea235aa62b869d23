/* Unit tests of src/os/process.c: real programs, every limit seen to fire. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/process.h"

static const char *const env[] = {"PATH=/usr/bin:/bin", "A=1", NULL};

#define SH(script)                              \
	{                                       \
		"/bin/sh", "-c", (script), NULL \
	}

static void captures_and_feeds(void **state)
{
	const char *const argv[] = SH("cat; echo \"$A $B\"; echo oops >&2; exit 3");
	_cleanup_buf_ struct buf out = BUF_INIT(1024);
	struct process_opts o = PROCESS_OPTS_INIT;
	char tail[PROCESS_TAIL_MAX + 1];
	int st;

	(void)state;
	assert_int_equal(setenv("B", "leaked", 1), 0);
	o.argv = argv;
	o.envp = env;
	o.in = "hello ";
	o.in_len = 6;
	o.out = &out;
	assert_int_equal(process_run(&o, &st, tail, NULL), 0);
	assert_int_equal(st, 3);
	assert_string_equal(buf_text(&out), "hello 1 \n");
	assert_string_equal(tail, "oops\n");
}

/* More than a pipe holds in both directions at once must not stall. */
static void feeds_and_reads_together(void **state)
{
	const char *const argv[] = SH("cat");
	_cleanup_buf_ struct buf out = BUF_INIT(4 << 20);
	_cleanup_free_ char *big = calloc(1, 3 << 20);
	struct process_opts o = PROCESS_OPTS_INIT;
	int st;

	(void)state;
	assert_non_null(big);
	o.argv = argv;
	o.envp = env;
	o.in = big;
	o.in_len = 3 << 20;
	o.out = &out;
	o.timeout_ms = 20000;
	assert_int_equal(process_run(&o, &st, NULL, NULL), 0);
	assert_int_equal(st, 0);
	assert_int_equal(out.len, 3 << 20);
}

/* A child that closes stdin early costs no SIGPIPE. */
static void reader_that_leaves(void **state)
{
	const char *const argv[] = SH("exec <&-; exit 5");
	_cleanup_free_ char *big = calloc(1, 1 << 20);
	struct process_opts o = PROCESS_OPTS_INIT;
	int st;

	(void)state;
	o.argv = argv;
	o.envp = env;
	o.in = big;
	o.in_len = 1 << 20;
	assert_int_equal(process_run(&o, &st, NULL, NULL), 0);
	assert_int_equal(st, 5);
}

static void limits_fire_and_kill_the_group(void **state)
{
	const char *const sleeper[] = SH("sleep 100 & echo $!; wait");
	const char *const yes[] = SH("exec yes");
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	struct process_opts o = PROCESS_OPTS_INIT;
	struct err e = ERR_INIT;
	volatile int cancel = 1;
	int64_t until;
	uint64_t pid;
	int st;

	(void)state;
	o.argv = sleeper;
	o.envp = env;
	o.out = &out;
	o.timeout_ms = 300;
	assert_int_equal(process_run(&o, &st, NULL, &e), -ETIMEDOUT);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_non_null(strstr(e.text, "300 ms"));
	pid = strtoull(buf_text(&out), NULL, 10);
	assert_true(pid > 1);
	/* The grandchild was in the group: gone, or a zombie of init, within the deadline. */
	until = clock_mono_ns() + 5 * NS_PER_S;
	while (kill((pid_t)pid, 0) == 0 && clock_mono_ns() < until) {
		char name[64], stat[256] = "";
		FILE *f;

		(void)snprintf(name, sizeof(name), "/proc/%llu/stat", (unsigned long long)pid);
		f = fopen(name, "re");
		if (!f || !fgets(stat, sizeof(stat), f) || strstr(stat, ") Z "))
			until = 0;
		if (f)
			(void)fclose(f);
	}
	assert_true(until == 0 || kill((pid_t)pid, 0) < 0);

	buf_reset(&out);
	o.argv = yes;
	o.timeout_ms = 20000;
	assert_int_equal(process_run(&o, &st, NULL, &e), -E2BIG);
	assert_int_equal(e.code, ERR_LIMIT);

	o.argv = sleeper;
	o.cancel = &cancel;
	assert_int_equal(process_run(&o, &st, NULL, &e), -ECANCELED);
}

static void program_that_is_missing(void **state)
{
	const char *const argv[] = {"/nonexistent/git", NULL};
	struct process_opts o = PROCESS_OPTS_INIT;
	struct err e = ERR_INIT;
	int st;

	(void)state;
	o.argv = argv;
	o.envp = env;
	assert_int_equal(process_run(&o, &st, NULL, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/git"));
}

/* A child gets nothing of ours but 0, 1 and 2. */
static void no_descriptor_leaks(void **state)
{
	const char *const argv[] = SH("ls /proc/self/fd | wc -l");
	_cleanup_buf_ struct buf out = BUF_INIT(64);
	_cleanup_fd_ int extra = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct process_opts o = PROCESS_OPTS_INIT;
	int st;

	(void)state;
	assert_true(extra >= 0);
	o.argv = argv;
	o.envp = env;
	o.out = &out;
	assert_int_equal(process_run(&o, &st, NULL, NULL), 0);
	assert_string_equal(buf_text(&out), "4\n"); /* and the one that ls opened */
}

struct seen {
	int n;
	size_t longest;
};

static int count(void *arg, const char *p, size_t n)
{
	struct seen *s = arg;

	assert_int_equal(p[n], '\0');
	s->n++;
	if (n > s->longest)
		s->longest = n;
	return s->n == 20001 ? -ECONNABORTED : 0;
}

/* FR-B073: thousands of names go over a zero-separated stream, cut anywhere. */
static void records_of_any_cut_FR_B073(void **state)
{
	const char *const argv[] =
	    SH("i=0; while [ $i -lt 20000 ]; do printf 'n %s\\n\\0' $i; i=$((i+1)); done");
	struct seen s = {0};
	struct process_records rec = {.on_record = count, .arg = &s, .rest = BUF_INIT(64)};
	struct process_opts o = PROCESS_OPTS_INIT;
	int st;

	(void)state;
	o.argv = argv;
	o.envp = env;
	o.on_out = process_split_nul;
	o.on_out_arg = &rec;
	o.timeout_ms = 20000;
	assert_int_equal(process_run(&o, &st, NULL, NULL), 0);
	assert_int_equal(s.n, 20000);
	assert_int_equal(s.longest, 8);
	buf_done(&rec.rest);
	/* Longer than the limit, and a consumer that stops. */
	rec.rest = BUF_INIT(4);
	assert_int_equal(process_split_nul(&rec, "abcdef", 6), -E2BIG);
	rec.rest = BUF_INIT(64);
	assert_int_equal(process_split_nul(&rec, "a\0b", 3), -ECONNABORTED);
	buf_done(&rec.rest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(captures_and_feeds),
	    cmocka_unit_test(feeds_and_reads_together),
	    cmocka_unit_test(reader_that_leaves),
	    cmocka_unit_test(limits_fire_and_kill_the_group),
	    cmocka_unit_test(program_that_is_missing),
	    cmocka_unit_test(no_descriptor_leaks),
	    cmocka_unit_test(records_of_any_cut_FR_B073),
	};

	return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
