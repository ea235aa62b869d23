/* Unit tests of src/policy/route.c, headers.c and origin.c (S2-04, S2-05). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/cleanup.h"
#include "policy/origin.h"
#include "policy/route.h"

static const char *match(const struct route_table *t, enum method m, const char *path)
{
	const struct route *r;
	struct target target;

	assert_int_equal(target_parse(path, strlen(path), &target), TARGET_OK);
	r = route_match(t, m, &target, NULL);
	return r ? r->id : "-";
}

static void the_most_literal_route_decides(void **state)
{
	static const char *const patterns[] = {
	    "/{rest...}", "/a/{x}", "/a/b",	    "/a/{x}/c",	    "/a/{x}.txt", "/a/long-{x}.txt",
	    "/",	  "/r",	    "/r/{more...}", "/r/{x}/{y}/z", "/a/%41",
	};
	static const struct {
		const char *path, *want;
	} t[] = {
	    {"/", "/"},
	    {"/a/b", "/a/b"},
	    {"/a/c", "/a/{x}"},
	    {"/a/b.txt", "/a/{x}.txt"},
	    {"/a/long-1.txt", "/a/long-{x}.txt"},
	    {"/a/.txt", "/a/{x}"},
	    {"/a/b/c", "/a/{x}/c"},
	    {"/a/b/d", "/{rest...}"},
	    {"/a/b/c/d", "/{rest...}"},
	    {"/r", "/r"},
	    {"/r/1", "/r/{more...}"},
	    {"/r/1/2/z", "/r/{x}/{y}/z"},
	    {"/r/1/2/y", "/r/{more...}"},
	    {"/A/b", "/{rest...}"},
	    {"/a/%62", "/a/{x}"}, /* an escape is no literal, whatever it decodes to */
	    {"/a/%41", "/a/%41"},
	    {"/a/b?x=/c", "/a/b"},
	};
	struct route_table table = {0};
	struct route *r;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
		assert_int_equal(route_add(&table, patterns[i], METHOD_GET, patterns[i], &r, NULL),
				 0);
	assert_int_equal(route_compile(&table, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		if (strcmp(match(&table, METHOD_GET, t[i].path), t[i].want) != 0)
			fail_msg("%s: %s, want %s", t[i].path, match(&table, METHOD_GET, t[i].path),
				 t[i].want);
	route_table_done(&table);
}

/* P25: a parameter of 1, 200 and 201 bytes. */
static void parameters_are_bounded_s2_07(void **state)
{
	struct route_table table = {0};
	struct route *r;
	char path[256];

	(void)state;
	assert_int_equal(route_add(&table, "id", METHOD_GET, "/a/{x}", &r, NULL), 0);
	assert_int_equal(route_compile(&table, NULL), 0);
	memset(path, 'x', sizeof(path));
	memcpy(path, "/a/", 3);
	path[3 + 1] = '\0';
	assert_string_equal(match(&table, METHOD_GET, path), "id");
	path[4] = 'x';
	path[3 + BRIDGE_SEGMENT_MAX] = '\0';
	assert_string_equal(match(&table, METHOD_GET, path), "id");
	path[3 + BRIDGE_SEGMENT_MAX] = 'x';
	path[3 + BRIDGE_SEGMENT_MAX + 1] = '\0';
	assert_string_equal(match(&table, METHOD_GET, path), "-");
	route_table_done(&table);
}

static void bad_patterns_are_refused(void **state)
{
	static const char *const bad[] = {
	    "",	       "a",	  "a/b",       "//a",	   "/a/",    "/a//b",  "/a/../b",
	    "/a/.",    "/{",	  "/}",	       "/{}",	   "/{a",    "/a}",    "/}a{",
	    "/{a}{b}", "/{a}/{b", "/{a...}/b", "/x{a...}", "/{...}", "/{a b}", "/a b",
	    "/a?b",    "/a#b",	  "/a;b",      "/%2f",	   "/%2",    "/a%",    "/\xc3\xa9",
	    "/x%2{a}", "/{a}%2f", "/a\\b",
	};
	struct route_table table = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = ERR_INIT;
		struct route *r;

		if (route_add(&table, NULL, METHOD_GET, bad[i], &r, &e) != -EINVAL)
			fail_msg("%s was taken", bad[i]);
		assert_int_equal(e.code, ERR_INVALID);
	}
	assert_int_equal(table.n, 0);
	route_table_done(&table);
}

static void ambiguity_is_refused(void **state)
{
	static const struct {
		const char *a, *b;
		unsigned ma, mb;
		bool ok;
	} t[] = {
	    {"/a/{x}", "/a/{y}", METHOD_GET, METHOD_GET, false},
	    {"/a/{x}", "/a/{y}", METHOD_GET, METHOD_POST, true},
	    {"/a/{x}", "/a/{y}", METHOD_GET | METHOD_PUT, METHOD_POST | METHOD_PUT, false},
	    {"/a/{x...}", "/a/{y...}", METHOD_GET, METHOD_GET, false},
	    {"/a/{x...}", "/a/{y}", METHOD_GET, METHOD_GET, true},
	    {"/a/b{x}", "/a/{x}b", METHOD_GET, METHOD_GET, true},
	    {"/a", "/a", METHOD_GET, METHOD_GET, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct route_table table = {0};
		struct route *r;

		assert_int_equal(route_add(&table, NULL, t[i].ma, t[i].a, &r, NULL), 0);
		assert_int_equal(route_add(&table, NULL, t[i].mb, t[i].b, &r, NULL), 0);
		if ((route_compile(&table, NULL) == 0) != t[i].ok)
			fail_msg("%s and %s", t[i].a, t[i].b);
		route_table_done(&table);
	}
}

static void the_table_is_bounded(void **state)
{
	struct route_table table = {0};
	struct err e = ERR_INIT;
	struct route *r;
	char path[32];

	(void)state;
	for (int i = 0; i < POLICY_ROUTES_MAX; i++) {
		(void)snprintf(path, sizeof(path), "/r%d", i);
		assert_int_equal(route_add(&table, NULL, METHOD_GET, path, &r, NULL), 0);
	}
	assert_true(route_add(&table, NULL, METHOD_GET, "/more", &r, &e) < 0);
	assert_int_equal(e.code, ERR_LIMIT);
	assert_int_equal(route_compile(&table, NULL), 0);
	assert_string_equal(match(&table, METHOD_GET, "/r1023"), "GET /r1023");
	route_table_done(&table);
}

/* M04, M05, P28: words that are methods, words that no table can allow, and the rest. */
static void methods(void **state)
{
	static const struct {
		const char *m;
		size_t n;
		int want;
	} t[] = {
	    {"GET", 3, METHOD_GET}, {"DELETE", 6, METHOD_DELETE},
	    {"TRACE", 5, 0},	    {"CONNECT", 7, 0},
	    {"PROPFIND", 8, 0},	    {"get", 3, -EINVAL},
	    {" GET", 4, -EINVAL},   {"GET\t", 4, -EINVAL},
	    {"GET\0", 4, -EINVAL},  {"GET / HTTP/1.1", 14, -EINVAL},
	    {"", 0, -EINVAL},	    {"AAAAAAAAAAAAAAAAA", 17, -EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(method_parse((struct view){t[i].m, t[i].n}), t[i].want);
}

static void header_lists_s2_05(void **state)
{
	struct header_list l = {0};
	static const char *const forbidden[] = {
	    "authorization",
	    "cookie",
	    "set-cookie",
	    "host",
	    "content-length",
	    "transfer-encoding",
	    "connection",
	    "te",
	    "trailer",
	    "upgrade",
	    "expect",
	    "x-forwarded-for",
	    "forwarded",
	    "x-http-method-override",
	    "x-airlock-bridge",
	    "x-paperclip-bridge-outcome",
	    "proxy-authorization",
	};

	(void)state;
	assert_int_equal(header_list_add(&l, "etag"), 0);
	assert_int_equal(header_list_add(&l, "accept"), 0);
	assert_int_equal(header_list_add(&l, "content-type"), 0);
	assert_int_equal(header_list_add(&l, "etag"), -EEXIST);
	assert_string_equal(header_list_find(&l, (struct view){"ETag", 4}), "etag");
	assert_string_equal(header_list_find(&l, (struct view){"accept", 6}), "accept");
	assert_null(header_list_find(&l, (struct view){"eta", 3}));
	assert_null(header_list_find(&l, (struct view){"etags", 5}));
	assert_null(header_list_find(&l, (struct view){"", 0}));
	assert_null(header_list_find(&l, (struct view){"etag\0", 5}));
	for (size_t i = 0; i < ARRAY_LEN(forbidden); i++)
		assert_non_null(header_forbidden(forbidden[i]));
	assert_null(header_forbidden("accept"));
	assert_null(header_forbidden("x-forward"));
	header_list_done(&l);
}

/* H04, H05 */
static void header_syntax(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} bad[] = {{"", 0},	    {"a b", 3}, {"a:", 2},  {"a\r", 2}, {":path", 5},
		   {"\xc3\xa9", 2}, {"a\0", 2}, {"a\"", 2}, {"a/b", 3}, {"(a)", 3}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(header_name_ok((struct view){bad[i].p, bad[i].n}));
	assert_true(header_name_ok((struct view){"X-a_b~1", 7}));
	for (int c = 0; c < 256; c++) {
		char ch = (char)c;
		bool want = c == '\t' || (c >= 0x20 && c != 0x7f);

		assert_int_equal(header_value_ok((struct view){&ch, 1}), want);
	}
}

/* F10, FR-B020: a wrong upstream is found when it is read. */
static void origins(void **state)
{
	static const struct {
		const char *text, *want; /* NULL: refused */
	} t[] = {
	    {"http://127.0.0.1:3100", "http://127.0.0.1:3100"},
	    {"http://127.0.0.1:3100/", "http://127.0.0.1:3100"},
	    {"https://API.Example.com", "https://api.example.com"},
	    {"https://api.example.com:443", "https://api.example.com"},
	    {"http://api.example.com:443", "http://api.example.com:443"},
	    {"http://[::1]:80", "http://[::1]"},
	    {"http://[::1]", "http://[::1]"},
	    {"unix:/run/api.sock", "unix:/run/api.sock"},
	    {"http://localhost", "http://localhost"},
	    {"http://1a.de", "http://1a.de"},
	    {"http://my_host", "http://my_host"},
	    {"", NULL},
	    {"localhost:3100", NULL},
	    {"ftp://x", NULL},
	    {"http://", NULL},
	    {"http:///x", NULL},
	    {"http://x/api", NULL},
	    {"http://x?y", NULL},
	    {"http://x#y", NULL},
	    {"http://x\\y", NULL},
	    {"http://user@x", NULL},
	    {"http://user:pw@x", NULL},
	    {"http://x:0", NULL},
	    {"http://x:65536", NULL},
	    {"http://x:", NULL},
	    {"http://x:1a", NULL},
	    {"http://0.0.0.0:3100", NULL},
	    {"http://[::]:3100", NULL},
	    {"http://[::1", NULL},
	    {"http://[zz]", NULL},
	    {"http://[::1]x", NULL},
	    {"http://127.1", NULL},
	    {"http://2130706433", NULL},
	    {"http://0x7f000001", NULL},
	    {"http://a..b", NULL},
	    {"http://-a", NULL},
	    {"http://a-.b", NULL},
	    {"http://a.", NULL},
	    {"http://a b", NULL},
	    {"http://a\n", NULL},
	    {"unix:run/api.sock", NULL},
	    {"unix:", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct err e = ERR_INIT;
		struct origin o;
		int r = origin_parse(t[i].text, &o, &e);

		if ((r == 0) != (t[i].want != NULL))
			fail_msg("%s: %d %s", t[i].text, r, e.text);
		if (r == 0)
			assert_string_equal(o.text, t[i].want);
	}
}

/* F01, FR-B189 */
static void locations_on_the_origin(void **state)
{
	static const struct {
		const char *url, *want;
	} t[] = {
	    {"http://api.test:81/a?b", "/a?b"},
	    {"http://api.test:81", "/"},
	    {"http://api.test:81.evil/", NULL},
	    {"http://api.test:81@evil/", NULL},
	    {"http://api.test:812/", NULL},
	    {"https://api.test:81/", NULL},
	    {"http://api.test/", NULL},
	    {"http://user@api.test:81/", NULL},
	    {"http://169.254.169.254/", NULL},
	    {"file:///etc/passwd", NULL},
	    {"", NULL},
	    {"http://api.test:81?x", NULL},
	};
	struct origin o;

	(void)state;
	assert_int_equal(origin_parse("http://api.test:81", &o, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct view v = origin_strip(&o, (struct view){t[i].url, strlen(t[i].url)});

		if (!t[i].want) {
			if (v.n)
				fail_msg("%s passed", t[i].url);
			continue;
		}
		assert_int_equal(v.n, strlen(t[i].want));
		assert_memory_equal(v.p, t[i].want, v.n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_most_literal_route_decides),
	    cmocka_unit_test(parameters_are_bounded_s2_07),
	    cmocka_unit_test(bad_patterns_are_refused),
	    cmocka_unit_test(ambiguity_is_refused),
	    cmocka_unit_test(the_table_is_bounded),
	    cmocka_unit_test(methods),
	    cmocka_unit_test(header_lists_s2_05),
	    cmocka_unit_test(header_syntax),
	    cmocka_unit_test(origins),
	    cmocka_unit_test(locations_on_the_origin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
