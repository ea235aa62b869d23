/* Options from tables: nearest match, values, where options end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "cli/opt.h"

static const struct opt table[] = {
    {"verbose", 'v', NULL, "", 'v'}, {"file", 'f', "FILE", "", 'f'}, {"json", 0, "=FILE", "", 'j'},
    {"timeout", 0, "TIME", "", 't'}, {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const tables[] = {table, NULL};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)e;
	return buf_putf(arg, "%c%s%s ", o->id, value ? "=" : "", value ? value : "");
}

static int parse(bool permute, const char *line, struct buf *got, char ***words, struct err *e)
{
	struct opt_parse p = {
	    .tables = tables, .verb = "run", .permute = permute, .set = set, .arg = got};
	char **argv = NULL;
	int r;

	while (*line) {
		char word[64];
		size_t n = strcspn(line, " ");

		(void)snprintf(word, sizeof(word), "%.*s", (int)n, line);
		assert_int_equal(strv_add(&argv, word), 0);
		line += n + (line[n] == ' ');
	}
	r = opt_parse(&p, (int)strv_len(argv), argv, e);
	strv_free(argv);
	*words = p.words;
	return r;
}

static void test_good(void **state)
{
	static const struct {
		bool permute;
		const char *line, *opts, *words;
	} rows[] = {
	    {false, "-v --file x --json --json=y a b", "v f=x j j=y ", "a b "},
	    {false, "-vfx a -v --file", "v f=x ", "a -v --file "},
	    {false, "-f x -- -v", "f=x ", "-v "},
	    {false, "--file=x=y", "f=x=y ", ""},
	    {false, "a -- b", "", "a -- b "},
	    {true, "a -v b", "v ", "a b "},
	    {true, "a -- -v", "", "a -v "},
	    {false, "-", "", "- "},
	    {false, "--file --json", "f=--json ", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf got = BUF_INIT(1024), w = BUF_INIT(1024);
		struct err e = ERR_INIT;
		char **words = NULL;

		if (parse(rows[i].permute, rows[i].line, &got, &words, &e) < 0)
			fail_msg("row %zu: %s", i, e.text);
		for (size_t k = 0; k < strv_len(words); k++)
			(void)buf_putf(&w, "%s ", words[k]);
		assert_string_equal(buf_text(&got), rows[i].opts);
		assert_string_equal(buf_text(&w), rows[i].words);
		strv_free(words);
		buf_done(&got);
		buf_done(&w);
	}
}

static void test_bad(void **state)
{
	static const struct {
		const char *line, *want;
	} rows[] = {
	    {"--fiel x", "did you mean --file?"},
	    {"--tiemout 3", "did you mean --timeout?"},
	    {"--time 3", "did you mean --timeout?"},
	    {"--zzzzzz", "airlock help run"},
	    {"--jumpn", "airlock help run"}, /* three edits from --json, of five letters */
	    {"--verbose=1", "takes no value"},
	    {"--file", "needs a value"},
	    {"-f", "needs a value"},
	    {"-x", "has no option -x"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf got = BUF_INIT(1024);
		struct err e = ERR_INIT;
		char **words = NULL;

		assert_true(parse(false, rows[i].line, &got, &words, &e) < 0);
		assert_int_equal(e.code, ERR_USAGE);
		if (!strstr(e.text, rows[i].want))
			fail_msg("row %zu: %s", i, e.text);
		strv_free(words);
		buf_done(&got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
