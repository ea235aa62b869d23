/* Unit tests of src/base. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cursor.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"

static void buf_stops_at_its_maximum(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4);

	(void)state;
	assert_int_equal(buf_put(&b, "abcd", 4), 0);
	assert_int_equal(buf_putc(&b, 'e'), -E2BIG);
	assert_int_equal(b.len, 4);
	assert_string_equal(buf_text(&b), "abcd");
	assert_int_equal(buf_put(&b, "", 0), -E2BIG); /* sticks */
	buf_reset(&b);
	assert_int_equal(buf_puts(&b, "xy"), 0);
	buf_drop(&b, 1);
	assert_string_equal(buf_text(&b), "y");
}

static void cursor_failure_sticks(void **state)
{
	static const uint8_t in[] = {1, 0, 0, 0, 'x', 9};
	struct cursor c;
	struct view v;

	(void)state;
	cursor_init(&c, in, sizeof(in));
	v = cursor_bytes(&c, 8);
	assert_int_equal(v.n, 1);
	assert_int_equal(v.p[0], 'x');
	assert_false(cursor_end(&c));
	assert_int_equal(cursor_u32(&c), 0);
	assert_true(c.failed);
	assert_int_equal(cursor_u8(&c), 0);
	cursor_init(&c, in, sizeof(in));
	(void)cursor_bytes(&c, 0); /* over the caller's limit */
	assert_true(c.failed);
}

static void member_paths(void **state)
{
	static const struct {
		const char *p;
		bool ok;
	} t[] = {{"a", true},	  {"a/b", true}, {"-rf", true},	   {"a\nb", true},
		 {"\xe9", true},  {"", false},	 {"/a", false},	   {"a/", false},
		 {"a//b", false}, {".", false},	 {"a/./b", false}, {"..", false},
		 {"a/..", false}, {"...", true}, {"a/..b", true}};
	char seg[PATH_SEGMENT_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(path_is_member(t[i].p, strlen(t[i].p)), t[i].ok);
	assert_false(path_is_member("a\0b", 3));
	memset(seg, 'x', sizeof(seg));
	assert_true(path_is_member(seg, PATH_SEGMENT_MAX));
	assert_false(path_is_member(seg, PATH_SEGMENT_MAX + 1));
}

static void absolute_paths(void **state)
{
	_cleanup_free_ char *a = path_normalize("/a//b/./../c/"), *b = path_normalize("/../..");

	(void)state;
	assert_string_equal(a, "/a/c");
	assert_string_equal(b, "/");
	assert_null(path_normalize("a"));
	assert_true(path_is_absolute_normal("/"));
	assert_false(path_is_absolute_normal("/a/"));
	assert_true(path_is_within("/a/b", "/a"));
	assert_false(path_is_within("/ab", "/a"));
	assert_true(path_is_within("/a", "/"));
}

static void numbers(void **state)
{
	uint64_t v;
	int64_t d;

	(void)state;
	assert_int_equal(str_to_u64("18446744073709551616", UINT64_MAX, &v), -ERANGE);
	assert_int_equal(str_to_u64("+1", UINT64_MAX, &v), -EINVAL);
	assert_int_equal(str_to_u64("7", 6, &v), -ERANGE);
	assert_int_equal(str_to_size("1.5G", &v), 0);
	assert_int_equal(v, UINT64_C(1610612736));
	assert_int_equal(str_to_size("64MiB", &v), 0);
	assert_int_equal(v, 64 << 20);
	assert_int_equal(str_to_size("-1", &v), -EINVAL);
	assert_int_equal(str_to_size("", &v), -EINVAL);
	assert_int_equal(str_to_size("99999999T", &v), -ERANGE);
	assert_int_equal(str_to_duration("1.5", &d), 0);
	assert_int_equal(d, 1500 * NS_PER_MS);
	assert_int_equal(str_to_duration("250ms", &d), 0);
	assert_int_equal(d, 250 * NS_PER_MS);
	assert_int_equal(str_to_duration("2h", &d), 0);
	assert_int_equal(d, 7200 * NS_PER_S);
	assert_int_equal(str_to_duration("30d", &d), 0);
	assert_true(d == INT64_C(30) * 86400 * 1000000000);
	assert_int_equal(str_to_duration("1e9d", &d), -EINVAL);
	assert_int_equal(str_to_duration("999999d", &d), -ERANGE);
	assert_int_equal(str_to_duration("x", &d), -EINVAL);
}

/* B-01: text from a sandbox cannot drive the terminal. */
static void b_01_foreign_text_is_made_printable(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	static const char in[] = "a\x1b[2Jb\n\xe9\xc3\xa9\xe2\x80\xae\\";

	(void)state;
	assert_int_equal(str_printable(&b, in, sizeof(in) - 1), 0);
	assert_string_equal(buf_text(&b), "a\\x1b[2Jb\\n\\xe9\xc3\xa9\\xe2\\x80\\xae\\\\");
}

static void errors_carry_context(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(err_sys(&e, ENOENT, "open %s", "x"), -ENOENT);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_int_equal(err_wrap(&e, -ENOENT, "sync"), -ENOENT);
	assert_string_equal(e.text, "sync: open x: No such file or directory");
	assert_int_equal(err_exit_status(ERR_USAGE), 2);
	assert_string_equal(err_name(ERR_HOSTILE), "hostile");
}

static void ids_sort_by_time(void **state)
{
	char a[ID_LEN + 1], b[ID_LEN + 1];

	(void)state;
	assert_int_equal(id_new(a), 0);
	assert_int_equal(id_new(b), 0);
	assert_true(memcmp(a, b, 9) <= 0);
	assert_string_not_equal(a, b);
	assert_true(id_is_prefix(a));
	assert_false(id_is_prefix("../x"));
}

static void test_str_hex(void **state)
{
	static const uint8_t bytes[] = {0x00, 0x09, 0x0a, 0x7f, 0xf0, 0xff};
	char out[16] = "xxxxxxxxxxxxxxx";

	(void)state;
	str_hex(out, bytes, sizeof(bytes));
	assert_string_equal(out, "00090a7ff0ff");
	assert_int_equal(out[13], 'x');
	str_hex(out, bytes, 0);
	assert_string_equal(out, "");
	for (int c = -128; c < 256; c++) {
		const char *low = "0123456789abcdef", *at = c > 0 ? strchr(low, c) : NULL;

		if (c >= 'A' && c <= 'F')
			at = low + 10 + c - 'A';
		assert_int_equal(str_hex_digit((char)c), at ? (int)(at - low) : -1);
	}
}

static void test_fd_write(void **state)
{
	FILE *f = tmpfile();
	struct rlimit had, small;
	char got[16] = "";

	(void)state;
	assert_non_null(f);
	assert_int_equal(fd_write(fileno(f), "abcdef", 6), 0);
	assert_int_equal(fd_write_at(fileno(f), "XY", 2, 1), 0);
	assert_int_equal(fd_write(fileno(f), "g", 1), 0);
	assert_int_equal(pread(fileno(f), got, sizeof(got), 0), 7);
	assert_memory_equal(got, "aXYdefg", 7);
	assert_int_equal(fd_write(fileno(f), NULL, 0), 0);
	assert_int_equal(fd_write_at(fileno(f), "x", 1, UINT64_MAX), -EOVERFLOW);
	assert_int_equal(fd_write(-1, "x", 1), -EBADF);
	/* A part fits: what is left has no room behind it, and does not go over it. */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &had), 0);
	small = (struct rlimit){.rlim_cur = 4, .rlim_max = had.rlim_max};
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(fd_write_at(fileno(f), "1234", 4, 2), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &had), 0);
	(void)signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(pread(fileno(f), got, sizeof(got), 0), 7);
	assert_memory_equal(got, "aX12efg", 7);
	(void)fclose(f);
}

static void on_alarm(int signo)
{
	(void)signo;
}

static int signal_often(bool on)
{
	const struct sigaction a = {.sa_handler = on_alarm};
	const struct itimerval t = {.it_interval.tv_usec = 100, .it_value.tv_usec = 100},
			       none = {0};

	return sigaction(SIGALRM, &a, NULL) < 0 ? -1
						: setitimer(ITIMER_REAL, on ? &t : &none, NULL);
}

static void test_fd_write_piece_by_piece(void **state)
{
	enum { N = 200000 }; /* more than a pipe takes at once */
	static uint8_t sent[N], got[N + 1];
	int p[2], status = -1;
	pid_t child;

	(void)state;
	for (size_t i = 0; i < N; i++)
		sent[i] = (uint8_t)(i * 31 >> 5);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		size_t all = 0;
		ssize_t k;

		(void)close(p[1]);
		(void)poll(NULL, 0, 20); /* a while with nothing that fits */
		while ((k = read(p[0], got + all, sizeof(got) - all)) > 0)
			all += (size_t)k;
		_exit(all != N || memcmp(got, sent, N) != 0);
	}
	(void)close(p[0]);
	/* Interrupted, such a write gives the part that is out. */
	assert_int_equal(fcntl(p[1], F_SETPIPE_SZ, 4096), 4096);
	assert_int_equal(signal_often(true), 0);
	assert_int_equal(fd_write(p[1], sent, N), 0);
	assert_int_equal(signal_often(false), 0);
	(void)close(p[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_str_hex),
	    cmocka_unit_test(test_fd_write),
	    cmocka_unit_test(test_fd_write_piece_by_piece),
	    cmocka_unit_test(buf_stops_at_its_maximum),
	    cmocka_unit_test(cursor_failure_sticks),
	    cmocka_unit_test(member_paths),
	    cmocka_unit_test(absolute_paths),
	    cmocka_unit_test(numbers),
	    cmocka_unit_test(b_01_foreign_text_is_made_printable),
	    cmocka_unit_test(errors_carry_context),
	    cmocka_unit_test(ids_sort_by_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
