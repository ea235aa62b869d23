/* Unit tests of src/policy/pattern.c. tests/integ/test_syncin.py compares it with git itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "policy/pattern.h"

static enum pattern_verdict ask(const char *text, const char *path, bool is_dir)
{
	struct pattern_list l = {0};
	enum pattern_verdict v;

	assert_int_equal(pattern_list_parse(&l, text, strlen(text), NULL), 0);
	v = pattern_list_match(&l, path, strlen(path), is_dir);
	pattern_list_done(&l);
	return v;
}

/* D5, D7: names that are patterns, and anchored names that occur deeper as well. */
static void table_of_gitignore_rules_D5_D7(void **state)
{
	static const struct {
		const char *text, *path;
		bool dir;
		enum pattern_verdict want;
	} t[] = {
	    {"foo", "foo", false, PATTERN_MATCH},
	    {"foo", "a/b/foo", false, PATTERN_MATCH},
	    {"foo", "food", false, PATTERN_NONE},
	    {"/config", "config", true, PATTERN_MATCH},
	    {"/config", "src/config", true, PATTERN_NONE},
	    {"a/b", "a/b", false, PATTERN_MATCH},
	    {"a/b", "x/a/b", false, PATTERN_NONE},
	    {"build/", "build", true, PATTERN_MATCH},
	    {"build/", "build", false, PATTERN_NONE},
	    {"build/", "x/build", true, PATTERN_MATCH},
	    {"*.o", "x/y.o", false, PATTERN_MATCH},
	    {"*.o", ".o", false, PATTERN_MATCH},
	    {"*.o", "y.o/z", false, PATTERN_NONE},
	    {"/*.o", "x/y.o", false, PATTERN_NONE},
	    {"*.o\n!keep.o", "keep.o", false, PATTERN_NEGATED},
	    {"!keep.o\n*.o", "keep.o", false, PATTERN_MATCH},
	    {"**/x", "x", false, PATTERN_MATCH},
	    {"**/x", "a/b/x", false, PATTERN_MATCH},
	    {"**/x", "ax", false, PATTERN_NONE},
	    {"a/**", "a/b/c", false, PATTERN_MATCH},
	    {"a/**", "a", true, PATTERN_NONE},
	    {"a/**/z", "a/z", false, PATTERN_MATCH},
	    {"a/**/z", "a/b/c/z", false, PATTERN_MATCH},
	    {"a/**/z", "a/bz", false, PATTERN_NONE},
	    {"a/x**/z", "a/xy/z", false, PATTERN_MATCH},
	    {"a/x**/z", "a/xy/q/z", false, PATTERN_NONE},
	    {"a/*/z", "a/b/c/z", false, PATTERN_NONE},
	    {"a?c", "abc", false, PATTERN_MATCH},
	    {"/a?c", "a/c", false, PATTERN_NONE},
	    {"[a]", "a", false, PATTERN_MATCH},
	    {"[a]", "[a]", false, PATTERN_NONE},
	    {"\\[a]", "[a]", false, PATTERN_MATCH},
	    {"\\*", "*", false, PATTERN_MATCH},
	    {"\\*", "x", false, PATTERN_NONE},
	    {"\\?", "?", false, PATTERN_MATCH},
	    {"a\\\\b", "a\\b", false, PATTERN_MATCH},
	    {"[!a-c]x", "dx", false, PATTERN_MATCH},
	    {"[^a-c]x", "bx", false, PATTERN_NONE},
	    {"[]x]", "]", false, PATTERN_MATCH},
	    {"[[:digit:]a]", "7", false, PATTERN_MATCH},
	    {"[[:digit:]a]", "b", false, PATTERN_NONE},
	    {"[[:nope:]]", "n", false, PATTERN_NONE},
	    {"[a", "[a", false, PATTERN_NONE},
	    {"/[^a]b", "/b", false, PATTERN_NONE},
	    {"x\\", "x", false, PATTERN_NONE},
	    {"# no", "# no", false, PATTERN_NONE},
	    {"\\# yes", "# yes", false, PATTERN_MATCH},
	    {"\\!x", "!x", false, PATTERN_MATCH},
	    {"sp  ", "sp", false, PATTERN_MATCH},
	    {"sp\\ ", "sp ", false, PATTERN_MATCH},
	    {"dos\r\nx\r\n", "dos", false, PATTERN_MATCH},
	    {"\xef\xbb\xbf"
	     "bom",
	     "bom", false, PATTERN_MATCH},
	    {"\xe9*", "a/\xe9\xff", false, PATTERN_MATCH},
	    {"", "x", false, PATTERN_NONE},
	    {"/", "x", true, PATTERN_NONE},
	    {"!", "x", false, PATTERN_NONE},
	    {"-rf", "-rf", false, PATTERN_MATCH},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		if (ask(t[i].text, t[i].path, t[i].dir) != t[i].want)
			fail_msg("pattern '%s' path '%s'", t[i].text, t[i].path);
}

/* A pattern of a hostile repository costs a product, not a power. */
static void stars_do_not_explode(void **state)
{
	char pat[256], path[4000];
	size_t k = 0;
	int64_t t0 = clock_mono_ns();

	(void)state;
	for (int i = 0; i < 60; i++) {
		pat[k++] = '*';
		pat[k++] = 'a';
	}
	pat[k++] = 'b';
	pat[k] = '\0';
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(ask(pat, path, false), PATTERN_NONE);
	assert_true(clock_mono_ns() - t0 < 2 * NS_PER_S);
}

static void number_of_patterns_is_limited(void **state)
{
	struct pattern_list l = {0};
	struct err e = ERR_INIT;

	(void)state;
	for (int i = 0; i < PATTERNS_MAX; i++)
		assert_int_equal(pattern_list_add(&l, "x", 1, &e), 0);
	assert_int_equal(pattern_list_add(&l, "x", 1, &e), -E2BIG);
	assert_int_equal(e.code, ERR_LIMIT);
	pattern_list_done(&l);
}

static void reach_below_a_directory(void **state)
{
	static const struct {
		const char *pat, *dir;
		bool want;
	} t[] = {
	    {"*.log", "build", true},	      {"/build/keep", "build", true},
	    {"/build/keep", "other", false},  {"/build", "build", false},
	    {"/b*/x", "build", true},	      {"/build/a/b", "build/a", true},
	    {"/build/a/b", "build/c", false}, {"/build/a/b", "build/a/b/c", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct pattern_list l = {0};

		assert_int_equal(pattern_list_add(&l, t[i].pat, strlen(t[i].pat), NULL), 0);
		if (pattern_list_reaches_below(&l, t[i].dir, strlen(t[i].dir)) != t[i].want)
			fail_msg("%s below %s", t[i].pat, t[i].dir);
		pattern_list_done(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(table_of_gitignore_rules_D5_D7),
	    cmocka_unit_test(stars_do_not_explode),
	    cmocka_unit_test(number_of_patterns_is_limited),
	    cmocka_unit_test(reach_below_a_directory),
	};

	return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
