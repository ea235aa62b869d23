/* Variables a user gives: dotenv syntax with line numbers, FR-B155 (dangerous names), FR-B162 (reserved names). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "policy/envvars.h"

static void test_good(void **state)
{
	static const struct {
		const char *text, *want; /* want: words joined by '|' */
	} rows[] = {
	    {"", ""},
	    {"A=1", "A=1"},
	    {"A=1\nB=2\n", "A=1|B=2"},
	    {"# c\n\n  A = 1  \n", "A=1"},
	    {"export A=1\n", "A=1"},
	    {"A=x y # c\n", "A=x y"},
	    {"A=x#y\n", "A=x#y"},
	    {"A=#x\n", "A=#x"},
	    {"A=\n", "A="},
	    {"A=''\n", "A="},
	    {"A='a b\\n$X'\n", "A=a b\\n$X"},
	    {"A=\"a\\nb\\t\\\"\\\\\\$\"\n", "A=a\nb\t\"\\$"},
	    {"A=\"l1\nl2\"\nB=3", "A=l1\nl2|B=3"},
	    {"A='l1\nl2' # c\n", "A=l1\nl2"},
	    {"A=1\r\nB=2\r\n", "A=1|B=2"},
	    {"\xef\xbb\xbf"
	     "A=1\n",
	     "A=1"},
	    {"A=1\nA=2\n", "A=2"},
	    {"A=$(id) `id` ${B}\n", "A=$(id) `id` ${B}"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf b = BUF_INIT(4096);
		struct err e = ERR_INIT;
		char **v = NULL;

		if (envvars_parse("f", rows[i].text, strlen(rows[i].text), &v, &e) < 0)
			fail_msg("row %zu: %s", i, e.text);
		for (size_t k = 0; k < strv_len(v); k++)
			(void)buf_putf(&b, "%s%s", k ? "|" : "", v[k]);
		assert_string_equal(buf_text(&b), rows[i].want);
		buf_done(&b);
		strv_free(v);
	}
}

static void test_bad_names_line(void **state)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
	    {"A=1\nnonsense SECRET\n", "f, line 2"},
	    {"A=1\n\nB='x\n", "f, line 3"},
	    {"=1\n", "f, line 1"},
	    {"A='x' SECRET\n", "f, line 1"},
	    {"A=\"l1\nl2\" SECRET\n", "f, line 2"},
	    {"a-b=SECRET\n", "f, line 1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err e = ERR_INIT;
		char **v = NULL;

		assert_true(envvars_parse("f", rows[i].text, strlen(rows[i].text), &v, &e) < 0);
		if (!strstr(e.text, rows[i].want))
			fail_msg("row %zu: %s", i, e.text);
		/* A value may be a secret: no message shows one. */
		assert_null(strstr(e.text, "SECRET"));
		strv_free(v);
	}
}

static void test_zero_byte(void **state)
{
	struct err e = ERR_INIT;
	char **v = NULL;

	(void)state;
	assert_true(envvars_parse("f", "A=1\nB=\0x", 8, &v, &e) < 0);
	assert_non_null(strstr(e.text, "line 2"));
	strv_free(v);
}

static void test_check(void **state)
{
	static const struct {
		const char *word;
		bool sandbox, local;
	} rows[] = {
	    {"A=1", true, true},
	    {"_a9=", true, true},
	    {"PATH=/x", true, true},
	    {"=x", false, false},
	    {"A", false, false},
	    {"9A=1", false, false},
	    {"A B=1", false, false},
	    {"A\nB=1", false, false},
	    {"AIRLOCK_RUN_ID=1", false, false},
	    {"AIRLOCK_X=1", false, false},
	    {"PAPERCLIP_RUN_ID=1", false, false},
	    {"PAPERCLIP_API_KEY=1", false, false},
	    {"PAPERCLIP_API_URL=1", false, false},
	    {"PAPERCLIP_TASK=1", true, true},
	    {"LD_PRELOAD=x", true, false},
	    {"NODE_OPTIONS=x", true, false},
	    {"BASH_ENV=x", true, false},
	    {"ENV=x", true, false},
	    {"ENVX=x", true, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(envvars_check(rows[i].word, true, &e) == 0, rows[i].sandbox);
		assert_int_equal(envvars_check(rows[i].word, false, &e) == 0, rows[i].local);
	}
}

static void test_length_at_the_edge(void **state)
{
	static char word[ENV_VALUE_MAX + 2];
	struct err e = ERR_INIT;

	(void)state;
	memset(word, 'x', sizeof(word) - 1);
	word[1] = '=';
	word[ENV_VALUE_MAX] = '\0';
	assert_int_equal(envvars_check(word, true, &e), 0);
	word[ENV_VALUE_MAX] = 'x';
	assert_true(envvars_check(word, true, &e) < 0);
	assert_non_null(strstr(e.text, "131071"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_good),
	    cmocka_unit_test(test_bad_names_line),
	    cmocka_unit_test(test_zero_byte),
	    cmocka_unit_test(test_check),
	    cmocka_unit_test(test_length_at_the_edge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
