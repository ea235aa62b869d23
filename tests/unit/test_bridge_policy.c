/* Unit tests of src/policy/bridge_policy*.c: files are read strictly, and the built-in table is what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "policy/bridge_policy.h"

#define HEAD "{\"version\":1,\"name\":\"t\","
#define ROUTES "\"routes\":[\"GET /a\"]}"

static int parse(const char *text, struct bridge_policy **ret, struct err *e)
{
	return bridge_policy_parse("t.json", text, strlen(text), ret, e);
}

/* Each is refused, and the text names the place. */
static void mistakes_are_named(void **state)
{
	static const struct {
		const char *text, *named;
	} t[] = {
	    {"", "line 1"},
	    {"{", "line 1"},
	    {"{\n\"version\": 1,\n\"name\" 1}", "line 3"},
	    {"[]", "an object"},
	    {"{}", "version"},
	    {"{\"version\":1}", "name"},
	    {"{\"version\":2,\"name\":\"t\"," ROUTES, "version"},
	    {"{\"version\":\"1\",\"name\":\"t\"," ROUTES, "version"},
	    {"{\"version\":1,\"name\":\"T T\"," ROUTES, "name"},
	    {"{\"version\":1,\"name\":7," ROUTES, "name"},
	    {HEAD "\"name\":\"u\"," ROUTES, "line 1"}, /* a member twice */
	    {HEAD "\"route\":[]," ROUTES, "route: there is no such"},
	    {HEAD "\"x\\u001b[31m\":1," ROUTES, "\\x1b"},
	    {HEAD "\"routes\":[]}", "routes"},
	    {HEAD "\"routes\":{}}", "routes"},
	    {HEAD "\"routes\":[7]}", "routes[0]"},
	    {HEAD "\"routes\":[\"GET /a\",\"/b\"]}", "routes[1]"},
	    {HEAD "\"routes\":[\"get /a\"]}", "routes[0]"},
	    {HEAD "\"routes\":[\"GET,GET /a\"]}", "twice"},
	    {HEAD "\"routes\":[\"TRACE /a\"]}", "methods"},
	    {HEAD "\"routes\":[\"GET\"]}", "path"},
	    {HEAD "\"routes\":[\"GET  /a\"]}", "begin with"},
	    {HEAD "\"routes\":[\"GET /a/../b\"]}", "/a/../b"},
	    {HEAD "\"routes\":[\"GET /{a\"]}", "brace"},
	    {HEAD "\"routes\":[\"GET /a\",\"GET /a\"]}", "GET /a"},
	    {HEAD "\"routes\":[\"GET /{a}\",\"GET /{b}\"]}", "same paths"},
	    {HEAD "\"routes\":[{\"id\":\"x\"}]}", "routes[0]"},
	    {HEAD "\"routes\":[{\"route\":\"GET /a\",\"id\":\"\"}]}", "id"},
	    {HEAD "\"routes\":[{\"route\":\"GET /a\",\"id\":\"a\\nb\"}]}", "id"},
	    {HEAD "\"routes\":[{\"route\":\"GET /a\",\"ids\":\"b\"}]}", "routes[0].ids"},
	    {HEAD "\"routes\":[{\"route\":\"GET /a\",\"limits\":{\"queue\":1}}]}",
	     "routes[0].limits.queue"},
	    {HEAD "\"routes\":[{\"route\":\"GET /a\",\"request_headers\":[\"cookie\"]}]}",
	     "routes[0].request_headers[0]"},
	    {HEAD "\"request_headers\":[\"x-a\"],\"routes\":[{\"route\":\"GET /a\",\"request_"
		  "headers\":[\"X-A\"]}]}",
	     "already"},
	    {HEAD "\"request_headers\":\"accept\"," ROUTES, "request_headers"},
	    {HEAD "\"request_headers\":[7]," ROUTES, "request_headers[0]"},
	    {HEAD "\"request_headers\":[\"a b\"]," ROUTES, "request_headers[0]"},
	    {HEAD "\"request_headers\":[\"\"]," ROUTES, "request_headers[0]"},
	    {HEAD "\"request_headers\":[\"accept\",\"ACCEPT\"]," ROUTES, "twice"},
	    {HEAD "\"request_headers\":[\"Cookie\"]," ROUTES, "second credential"},
	    {HEAD "\"request_headers\":[\"Host\"]," ROUTES, "configuration"},
	    {HEAD "\"request_headers\":[\"authorization\"]," ROUTES, "credential"},
	    {HEAD "\"request_headers\":[\"x-http-method-override\"]," ROUTES, "method"},
	    {HEAD "\"response_headers\":[\"set-cookie\"]," ROUTES, "second credential"},
	    {HEAD "\"response_headers\":[\"x-airlock-bridge\"]," ROUTES, "own"},
	    {HEAD "\"token_headers\":[]," ROUTES, "token_headers"},
	    {HEAD "\"token_headers\":[\"x-k\"],\"request_headers\":[\"x-k\"]," ROUTES, "x-k"},
	    {HEAD "\"identity_headers\":{\"x-r\":\"{runs}\"}," ROUTES, "{run}"},
	    {HEAD "\"identity_headers\":{\"x-r\":7}," ROUTES, "identity_headers"},
	    {HEAD "\"identity_headers\":{\"x-r\":\"a\\r\\nb: c\"}," ROUTES, "printable"},
	    {HEAD "\"identity_headers\":{\"x-r\":\"a\",\"X-R\":\"b\"}," ROUTES, "twice"},
	    {HEAD "\"identity_headers\":{\"x-r\":\"a\"},\"request_headers\":[\"x-r\"]," ROUTES,
	     "x-r"},
	    {HEAD "\"identity_headers\":{\"authorization\":\"a\"}," ROUTES, "authorization"},
	    {HEAD
	     "\"credential\":{\"header\":\"x-key\"},\"identity_headers\":{\"x-key\":\"a\"}," ROUTES,
	     "x-key"},
	    {HEAD "\"credential\":{\"header\":\"x-key\"},\"request_headers\":[\"x-key\"]," ROUTES,
	     "x-key"},
	    {HEAD "\"credential\":{\"header\":\"cookie\"}," ROUTES, "cookie"},
	    {HEAD "\"credential\":{\"head\":\"x\"}," ROUTES, "credential"},
	    {HEAD "\"credential\":{\"header\":\"x\",\"prefix\":\"a\\n\"}," ROUTES, "prefix"},
	    {HEAD "\"upstreams\":{\"a\":\"http://x/y\"}," ROUTES, "upstreams.a"},
	    {HEAD "\"upstreams\":{\"A\":\"http://x\"}," ROUTES, "upstreams"},
	    {HEAD "\"limits\":{\"body\":-1}," ROUTES, "limits.body"},
	    {HEAD "\"limits\":{\"body\":1.5}," ROUTES, "limits.body"},
	    {HEAD "\"limits\":{\"body\":\"2G\"}," ROUTES, "limits.body"},
	    {HEAD "\"limits\":{\"response\":\"unlimited\"}," ROUTES, "stream"},
	    {HEAD "\"limits\":{\"stream\":true,\"response\":\"unlimited\"},\"routes\":[{\"route\":"
		  "\"GET /a\",\"limits\":{\"stream\":false}}]}",
	     "routes[0].limits"},
	    {HEAD "\"limits\":{\"request_time\":30}," ROUTES, "limits.request_time"},
	    {HEAD "\"limits\":{\"request_time\":\"0s\"}," ROUTES, "limits.request_time"},
	    {HEAD "\"limits\":{\"idle_time\":\"25h\"}," ROUTES, "limits.idle_time"},
	    {HEAD "\"limits\":{\"queue\":0}," ROUTES, "limits.queue"},
	    {HEAD "\"limits\":{\"streams\":1025}," ROUTES, "limits.streams"},
	    {HEAD "\"limits\":{\"streams\":true}," ROUTES, "limits.streams"},
	    {HEAD ROUTES "x", "line 1"},
	    {"\xef\xbb\xbf" HEAD ROUTES, "line 1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct bridge_policy *p = NULL;
		struct err e = ERR_INIT;
		int r = parse(t[i].text, &p, &e);

		if (r >= 0 || !strstr(e.text, t[i].named) || !strstr(e.text, "t.json"))
			fail_msg("%zu: %s\n%d: %s\nwant %s", i, t[i].text, r, e.text, t[i].named);
		assert_null(strchr(e.text, '\x1b'));
	}
}

static void a_whole_file_is_taken(void **state)
{
	static const char text[] =
	    "{ \"version\": 1, \"name\": \"my.api\",\n"
	    "  \"limits\": {\"body\": \"1M\", \"response\": 2048, \"request_time\": \"10s\",\n"
	    "    \"idle_time\": \"5s\", \"upload_time\": \"1m\", \"queue\": 8, \"streams\": 1024, \"pace\": 50},\n"
	    "  \"request_headers\": [\"Accept\", \"x-trace\"], \"response_headers\": [\"ETag\"],\n"
	    "  \"query_denied\": [\"key\", \"$*\"],\n"
	    "  \"token_headers\": [\"x-api-key\", \"Authorization\"],\n"
	    "  \"identity_headers\": {\"X-Run\": \"{run}\", \"user-agent\": \"airlock\"},\n"
	    "  \"credential\": {\"header\": \"X-Api-Key\", \"prefix\": \"k-\"},\n"
	    "  \"upstreams\": {\"main\": \"https://api.example.com\"},\n"
	    "  \"routes\": [\"GET,HEAD /v1/items/{id}\",\n"
	    "    {\"route\": \"POST /v1/stream\", \"id\": \"stream\", \"request_headers\": [\"x-b\"],\n"
	    "     \"limits\": {\"stream\": true, \"response\": \"unlimited\", \"body\": 9}}] }\n";
	_cleanup_policy_ struct bridge_policy *p = NULL, *again = NULL;
	_cleanup_buf_ struct buf a = BUF_INIT(CONFIG_MAX), b = BUF_INIT(CONFIG_MAX);
	struct err e = ERR_INIT;
	const struct route *r;

	(void)state;
	if (parse(text, &p, &e) < 0)
		fail_msg("%s", e.text);
	assert_string_equal(p->name, "my.api");
	assert_int_equal(p->limits.body_max, 1 << 20);
	assert_int_equal(p->limits.response_max, 2048);
	assert_int_equal(p->limits.request_ns, 10 * NS_PER_S);
	assert_int_equal(p->queue_max, 8);
	assert_int_equal(p->streams_max, 1024);
	assert_int_equal(p->pace, 50);
	assert_int_equal(p->query_denied.n, 2);
	assert_string_equal(p->request_headers.v[0], "accept");
	assert_string_equal(p->credential_header, "x-api-key");
	assert_string_equal(p->credential_prefix, "k-");
	assert_int_equal(p->identity_len, 2);
	assert_int_equal(p->identity[0].source, IDENTITY_RUN);
	assert_string_equal(bridge_policy_upstream(p, "main")->text, "https://api.example.com");
	assert_null(bridge_policy_upstream(p, "other"));
	assert_int_equal(p->routes.n, 2);
	r = strcmp(p->routes.v[0].id, "stream") == 0 ? &p->routes.v[0] : &p->routes.v[1];
	assert_string_equal(r->id, "stream");
	assert_true(r->limits.stream && r->limits.response_max == UINT64_MAX);
	assert_int_equal(r->limits.body_max, 9);
	assert_int_equal(r->limits.request_ns, 10 * NS_PER_S);
	assert_string_equal(r->headers.v[0], "x-b");

	/* Printed and read again it is the same policy. */
	assert_int_equal(bridge_policy_print(p, &a), 0);
	if (parse(buf_text(&a), &again, &e) < 0)
		fail_msg("%s in %s", e.text, buf_text(&a));
	assert_int_equal(bridge_policy_print(again, &b), 0);
	assert_string_equal(buf_text(&a), buf_text(&b));
}

/* --upstream header=: where the credential goes, the sandbox does not write. */
static void a_credential_elsewhere_has_its_header_alone(void **state)
{
	static const char *const taken[] = {"accept", "Accept", "x-b", "x-run"};
	static const char text[] =
	    HEAD "\"request_headers\":[\"accept\"],\"identity_headers\":{\"x-run\":\"{run}\"},"
		 "\"routes\":[{\"route\":\"GET /a\",\"request_headers\":[\"x-b\"]}]}";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(taken); i++) {
		_cleanup_policy_ struct bridge_policy *p = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(parse(text, &p, &e), 0);
		assert_true(bridge_policy_credential(p, taken[i], &e) < 0);
		assert_int_equal(e.code, ERR_INVALID);
		assert_int_equal(bridge_policy_credential(p, "x-free", &e), 0);
		assert_int_equal(bridge_policy_credential(p, "authorization", &e), 0);
	}
}

static void sizes_at_the_edge(void **state)
{
	struct buf b = BUF_INIT(2 * CONFIG_MAX);
	struct bridge_policy *p = NULL;
	struct err e = ERR_INIT;

	(void)state;
	(void)buf_puts(&b, HEAD ROUTES);
	while (b.len < CONFIG_MAX)
		(void)buf_putc(&b, ' ');
	assert_int_equal(parse(buf_text(&b), &p, NULL), 0);
	bridge_policy_unref(p);
	(void)buf_putc(&b, ' ');
	assert_true(parse(buf_text(&b), &p, &e) < 0);
	assert_int_equal(e.code, ERR_LIMIT);
	buf_reset(&b);
	/* 10^5 deep (H16): the reader has a bound of its own, no stack overflow. */
	for (int i = 0; i < 100000; i++)
		(void)buf_putc(&b, '[');
	assert_true(parse(buf_text(&b), &p, &e) < 0);
	buf_done(&b);
}

/* Hot reload: valid replaces, invalid leaves what is in force; whoever holds the old one keeps it. */
static void reload_swaps_only_what_is_valid(void **state)
{
	static const char bad[] = HEAD "\"routes\":[\"GET /b\",\"GET b\"]}";
	static const char good[] = HEAD "\"routes\":[\"GET /b\"]}";
	struct bridge_policy *slot = NULL, *held, *before;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(bridge_policy_builtin("paperclip", &slot, NULL), 0);
	before = slot;
	assert_true(bridge_policy_reload("t.json", bad, strlen(bad), &slot, &e) < 0);
	assert_ptr_equal(slot, before);
	assert_non_null(strstr(e.text, "routes[1]"));
	held = bridge_policy_ref(slot);
	assert_int_equal(bridge_policy_reload("t.json", good, strlen(good), &slot, &e), 0);
	assert_string_equal(slot->name, "t");
	assert_string_equal(held->name, "paperclip");
	bridge_policy_unref(held);
	bridge_policy_unref(slot);
}

static void builtins_print_and_parse(void **state)
{
	const char *name;

	(void)state;
	for (size_t i = 0; (name = bridge_policy_builtin_name(i)); i++) {
		_cleanup_policy_ struct bridge_policy *p = NULL, *again = NULL;
		_cleanup_buf_ struct buf a = BUF_INIT(CONFIG_MAX), b = BUF_INIT(CONFIG_MAX);
		struct err e = ERR_INIT;

		assert_int_equal(bridge_policy_builtin(name, &p, &e), 0);
		assert_int_equal(bridge_policy_print(p, &a), 0);
		if (parse(buf_text(&a), &again, &e) < 0)
			fail_msg("%s: %s", name, e.text);
		assert_int_equal(bridge_policy_print(again, &b), 0);
		assert_string_equal(buf_text(&a), buf_text(&b));
	}
	assert_int_equal(bridge_policy_builtin("nope", &(struct bridge_policy *){NULL}, NULL),
			 -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(mistakes_are_named),
	    cmocka_unit_test(a_whole_file_is_taken),
	    cmocka_unit_test(a_credential_elsewhere_has_its_header_alone),
	    cmocka_unit_test(sizes_at_the_edge),
	    cmocka_unit_test(reload_swaps_only_what_is_valid),
	    cmocka_unit_test(builtins_print_and_parse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
