/* Unit tests of src/policy/target.c: S2-04, the path that is judged is the path that is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "policy/target.h"

struct row {
	const char *id, *text;
	size_t n; /* 0: strlen */
	enum target_fault want;
};

static enum target_fault parse(const struct row *r, struct target *t)
{
	return target_parse(r->text, r->n ? r->n : strlen(r->text), t);
}

static void spellings(void **state)
{
	static const struct row rows[] = {
	    {"P01", "/api/agents/me", 0, TARGET_OK},
	    {"P02", "/api/companies/../agents", 0, TARGET_SEGMENT},
	    {"P02", "/api/./agents/me", 0, TARGET_SEGMENT},
	    {"P02", "/api/agents/.", 0, TARGET_SEGMENT},
	    {"P02", "/..", 0, TARGET_SEGMENT},
	    {"P02", "/api/companies/%2e%2e/agents", 0, TARGET_SEGMENT},
	    {"P02", "/api/companies/.%2E/agents", 0, TARGET_SEGMENT},
	    {"P02", "/api/companies/%2e/agents", 0, TARGET_SEGMENT},
	    {"P02", "/api/companies/.../agents", 0, TARGET_SEGMENT},
	    {"P02", "/api/companies/%252e%252e/agents", 0, TARGET_ESCAPE},
	    {"P02", "/api/a..b/.x/y./..z", 0, TARGET_OK},
	    {"P04", "/api/agents/..\\..\\api\\companies\\c1\\secrets", 0, TARGET_BYTE},
	    {"P05", "/api/agents/%5c..%5c..", 0, TARGET_ESCAPE},
	    {"P05", "/api/agents/%5C", 0, TARGET_ESCAPE},
	    {"P06", "/api%2fagents/me", 0, TARGET_ESCAPE},
	    {"P06", "/api/agents/a%2f..%2fb", 0, TARGET_ESCAPE},
	    {"P08", "//evil/api/agents/me", 0, TARGET_FORM},
	    {"P08", "/api//agents/me", 0, TARGET_SEGMENT},
	    {"P08", "/api/agents/me/", 0, TARGET_SEGMENT},
	    {"P09", "http://evil/api/agents/me", 0, TARGET_FORM},
	    {"P09", "https:/x", 0, TARGET_FORM},
	    {"P09", "*", 0, TARGET_FORM},
	    {"P09", "me", 0, TARGET_FORM},
	    {"P09", "?x", 0, TARGET_FORM},
	    {"P10", "/api/agents/me;x=1", 0, TARGET_BYTE},
	    {"P10", "/api/agents/..;/x", 0, TARGET_BYTE},
	    {"P10", "/api/agents/;/me", 0, TARGET_BYTE},
	    {"P10", "/api/agents/%3b", 0, TARGET_ESCAPE},
	    {"P12", "/api/agents/a\tb", 0, TARGET_BYTE},
	    {"P12", "/api/agents/a\n", 0, TARGET_BYTE},
	    {"P12", "/api/agents/a\r", 0, TARGET_BYTE},
	    {"P12", "/api/agents/a b", 0, TARGET_BYTE},
	    {"P12", "/api/agents/a\x7f", 0, TARGET_BYTE},
	    {"P12", "/api/agents/a\0b", 15, TARGET_BYTE},
	    {"P12", "/api/companies/.\t./agents", 0, TARGET_BYTE},
	    {"P13", "/api/agents/%0d%0aX:y", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%09", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%20", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%7f", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%00", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%3f%23", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%4", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%4/x", 0, TARGET_ESCAPE},
	    {"P13", "/api/agents/%zz", 0, TARGET_ESCAPE},
	    {"P14", "/api/agents/\xc3\xa9", 0, TARGET_BYTE},
	    {"P14", "/api/agents/\xe9", 0, TARGET_BYTE},
	    {"P14", "/api/agents/%C3%A9", 0, TARGET_OK},
	    {"P14", "/api/agents/%f0%9f%98%80x", 0, TARGET_OK},
	    {"P14", "/api/agents/%c0%ae%c0%ae", 0, TARGET_UTF8},
	    {"P14", "/api/agents/%e0%80%af", 0, TARGET_UTF8},
	    {"P14", "/api/agents/%ed%a0%80", 0, TARGET_UTF8},
	    {"P14", "/api/agents/%f4%90%80%80", 0, TARGET_UTF8},
	    {"P14", "/api/agents/%ff", 0, TARGET_UTF8},
	    {"P14", "/api/agents/%c3", 0, TARGET_UTF8},
	    {"P14", "/api/agents/%c3/%a9", 0, TARGET_UTF8},
	    {"P14", "/api/agents/%c3x", 0, TARGET_UTF8},
	    {"P16", "/api/agents/me#x", 0, TARGET_BYTE},
	    {"P16", "/api/issues/..\\..\\x#/comments", 0, TARGET_BYTE},
	    {"P20", "/api/agents/me?_method=DELETE", 0, TARGET_OK},
	    {"P21", "/api/companies/c/issues?status=a%2Fb&u=http://x", 0, TARGET_OK},
	    {"P22", "/x?a\rb", 0, TARGET_BYTE},
	    {"P22", "/x?a\nb", 0, TARGET_BYTE},
	    {"P22", "/x?a#b", 0, TARGET_BYTE},
	    {"P22", "/x?a\\b", 0, TARGET_BYTE},
	    {"P22", "/x?a b", 0, TARGET_BYTE},
	    {"P22", "/x?a\0b", 6, TARGET_BYTE},
	    {"P22", "/x?a%00", 0, TARGET_ESCAPE},
	    {"P22", "/x?a%0d", 0, TARGET_ESCAPE},
	    {"P22", "/x?a%0A", 0, TARGET_ESCAPE},
	    {"P22", "/x?a%5c%2e%23%20%ff", 0, TARGET_OK},
	    {"P22", "/x?a%", 0, TARGET_ESCAPE},
	    {"FR-B147", "/x?a=1&a=2&b=%2F&c=", 0, TARGET_OK},
	    {"FR-B147", "/x?", 0, TARGET_OK},
	    {"FR-B147", "/x?filter[a]=1;b", 0, TARGET_OK},
	    {"FR-B137", "/api/%2e%2e/x", 0, TARGET_SEGMENT},
	    {"FR-B137", "/", 0, TARGET_OK},
	    {"P28", "evil:80", 0, TARGET_FORM},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct target t;
		enum target_fault f = parse(&rows[i], &t);

		if (f != rows[i].want)
			fail_msg("%s %s: %s, want %s", rows[i].id, rows[i].text,
				 target_fault_name(f), target_fault_name(rows[i].want));
	}
	assert_int_equal(target_parse(NULL, 0, &(struct target){0}), TARGET_EMPTY);
}

/* FR-B147, P21: what comes out is the input's own bytes. */
static void parts_are_views_of_the_input_s2_04(void **state)
{
	static const char text[] = "/api/x%C3%A9/y?a=%2F&b=?";
	struct target t;

	(void)state;
	assert_int_equal(target_parse(text, sizeof(text) - 1, &t), TARGET_OK);
	assert_ptr_equal(t.all.p, text);
	assert_int_equal(t.all.n, sizeof(text) - 1);
	assert_int_equal(t.path.n, strlen("/api/x%C3%A9/y"));
	assert_true(t.has_query);
	assert_memory_equal(t.query.p, "a=%2F&b=?", t.query.n);
	assert_int_equal(t.query.n, 9);
	assert_int_equal(t.segments, 3);
	assert_int_equal(t.segment[1].n, 7);
	assert_memory_equal(t.segment[1].p, "x%C3%A9", 7);
	assert_int_equal(target_parse("/x?", 3, &t), TARGET_OK);
	assert_true(t.has_query && t.query.n == 0);
	assert_int_equal(target_parse("/x", 2, &t), TARGET_OK);
	assert_false(t.has_query);
	assert_int_equal(target_parse("/", 1, &t), TARGET_OK);
	assert_int_equal(t.segments, 0);
}

/* P24, P25: at the limit and one beyond, in bounded time whatever comes. */
static void sizes_at_the_edge_s2_07(void **state)
{
	static const size_t million = 1000000;
	char *big = malloc(2 * million + 1);
	struct target t;

	(void)state;
	assert_non_null(big);
	memset(big, 'a', 2 * million);
	big[0] = '/';
	assert_int_equal(target_parse(big, BRIDGE_PATH_MAX, &t), TARGET_OK);
	assert_int_equal(target_parse(big, BRIDGE_PATH_MAX + 1, &t), TARGET_TOO_LONG);
	assert_int_equal(target_parse(big, 2 * million, &t), TARGET_TOO_LONG);
	big[2] = '?';
	assert_int_equal(target_parse(big, 3 + BRIDGE_QUERY_MAX, &t), TARGET_OK);
	assert_int_equal(target_parse(big, 3 + BRIDGE_QUERY_MAX + 1, &t), TARGET_TOO_LONG);
	big[2] = 'a';
	big[BRIDGE_PATH_MAX] = '?';
	assert_int_equal(target_parse(big, BRIDGE_PATH_MAX + 1 + BRIDGE_QUERY_MAX, &t), TARGET_OK);
	big[BRIDGE_PATH_MAX] = 'a';
	big[BRIDGE_PATH_MAX + 1] = '?';
	assert_int_equal(target_parse(big, BRIDGE_PATH_MAX + 3, &t), TARGET_TOO_LONG);
	for (size_t i = 0; i < million; i++)
		memcpy(big + 2 * i, "/a", 2);
	assert_int_equal(target_parse(big, 2 * million, &t), TARGET_TOO_LONG);
	assert_int_equal(target_parse(big, 2 * BRIDGE_SEGMENTS_MAX, &t), TARGET_OK);
	assert_int_equal(t.segments, BRIDGE_SEGMENTS_MAX);
	assert_int_equal(target_parse(big, 2 * BRIDGE_SEGMENTS_MAX + 2, &t), TARGET_SEGMENTS);
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(spellings),
	    cmocka_unit_test(parts_are_views_of_the_input_s2_04),
	    cmocka_unit_test(sizes_at_the_edge_s2_07),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
