/* Unit tests of src/wire/queue.c and json.c: envelopes of the file queue (S2-01, S2-07, S2-08). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/cleanup.h"
#include "wire/queue.h"

#define ID "00000000000000a1-0123456789abcdef"
#define A "{\"version\":2,\"id\":\"" ID "\",\"auth\":\"tok\","
#define M "\"method\":\"GET\","
#define P "\"path\":\"/a\","
#define HD "\"headers\":{}"
#define R A "\"status\":200,"

static struct view v_of(const char *s)
{
	return (struct view){s, strlen(s)};
}

static int request(const char *text, size_t n, struct queue_envelope *q, const char **why)
{
	int r = queue_request_parse(text, n ? n : strlen(text), ID, 100, q, why);

	assert_true(r == 0 || (*why)[0]);
	return r;
}

static void requests_are_read_strictly(void **state)
{
	static const struct {
		const char *id, *text;
		size_t n;
		int want;
	} t[] = {
	    {"-", A M P HD "}", 0, 0},
	    {"-", A M P HD "}\n", 0, 0},
	    {"-",
	     " {\t\"headers\" : {} ,\r\n\"path\":\"/a\",\"method\":\"GET\",\"auth\":\"\",\"id\":\"" ID
	     "\",\"version\":2} ",
	     0, 0},
	    {"A01", "{\"version\":2,\"id\":\"" ID "\"," M P HD "}", 0, 0}, /* for the guard: 401 */
	    {"P17", A M "\"path\":\"/api/issues/i?/comments\"," HD "}", 0, -EPROTO},
	    {"P17", A M "\"path\":\"/api/issues/i\\u003f/comments\"," HD "}", 0, -EPROTO},
	    {"P26", A M "\"path\":[\"/a\"]," HD "}", 0, -EPROTO},
	    {"P26", A M "\"path\":1," HD "}", 0, -EPROTO},
	    {"P26", A M "\"path\":null," HD "}", 0, -EPROTO},
	    {"P26", A M "\"path\":{}," HD "}", 0, -EPROTO},
	    {"P26", A M HD "}", 0, -EPROTO},
	    {"P26", A M P "\"query\":1," HD "}", 0, -EPROTO},
	    {"P26", A M P "\"query\":\"a=b\"," HD "}", 0, -EPROTO},
	    {"P26", A M P "\"query\":\"?a=b\"," HD "}", 0, 0},
	    {"M06", A P HD "}", 0, -EPROTO},
	    {"M06", A "\"method\":null," P HD "}", 0, -EPROTO},
	    {"M06", A "\"method\":7," P HD "}", 0, -EPROTO},
	    {"M06", A "\"method\":[\"GET\"]," P HD "}", 0, -EPROTO},
	    {"H16", A M P "\"path\":\"/b\"," HD "}", 0, -EPROTO},
	    {"H16", A M P HD "," HD "}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"a\":\"b\",\"a\":\"c\"}}", 0, -EPROTO},
	    {"H16", A M P HD ",\"__proto__\":{}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"__proto__\":\"x\"}}", 0, 0}, /* a header like any other */
	    {"H16", A M P HD "}x", 0, -EPROTO},
	    {"H16", A M P HD "}{}", 0, -EPROTO},
	    {"H16", A M P HD "}\0", sizeof(A M P HD "}"), -EPROTO},
	    {"H16", "\xef\xbb\xbf" A M P HD "}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":NaN}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"a\":NaN}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"a\":[\"b\"]}}", 0, -EPROTO}, /* a second spelling */
	    {"H16", A M P "\"headers\":{\"a\":[]}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"a\":[\"b\",\"c\"]}}", 0, 0},
	    {"H16", A M P "\"headers\":{\"a\":[\"b\",\"c\"],\"a\":\"d\"}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"ab\":\"b\",\"a\\u0062\":\"c\"}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"\\/a\":\"b\"}}", 0, -EPROTO}, /* an escape in a name */
	    {"H16", A M P "\"headers\":{\"a\":[\"b\",[\"c\"]]}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"a\":[\"b\",\"c\"}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":{\"a\":[\"b\",]}}", 0, -EPROTO},
	    {"H16", A M P "\"headers\":null}", 0, -EPROTO},
	    {"H16", A M P HD ",}", 0, -EPROTO},
	    {"H16", A M P HD, 0, -EPROTO},
	    {"H16", A M P HD "} //", 0, -EPROTO},
	    {"H16", "", 1, -EPROTO},
	    {"H16", "[]", 0, -EPROTO},
	    {"Q05", A M P "\"hea", 0, -EPROTO},
	    {"Q07",
	     "{\"version\":2,\"id\":\"00000000000000a1-0123456789abcdee\",\"auth\":\"t\"," M P HD
	     "}",
	     0, -EPROTO},
	    {"Q07", "{\"version\":2,\"id\":\"\",\"auth\":\"t\"," M P HD "}", 0, -EPROTO},
	    {"-", "{\"version\":1,\"id\":\"" ID "\",\"auth\":\"t\"," M P HD "}", 0, -EPROTO},
	    {"-", "{\"version\":\"2\",\"id\":\"" ID "\",\"auth\":\"t\"," M P HD "}", 0, -EPROTO},
	    {"-", "{\"version\":2.0,\"id\":\"" ID "\",\"auth\":\"t\"," M P HD "}", 0, -EPROTO},
	    {"-", "{\"version\":02,\"id\":\"" ID "\",\"auth\":\"t\"," M P HD "}", 0, -EPROTO},
	    {"-", A M P HD ",\"status\":200}", 0, -EPROTO},
	    {"-", A M P HD ",\"createdAt\":\"x\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YQ==\"}", 0, 0},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YR==\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YQ\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YQ=\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YWJ=\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"____\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YQ==\\n\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YQ ==\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"====\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"Y\\/==\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"base64\",\"body\":\"YQ==YQ==\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":\"hex\",\"body\":\"61\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"bodyEncoding\":null,\"body\":\"61\"}", 0, -EPROTO},
	    {"B06", A M P HD ",\"body\":61}", 0, -EPROTO},
	    {"B06", A M P HD ",\"body\":null}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\xff\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\xc0\xae\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\xed\xa0\x80\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\\ud800\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\\ud800\\u0041\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\\udc00\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\\u0000\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\\x41\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\\u00g0\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"a\nb\"}", 0, -EPROTO},
	    {"B05", A M P HD ",\"body\":\"\\u00e9\\n\"}", 0, 0},
	};
	const char *why;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct queue_envelope q;
		int r = request(t[i].text, t[i].n, &q, &why);

		if (r != t[i].want)
			fail_msg("%s row %zu: %d (%s): %s", t[i].id, i, r, why, t[i].text);
		queue_envelope_done(&q);
	}
}

/* H16: depth is refused at its first byte; no recursion. */
static void depth_H16(void **state)
{
	struct buf b = BUF_INIT(1 << 20);
	struct queue_envelope q;
	const char *why;

	(void)state;
	(void)buf_puts(&b, A M P "\"headers\":");
	for (int i = 0; i < 100000; i++)
		(void)buf_putc(&b, i % 2 ? '[' : '{');
	assert_int_equal(queue_request_parse(b.data, b.len, ID, 1 << 20, &q, &why), -EPROTO);
	queue_envelope_done(&q);
	buf_done(&b);
}

static void what_was_written_is_read_again(void **state)
{
	static const char every[] = "\x00\xff\r\n\"\\ {}a\x80";
	static const struct header h[] = {{{"accept", 6}, {"a \"b\"\t\\", 7}},
					  {{"x-y", 3}, {"\xc3\xa9\xf0\x9f\x98\x80", 6}}};
	struct queue_message m = {.id = ID,
				  .auth = v_of("tok\"en"),
				  .method = v_of("POST"),
				  .target = v_of("/a%20b?c=d&e=?"),
				  .headers = h,
				  .headers_len = 2};
	struct buf bad = BUF_INIT(65536);
	struct queue_envelope q;
	const char *why;

	(void)state;
	for (size_t len = 0; len < sizeof(every); len++) {
		_cleanup_buf_ struct buf b = BUF_INIT(65536), body = BUF_INIT(65536);

		m.body = (struct view){every, len};
		assert_int_equal(queue_request_print(&b, &m), 0);
		assert_int_equal(b.data[b.len - 1], '\n');
		assert_int_equal(request(buf_text(&b), b.len, &q, &why), 0);
		assert_int_equal(q.body_len, len);
		assert_int_equal(queue_body(&q, &body), 0);
		assert_int_equal(body.len, len);
		assert_memory_equal(buf_text(&body), every, len); /* B04 */
		assert_memory_equal(q.auth.p, "tok\"en", q.auth.n);
		assert_memory_equal(q.method.p, "POST", q.method.n);
		assert_int_equal(q.target.n, m.target.n);
		assert_memory_equal(q.target.p, m.target.p, q.target.n); /* FR-B147 */
		assert_int_equal(q.headers_len, 2);
		for (size_t i = 0; i < 2; i++) {
			assert_int_equal(q.headers[i].value.n, h[i].value.n);
			assert_memory_equal(q.headers[i].value.p, h[i].value.p, h[i].value.n);
		}
		queue_envelope_done(&q);

		buf_reset(&b);
		m.status = 404;
		assert_int_equal(queue_response_print(&b, &m), 0);
		assert_int_equal(queue_response_parse(b.data, b.len, ID, m.auth, 100, &q, &why), 0);
		assert_int_equal(q.status, 404);
		assert_int_equal(q.body_len, len);
		queue_envelope_done(&q);
	}
	m.method = v_of("\xff");
	assert_int_equal(queue_request_print(&bad, &m), -EILSEQ);
	buf_done(&bad);
}

/* Q12: answers that somebody else wrote. */
static void responses_are_read_strictly_Q12(void **state)
{
	static const struct {
		const char *text;
		int want;
	} t[] = {
	    {R HD "}", 0},
	    {A "\"status\":99," HD "}", -EPROTO},
	    {A "\"status\":1000," HD "}", -EPROTO},
	    {A "\"status\":600," HD "}", -EPROTO},
	    {A "\"status\":-200," HD "}", -EPROTO},
	    {A "\"status\":200.5," HD "}", -EPROTO},
	    {A "\"status\":2e2," HD "}", -EPROTO},
	    {A "\"status\":\"x\"," HD "}", -EPROTO},
	    {A HD "}", -EPROTO},
	    {R HD ",\"path\":\"/a\"}", -EPROTO},
	    {"{\"version\":2,\"id\":\"" ID "\",\"auth\":\"other\",\"status\":200," HD "}", -EPROTO},
	    {"{\"version\":2,\"id\":\"" ID "\",\"auth\":\"to\",\"status\":200," HD "}", -EPROTO},
	    {"{\"version\":2,\"id\":\"00000000000000a2-0123456789abcdef\",\"auth\":\"tok\",\"status\":200," HD
	     "}",
	     -EPROTO},
	};
	struct queue_envelope q;
	const char *why;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = queue_response_parse(t[i].text, strlen(t[i].text), ID, v_of("tok"), 100, &q,
					     &why);

		if (r != t[i].want)
			fail_msg("row %zu: %d (%s): %s", i, r, why, t[i].text);
		queue_envelope_done(&q);
	}
}

/* B01: the limit and one beyond, for the body and for the whole. */
static void sizes_at_the_edge_s2_07(void **state)
{
	struct buf b = BUF_INIT(1 << 20), body = BUF_INIT(4096);
	struct queue_message m = {
	    .id = ID, .auth = v_of("t"), .method = v_of("POST"), .target = v_of("/a")};
	struct queue_envelope q;
	const char *why;

	(void)state;
	for (size_t i = 0; i < 101; i++)
		(void)buf_putc(&body, (char)i);
	for (size_t n = 98; n <= 101; n++) {
		buf_reset(&b);
		m.body = (struct view){body.data, n};
		assert_int_equal(queue_request_print(&b, &m), 0);
		assert_int_equal(request(b.data, b.len, &q, &why), n > 100 ? -E2BIG : 0);
		queue_envelope_done(&q);
	}
	for (size_t extra = 0; extra < 2; extra++) {
		buf_reset(&b);
		(void)buf_puts(&b, A M P HD "}");
		while (b.len < queue_envelope_max(100) + extra)
			(void)buf_putc(&b, ' ');
		assert_int_equal(request(b.data, b.len, &q, &why), extra ? -E2BIG : 0);
		queue_envelope_done(&q);

		buf_reset(&b);
		(void)buf_puts(&b, A M P "\"headers\":{");
		for (size_t i = 0; i < BRIDGE_HEADERS_MAX + extra; i++)
			(void)buf_putf(&b, "%s\"h%zu\":\"\"", i ? "," : "", i);
		(void)buf_puts(&b, "}}");
		assert_int_equal(request(b.data, b.len, &q, &why), extra ? -EPROTO : 0);
		queue_envelope_done(&q);
	}
	buf_done(&b);
	buf_done(&body);
}

static void names(void **state)
{
	static const char *const bad[] = {
	    "",
	    ".",
	    "..",
	    "x.json",
	    ID,
	    ID ".json.tmp",
	    ID ".tmp",
	    ID ".JSON",
	    "." ID ".json",
	    "00000000000000A1-0123456789abcdef.json",
	    "00000000000000a1_0123456789abcdef.json",
	    "00000000000000a1-0123456789abcde.json",
	    "00000000000000a1-0123456789abcdef0.json",
	    ID ".json\n",
	    "\n" ID ".json",
	    ID "/.json",
	};
	char id[QUEUE_ID_LEN + 1], name[64];
	uint64_t seq;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (queue_name_parse(bad[i], id, &seq))
			fail_msg("%s was taken", bad[i]);
	assert_true(queue_name_parse(ID ".json", id, &seq));
	assert_string_equal(id, ID);
	assert_int_equal(seq, 0xa1);
	queue_id_format(UINT64_MAX, 7, id);
	(void)snprintf(name, sizeof(name), "%s.json", id);
	assert_true(queue_name_parse(name, id, &seq));
	assert_true(seq == UINT64_MAX);
}

/* R8, Q17: a number runs once, however its file comes back. */
static void the_window_lets_a_number_run_once(void **state)
{
	struct queue_window w = {0};
	uint64_t base = UINT64_C(1) << 60;

	(void)state;
	assert_int_equal(queue_window_take(&w, base), 0);
	assert_int_equal(queue_window_take(&w, base), -EEXIST);
	assert_int_equal(queue_window_take(&w, base - 1), 0); /* out of order */
	assert_int_equal(queue_window_take(&w, base - 1), -EEXIST);
	assert_int_equal(queue_window_take(&w, base - QUEUE_WINDOW + 1), 0);
	assert_int_equal(queue_window_take(&w, base - QUEUE_WINDOW), -ESTALE);
	assert_int_equal(queue_window_take(&w, 0), -ESTALE);
	assert_int_equal(queue_window_take(&w, base + 3), 0);
	assert_int_equal(queue_window_take(&w, base), -EEXIST);
	assert_int_equal(queue_window_take(&w, base + 1), 0);
	assert_int_equal(queue_window_take(&w, base + 2), 0);
	assert_int_equal(queue_window_take(&w, base + QUEUE_WINDOW), 0);
	assert_int_equal(queue_window_take(&w, base), -ESTALE);
	assert_int_equal(queue_window_take(&w, base + 1), -EEXIST);
	assert_int_equal(queue_window_take(&w, base + 5), 0);
	for (uint64_t s = base + 10 * QUEUE_WINDOW; s < base + 12 * QUEUE_WINDOW; s++) {
		assert_int_equal(queue_window_take(&w, s), 0);
		assert_int_equal(queue_window_take(&w, s), -EEXIST);
	}
	assert_int_equal(queue_window_take(&w, UINT64_MAX), 0);
	assert_int_equal(queue_window_take(&w, UINT64_MAX), -EEXIST);
	assert_int_equal(queue_window_take(&w, UINT64_MAX - 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(requests_are_read_strictly),
	    cmocka_unit_test(depth_H16),
	    cmocka_unit_test(what_was_written_is_read_again),
	    cmocka_unit_test(responses_are_read_strictly_Q12),
	    cmocka_unit_test(sizes_at_the_edge_s2_07),
	    cmocka_unit_test(names),
	    cmocka_unit_test(the_window_lets_a_number_run_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
