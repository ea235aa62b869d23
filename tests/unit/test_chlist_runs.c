/*
 * S1-09: the list of changes at its limit, with runs so small that it is quickly there. Records that leave each run
 * as empty as can be make the most runs: all that fits the limit in bytes is taken, and sorted.
 */
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

#include "base/limits.h"

/* Room for one record and almost a second one. */
#undef CHANGES_BYTES_MAX
#define CHANGES_BYTES_MAX (1 << 20)
#define RUN_BYTES 8200
#include "sync/chlist.c" /* NOLINT(bugprone-suspicious-include): with the sizes above */

static void a_list_of_long_paths_fills_its_runs_to_the_limit(void **state)
{
	struct change c = {.kind = MK_FILE, .path_len = PATH_MEMBER_MAX}, got;
	struct chlist *l = NULL;
	uint64_t n = 0;
	int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	(void)state;
	assert_int_equal(chlist_new(dir, &l), 0);
	memset(c.path, 'p', c.path_len);
	for (;;) {
		char digits[16];

		/* The last come first: sorting has something to do. */
		(void)snprintf(digits, sizeof(digits), "%08llu",
			       (unsigned long long)(99999999 - n));
		memcpy(c.path, digits, 8);
		c.seq = n;
		r = chlist_add(l, &c);
		if (r < 0)
			break;
		n++;
	}
	assert_int_equal(r, -E2BIG);
	assert_int_equal(n, CHANGES_BYTES_MAX / record_len(&c));
	assert_int_equal(chlist_seal(l), 0);
	assert_int_equal(chlist_count(l), n);
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(chlist_get(l, i, &got), 0);
		assert_int_equal(got.seq, n - 1 - i);
	}
	chlist_free(l);
	(void)close(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_list_of_long_paths_fills_its_runs_to_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
