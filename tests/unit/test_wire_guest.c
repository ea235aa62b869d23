/* Unit tests of src/wire/guest.c: what comes from a guest is untrusted (RT-06). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "wire/guest.h"

#define S(lit) ((char *)(uintptr_t)(lit))

static struct view view_of(const struct buf *b)
{
	return (struct view){buf_text(b), b->len};
}

/* J14: newline, quotes, other bytes and a long value travel as they are. */
static void exec_survives_the_round_trip(void **state)
{
	char *argv[] = {S("sh"),   S("-c"), S("printf '%s|' \"$@\""), S("n"), S("a b"), S(""),
			S("it's"), NULL};
	_cleanup_free_ char *big = calloc(1, ENV_VALUE_MAX + 1);
	char *env[] = {S("A=line\nline"), S("B="), S("C='\"$x\xff"), big, NULL};
	struct gm_exec m = {7, GX_TTY, 24, 80, S("/workspace"), argv, env}, got;
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);

	(void)state;
	memset(big, 'x', ENV_VALUE_MAX);
	big[1] = '=';
	assert_int_equal(gm_exec_put(&b, &m), 0);
	assert_int_equal(gm_exec_get(view_of(&b), &got), 0);
	assert_int_equal(got.id, 7);
	assert_int_equal(got.flags, GX_TTY);
	assert_int_equal(got.rows, 24);
	assert_int_equal(got.cols, 80);
	assert_string_equal(got.cwd, "/workspace");
	for (size_t i = 0; i < ARRAY_LEN(argv) - 1; i++)
		assert_string_equal(got.argv[i], argv[i]);
	assert_null(got.argv[ARRAY_LEN(argv) - 1]);
	for (size_t i = 0; i < ARRAY_LEN(env) - 1; i++)
		assert_string_equal(got.env[i], env[i]);
	assert_null(got.env[ARRAY_LEN(env) - 1]);
	gm_exec_done(&got);
	gm_exec_done(&got);
}

static void exec_cut_or_lengthened_is_refused(void **state)
{
	char *argv[] = {S("true"), NULL}, *env[] = {S("A=1"), NULL};
	struct gm_exec m = {1, 0, 0, 0, S("/"), argv, env}, got;
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	(void)state;
	assert_int_equal(gm_exec_put(&b, &m), 0);
	for (size_t n = 0; n < b.len; n++) {
		assert_int_equal(gm_exec_get((struct view){b.data, n}, &got), -EPROTO);
		gm_exec_done(&got);
	}
	(void)buf_u8(&b, 0);
	assert_int_equal(gm_exec_get(view_of(&b), &got), -EPROTO);
	gm_exec_done(&got);
}

static void raw_exec(struct buf *b, uint32_t flags, const char *cwd, uint32_t argc, uint32_t envc)
{
	(void)buf_u32(b, 1);
	(void)buf_u32(b, flags);
	(void)buf_u32(b, 1);
	(void)buf_u32(b, 1);
	(void)buf_str(b, cwd);
	(void)buf_u32(b, argc);
	if (argc == 1)
		(void)buf_str(b, "true");
	(void)buf_u32(b, envc);
}

static void exec_with_bad_fields_is_refused(void **state)
{
	static const struct {
		uint32_t flags;
		const char *cwd;
		uint32_t argc, envc;
	} bad[] = {
	    {2, "/", 1, 0},	      /* unknown flag */
	    {0, "work", 1, 0},	      /* relative directory */
	    {0, "", 1, 0},	      /* no directory */
	    {0, "/", 0, 0},	      /* no command */
	    {0, "/", 0x40000000u, 0}, /* a vector of 8 GiB from 40 bytes */
	    {0, "/", 1, 0x40000000u},
	    {0, "/", 1, 1}, /* a variable that is not there */
	};
	struct gm_exec got;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1024);

		raw_exec(&b, bad[i].flags, bad[i].cwd, bad[i].argc, bad[i].envc);
		assert_int_equal(gm_exec_get(view_of(&b), &got), -EPROTO);
		gm_exec_done(&got);
	}
}

static void exec_with_bad_words_is_refused(void **state)
{
	static const struct view words[] = {{"A", 1}, {"=1", 2}, {"=", 1}, {"", 0}, {"A=\0b", 4}};
	struct gm_exec got;

	(void)state;
	for (size_t i = 0; i <= ARRAY_LEN(words); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

		raw_exec(&b, 0, "/", 1, 1);
		if (i < ARRAY_LEN(words)) {
			(void)buf_bytes(&b, words[i].p, words[i].n);
		} else {
			(void)buf_u32(&b, ENV_VALUE_MAX + 1);
			(void)buf_puts(&b, "A=");
			for (size_t k = 2; k < ENV_VALUE_MAX + 1; k++)
				(void)buf_putc(&b, 'x');
		}
		assert_int_equal(b.err, 0);
		assert_int_equal(gm_exec_get(view_of(&b), &got), -EPROTO);
		gm_exec_done(&got);
	}
}

static void exec_put_refuses_what_get_would(void **state)
{
	char *argv[] = {S("true"), NULL}, *none[] = {NULL}, *bad[] = {S("A"), NULL};
	_cleanup_free_ char **many = calloc(ENV_MAX + 2, sizeof(*many));
	_cleanup_free_ char *lng = calloc(1, ENV_VALUE_MAX + 2);
	char *lngv[] = {lng, NULL};
	const struct {
		struct gm_exec m;
		int want;
	} rows[] = {
	    {{1, 0, 0, 0, S("/"), none, none}, -EINVAL},
	    {{1, 0, 0, 0, S("x"), argv, none}, -EINVAL},
	    {{1, 8, 0, 0, S("/"), argv, none}, -EINVAL},
	    {{1, 0, 65536, 0, S("/"), argv, none}, -EINVAL},
	    {{1, 0, 0, 0, S("/"), argv, bad}, -EINVAL},
	    {{1, 0, 0, 0, S("/"), argv, many}, -E2BIG},
	    {{1, 0, 0, 0, S("/"), lngv, none}, -E2BIG},
	};

	(void)state;
	memset(lng, 'a', ENV_VALUE_MAX + 1);
	for (size_t i = 0; i < ENV_MAX + 1; i++)
		many[i] = S("A=1");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);

		assert_int_equal(gm_exec_put(&b, &rows[i].m), rows[i].want);
		assert_int_equal(b.len, 0);
	}
}

static void signal_and_winsize_are_exact(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct gm_signal s;
	struct gm_winsize w;

	(void)state;
	assert_int_equal(gm_signal_put(&b, &(struct gm_signal){3, 15}), 0);
	assert_int_equal(gm_signal_get(view_of(&b), &s), 0);
	assert_int_equal(s.id, 3);
	assert_int_equal(s.signo, 15);
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(gm_signal_get((struct view){b.data, n}, &s), -EPROTO);
	(void)buf_u8(&b, 0);
	assert_int_equal(gm_signal_get(view_of(&b), &s), -EPROTO);
	assert_int_equal(gm_signal_put(&b, &(struct gm_signal){3, 0}), -EINVAL);
	assert_int_equal(gm_signal_put(&b, &(struct gm_signal){3, 65}), -EINVAL);
	buf_reset(&b);
	(void)buf_u32(&b, 3);
	(void)buf_u32(&b, 65);
	assert_int_equal(gm_signal_get(view_of(&b), &s), -EPROTO);
	buf_reset(&b);
	assert_int_equal(gm_winsize_put(&b, &(struct gm_winsize){3, 50, 132}), 0);
	assert_int_equal(gm_winsize_get(view_of(&b), &w), 0);
	assert_int_equal(w.rows, 50);
	assert_int_equal(w.cols, 132);
	b.data[10] = 1; /* columns 65668 */
	assert_int_equal(gm_winsize_get(view_of(&b), &w), -EPROTO);
}

static void events_of_a_guest_are_judged(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);
	struct gm_exited x;
	struct gm_packed p;
	struct gm_failed f;

	(void)state;
	assert_int_equal(gm_exited_put(&b, &(struct gm_exited){9, 3, 0, 2, 5000000000u, 1024}), 0);
	assert_int_equal(gm_exited_get(view_of(&b), &x), 0);
	assert_int_equal(x.code, 3);
	assert_int_equal(x.leftovers, 2);
	assert_int_equal(x.cpu_ns, 5000000000u);
	assert_int_equal(gm_exited_get((struct view){b.data, b.len - 1}, &x), -EPROTO);
	b.data[8] = 9; /* a code and a signal at once */
	assert_int_equal(gm_exited_get(view_of(&b), &x), -EPROTO);
	b.data[8] = 0;
	b.data[5] = 1; /* exit code 259 */
	assert_int_equal(gm_exited_get(view_of(&b), &x), -EPROTO);
	buf_reset(&b);
	assert_int_equal(gm_packed_put(&b, &(struct gm_packed){1, ENOSPC, 10, 2, 3, 4}), 0);
	assert_int_equal(gm_packed_get(view_of(&b), &p), 0);
	assert_int_equal(p.error, ENOSPC);
	assert_int_equal(p.left_out, 4);
	assert_int_equal(gm_packed_get((struct view){b.data, 12}, &p), -EPROTO);
	buf_reset(&b);
	assert_int_equal(gm_failed_put(&b, &(struct gm_failed){4, ENOENT, "execve"}), 0);
	assert_int_equal(gm_failed_get(view_of(&b), &f), 0);
	assert_string_equal(f.step, "execve");
	b.data[12] = '\x1b'; /* an escape sequence in a message for a terminal */
	assert_int_equal(gm_failed_get(view_of(&b), &f), -EPROTO);
	assert_int_equal(gm_failed_put(&b, &(struct gm_failed){4, 0, "execve"}), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(exec_survives_the_round_trip),
	    cmocka_unit_test(exec_cut_or_lengthened_is_refused),
	    cmocka_unit_test(exec_with_bad_fields_is_refused),
	    cmocka_unit_test(exec_with_bad_words_is_refused),
	    cmocka_unit_test(exec_put_refuses_what_get_would),
	    cmocka_unit_test(signal_and_winsize_are_exact),
	    cmocka_unit_test(events_of_a_guest_are_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
