/* HTTP/1 requests and answers (H08, smuggling): however the bytes are cut, the same come out, inside what was read. */
#include "fuzz.h"

#include <string.h>

#include "wire/http1.h"

/* What was understood, as text: method, target, headers, body, end. */
static void drive(const char *data, size_t n, uint32_t seed, struct buf *out)
{
	struct http1 p;
	size_t at = 0, have = seed ? 0 : n;
	bool open = true;

	http1_init(&p);
	while (open) {
		struct view piece;
		size_t used;
		enum http1_event ev = http1_feed(&p, data + at, have - at, &used, &piece);

		MUST(used <= have - at);
		at += used;
		switch (ev) {
		case HTTP1_HEAD:
			MUST(p.method.n > 0 && p.method.n <= 16 && p.target.n > 0);
			MUST(p.headers_len <= BRIDGE_HEADERS_MAX);
			MUST(memchr(p.target.p, ' ', p.target.n) == NULL);
			(void)buf_put(out, p.method.p, p.method.n);
			(void)buf_put(out, p.target.p, p.target.n);
			for (size_t i = 0; i < p.headers_len; i++) {
				MUST(header_name_ok(p.headers[i].name));
				MUST(header_value_ok(p.headers[i].value));
				(void)buf_put(out, p.headers[i].name.p, p.headers[i].name.n);
				(void)buf_put(out, p.headers[i].value.p, p.headers[i].value.n);
			}
			break;
		case HTTP1_BODY:
			MUST(piece.n > 0 && piece.p >= data && piece.p + piece.n <= data + at);
			(void)buf_put(out, piece.p, piece.n);
			break;
		case HTTP1_END:
			(void)buf_putf(out, "\n%zu\n", at);
			http1_next(&p);
			break;
		case HTTP1_ERROR:
			MUST(p.status >= 400 && p.status <= 505 && p.why[0] && !p.keep_alive);
			(void)buf_putf(out, "\n%d\n", p.status);
			open = false;
			break;
		case HTTP1_MORE:
			MUST(at == have);
			if (have == n)
				open = false;
			else
				have += 1 + fuzz_random(&seed) % (n - have < 40 ? n - have : 40);
		}
	}
	MUST(p.head.len <= HTTP1_LINE_MAX + HTTP1_HEAD_MAX);
	http1_done(&p);
}

/* The same for an upstream's answers, one behind the other on a connection that then ends. */
static void drive_answers(const char *data, size_t n, uint32_t seed, struct buf *out)
{
	struct http1 p;
	size_t at = 0, have = seed ? 0 : n;
	bool open = true;

	http1_init_answer(&p, BRIDGE_UPSTREAM_HEADERS_MAX);
	http1_next_answer(&p, n & 1);
	while (open) {
		struct view piece;
		size_t used;
		enum http1_event ev = http1_feed(&p, data + at, have - at, &used, &piece);

		MUST(used <= have - at);
		at += used;
		if (ev == HTTP1_MORE && have == n)
			ev = http1_eof(&p);
		switch (ev) {
		case HTTP1_HEAD:
			MUST(p.code >= 200 && p.code <= 599 && p.headers_len <= BRIDGE_HEADERS_MAX);
			(void)buf_putf(out, "%d", p.code);
			for (size_t i = 0; i < p.headers_len; i++) {
				MUST(header_name_ok(p.headers[i].name));
				(void)buf_put(out, p.headers[i].value.p, p.headers[i].value.n);
			}
			break;
		case HTTP1_BODY:
			MUST(piece.n > 0 && piece.p >= data && piece.p + piece.n <= data + at);
			MUST(!p.to_head && p.code != 204 && p.code != 304);
			(void)buf_put(out, piece.p, piece.n);
			break;
		case HTTP1_END:
			(void)buf_putf(out, "\n%zu\n", at);
			open = p.keep_alive && at < n;
			http1_next_answer(&p, false);
			break;
		case HTTP1_ERROR:
			MUST(p.why[0] && !p.keep_alive);
			(void)buf_puts(out, "\nbad\n");
			open = false;
			break;
		case HTTP1_MORE:
			MUST(at == have);
			if (have == n)
				open = false;
			else
				have += 1 + fuzz_random(&seed) % (n - have < 40 ? n - have : 40);
		}
	}
	MUST(p.head.len <= BRIDGE_UPSTREAM_HEADERS_MAX);
	http1_done(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct buf whole = BUF_INIT(FUZZ_SEED_MAX), cut = BUF_INIT(FUZZ_SEED_MAX);

	drive((const char *)p, n, 0, &whole);
	drive((const char *)p, n, (uint32_t)n * 2 + 1, &cut);
	drive_answers((const char *)p, n, 0, &whole);
	drive_answers((const char *)p, n, (uint32_t)n * 2 + 1, &cut);
	MUST(whole.len == cut.len && memcmp(buf_text(&whole), buf_text(&cut), cut.len) == 0);
	buf_done(&whole);
	buf_done(&cut);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char *const seeds[] = {
	    "GET /api/agents/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n",
	    "POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
	    ("PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0A\r\n0123456789\r\n"
	     "0\r\nX: y\r\n\r\nGET / HTTP/1.0\r\n\r\n"),
	    "HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n",
	    "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	    "\r\nGET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
	    "HTTP/1.1 103 X\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204\r\n\r\n",
	    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"
	     "HTTP/1.0 404 Not Found\r\n\r\nto the end"),
	};

	return FUZZ_TEXT(seeds, i, b);
}

FUZZ_NO_REPAIR()
