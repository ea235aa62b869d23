/* Names that make a repository of a directory (F5). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "policy/gitlayout.h"

static void F5_which_name_it_is(void **state)
{
	static const struct {
		const char *name;
		int which;
	} rows[] = {{"config", GITLAYOUT_CONFIG},
		    {"CONFIG", GITLAYOUT_CONFIG},
		    {"config.worktree", GITLAYOUT_WORKTREE},
		    {"hooks", GITLAYOUT_HOOKS},
		    {"commondir", GITLAYOUT_COMMONDIR},
		    {"HEAD", GITLAYOUT_HEAD},
		    {"Head", GITLAYOUT_HEAD},
		    {"objects", GITLAYOUT_OBJECTS},
		    {"refs", GITLAYOUT_REFS},
		    {("con\xe2\x80\x8c"
		      "fig"),
		     GITLAYOUT_CONFIG}, /* a character that HFS+ ignores */
		    {"heads", -1},
		    {"conf", -1},
		    {"", -1}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(gitlayout_which(rows[i].name, strlen(rows[i].name)),
				 rows[i].which);
	for (int i = 0; i < GITLAYOUT_COUNT; i++) {
		const char *name = gitlayout_on_disk((enum gitlayout_name)i);

		assert_int_equal(gitlayout_which(name, strlen(name)), i);
	}
}

/* Against git's own rule, for all 128 sets of names. */
static void F5_which_sets_are_repositories(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1u << GITLAYOUT_COUNT; bits++) {
		int head = bits >> GITLAYOUT_HEAD & 1, objects = bits >> GITLAYOUT_OBJECTS & 1;
		int refs = bits >> GITLAYOUT_REFS & 1, other = bits >> GITLAYOUT_COMMONDIR & 1;

		assert_int_equal(gitlayout_is(bits), head && (other || (objects && refs)));
	}
	assert_int_equal(GITLAYOUT_ORDERS, 0xf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(F5_which_name_it_is),
	    cmocka_unit_test(F5_which_sets_are_repositories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
