/* Terminals of the real airlock-guest: relay, size, end of file, nothing lost at the end (RT-05). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest_box.h"

#define S(lit) ((char *)(uintptr_t)(lit))

static enum box_mode mode;

static struct box_cmd *tty_sh(struct box *b, const char *script, const char *input)
{
	static char *const env[] = {S("PATH=/usr/bin:/bin"), S("TERM=dumb"), NULL};
	char *argv[] = {S("sh"), S("-c"), S(script), NULL};

	return box_exec(b, argv, env, NULL, input, input ? strlen(input) : 0,
			BOX_TTY | BOX_NO_STDERR);
}

static void it_is_a_terminal_of_the_given_size(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = tty_sh(&b, "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size && tty && : >/dev/tty", NULL);
	box_finish(&b, c);
	assert_int_equal(c->exit.code, 0);
	assert_memory_equal(buf_text(&c->got_out), "24 80\r\n/dev/pts/", 16);
	assert_int_equal(box_stop(&b), 0);
}

static void input_is_echoed_and_ends(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	/* The input ends without a newline: cat still gets the last word, then end of file. */
	c = tty_sh(&b, "echo up; cat", "one\ntwo");
	box_finish(&b, c);
	assert_int_equal(c->exit.code, 0);
	assert_non_null(strstr(buf_text(&c->got_out), "one\r\n"));
	/* Once as the terminal's echo, once from cat. */
	assert_non_null(strstr(strstr(buf_text(&c->got_out), "two") + 3, "two"));
	assert_int_equal(box_stop(&b), 0);
}

static void a_new_size_is_announced(void **state)
{
	_cleanup_buf_ struct buf p = BUF_INIT(16);
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = tty_sh(&b, "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.02; done",
		   NULL);
	box_expect(&b, c, "up");
	assert_int_equal(gm_winsize_put(&p, &(struct gm_winsize){c->id, 50, 132}), 0);
	box_send(&b, GM_WINSIZE, &p);
	box_finish(&b, c);
	assert_non_null(strstr(buf_text(&c->got_out), "50 132\r\n"));
	assert_int_equal(box_stop(&b), 0);
}

static void a_typed_interrupt_is_a_signal(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = tty_sh(&b, "echo up; exec sleep 600", "\003");
	c->input_left = 0;
	box_expect(&b, c, "up");
	c->input_left = 1;
	box_finish(&b, c);
	assert_int_equal(c->exit.signo, SIGINT);
	assert_int_equal(box_stop(&b), 0);
}

/* FR-B028: also with a terminal the last bytes arrive, read late or not. */
static void nothing_is_lost_at_the_end(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	for (int i = 0; i < 50; i++) {
		c = tty_sh(&b, i % 2 ? "printf late" : "seq 1 2000; printf late", NULL);
		box_finish(&b, c);
		assert_true(c->got_out.len >= 4);
		assert_string_equal(c->got_out.data + c->got_out.len - 4, "late");
		if (i % 2 == 0)
			assert_int_equal(c->got_out.len, 8893 + 2000 + 4);
	}
	c = tty_sh(&b, "head -c 3000000 /dev/zero | tr '\\0' x; printf late", NULL);
	c->hold_out = true;
	box_finish(&b, box_sh(&b, "true"));
	assert_false(c->exited);
	c->hold_out = false;
	box_finish(&b, c);
	assert_int_equal(c->got_out.len, 3000004);
	assert_int_equal(box_stop(&b), 0);
}

/* A client that never reads holds up its own command only, and KILL still ends that. */
static void kill_unread(bool twice)
{
	struct box b;
	struct box_cmd *c;

	box_start(&b, mode, -1);
	c = tty_sh(&b, "exec cat /dev/zero", NULL);
	c->hold_out = true;
	while (!c->started)
		assert_true(box_turn(&b, clock_mono_ns() + 10 * NS_PER_S));
	box_signal(&b, c, SIGKILL);
	/* A second one is no more than haste: both may be taken as one. */
	if (twice)
		box_signal(&b, c, SIGKILL);
	box_finish(&b, c);
	assert_int_equal(box_stop(&b), 0);
}

static void kill_ends_a_terminal_nobody_reads(void **state)
{
	(void)state;
	kill_unread(true);
	kill_unread(false);
}

static void leftovers_hold_no_terminal(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = tty_sh(&b, "{ trap '' HUP; sleep 600 & } ; echo done", NULL);
	box_finish(&b, c);
	assert_string_equal(buf_text(&c->got_out), "done\r\n");
	assert_int_equal(c->exit.leftovers, 1);
	assert_int_equal(box_stop(&b), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_is_a_terminal_of_the_given_size),
	    cmocka_unit_test(input_is_echoed_and_ends),
	    cmocka_unit_test(a_new_size_is_announced),
	    cmocka_unit_test(a_typed_interrupt_is_a_signal),
	    cmocka_unit_test(nothing_is_lost_at_the_end),
	    cmocka_unit_test(kill_ends_a_terminal_nobody_reads),
	    cmocka_unit_test(leftovers_hold_no_terminal),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	mode = argc > 1 && strcmp(argv[1], "pid1") == 0 ? BOX_PID1 : BOX_PLAIN;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
