/* Unit tests of src/wire/remote_box.c: what asks for a sandbox on another machine, and what keeps one from starting (RT-06). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "wire/remote_box.h"

#define S(lit) ((char *)(uintptr_t)(lit))
#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct view view_of(const struct buf *b)
{
	return (struct view){buf_text(b), b->len};
}

static struct rm_box plain(void)
{
	return (struct rm_box){.net = 1,
			       .without = 8,
			       .memory_bytes = UINT64_C(1) << 40,
			       .pids = 7,
			       .cpu_milli = 1500,
			       .launch = S(HASH),
			       .gateway = S(""),
			       .run = S(""),
			       .guest = S("/g"),
			       .gateway_path = S("")};
}

static void a_request_survives_the_round_trip(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	struct rm_box m = plain(), got;

	(void)state;
	assert_int_equal(rm_box_put(&b, &m), 0);
	assert_int_equal(rm_box_get(view_of(&b), &got), 0);
	assert_int_equal(got.net, 1);
	assert_int_equal(got.without, 8);
	assert_true(got.memory_bytes == UINT64_C(1) << 40 && got.pids == 7 &&
		    got.cpu_milli == 1500);
	assert_string_equal(got.launch, HASH);
	assert_string_equal(got.guest, "/g");
	rm_box_done(&got);
	/* Every shorter one, and one that goes on, is refused. */
	for (size_t n = 0; n < b.len; n++) {
		assert_int_equal(rm_box_get((struct view){b.data, n}, &got), -EPROTO);
		rm_box_done(&got);
	}
	(void)buf_u8(&b, 0);
	assert_int_equal(rm_box_get(view_of(&b), &got), -EPROTO);
	rm_box_done(&got);
}

/* The hash becomes part of a file name that is executed, the paths part of a plan. */
static void names_that_lead_elsewhere_are_refused(void **state)
{
	static const char *const bad[] = {"", "x", "../../../../bin/sh", HASH "0",
					  ("0123456789abcdef0123456789abcdef"
					   "0123456789abcdef0123456789abcde/")};
	static const char *const paths[] = {"run", "/a/../b", "/a//b", "/a/"};
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct rm_box m = plain();

		m.launch = S(bad[i]);
		assert_int_equal(rm_box_put(&b, &m), -EINVAL);
		m = plain();
		m.gateway = S(bad[i]);
		assert_int_equal(rm_box_put(&b, &m), bad[i][0] ? -EINVAL : 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct rm_box m = plain();

		m.run = S(paths[i]);
		assert_int_equal(rm_box_put(&b, &m), -EINVAL);
	}
}

static void what_keeps_one_from_starting_survives(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct rm_not_boxed got;

	(void)state;
	assert_int_equal(rm_not_boxed_put(&b, &(struct rm_not_boxed){3, ENOSPC, S("/x\xff")}), 0);
	assert_int_equal(rm_not_boxed_get(view_of(&b), &got), 0);
	assert_int_equal(got.step, 3);
	assert_int_equal(got.error, ENOSPC);
	assert_string_equal(got.text, "/x\xff");
	free(got.text);
	assert_int_equal(rm_not_boxed_get((struct view){b.data, b.len - 1}, &got), -EPROTO);
	free(got.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_request_survives_the_round_trip),
	    cmocka_unit_test(names_that_lead_elsewhere_are_refused),
	    cmocka_unit_test(what_keeps_one_from_starting_survives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
