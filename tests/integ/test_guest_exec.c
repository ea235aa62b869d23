/* The real airlock-guest runs commands: exec semantics, trees, limits (RT-04, RT-05, RT-06). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "guest_box.h"

#define S(lit) ((char *)(uintptr_t)(lit))

static enum box_mode mode;

static void hello(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = box_run(&b, "echo out; echo err >&2; exit 3");
	assert_true(c->started);
	assert_string_equal(buf_text(&c->got_out), "out\n");
	assert_string_equal(buf_text(&c->got_err), "err\n");
	assert_int_equal(c->exit.code, 3);
	assert_int_equal(c->exit.signo, 0);
	assert_int_equal(c->exit.leftovers, 0);
	assert_true(c->exit.maxrss_kib > 0);
	assert_int_equal(box_stop(&b), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hello),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	mode = argc > 1 && strcmp(argv[1], "pid1") == 0 ? BOX_PID1 : BOX_PLAIN;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
