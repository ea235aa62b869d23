/* Unit tests of src/wire/http1*.c: what the gateway takes from a client inside, and what it writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/cleanup.h"
#include "wire/http1.h"

#define L "GET /a HTTP/1.1\r\n"
#define H L "Host: x\r\n"
#define P "POST /a HTTP/1.1\r\nHost: x\r\n"

/* One connection read to its end: each request as METHOD TARGET [body], or the status of the error. */
static void drive(const char *data, size_t n, size_t step, struct buf *out)
{
	struct http1 p;
	size_t at = 0, have = 0;

	http1_init(&p);
	while (at < n || have == n) {
		struct view piece;
		size_t used;
		enum http1_event ev;

		if (have < at + step)
			have = at + step < n ? at + step : n;
		ev = http1_feed(&p, data + at, have - at, &used, &piece);
		assert_true(used <= have - at);
		at += used;
		if (ev == HTTP1_HEAD) {
			(void)buf_putf(out, "%.*s %.*s", (int)p.method.n, p.method.p,
				       (int)p.target.n, p.target.p);
			for (size_t i = 0; i < p.headers_len; i++)
				(void)buf_putf(out, " %.*s=%.*s", (int)p.headers[i].name.n,
					       p.headers[i].name.p, (int)p.headers[i].value.n,
					       p.headers[i].value.p);
			(void)buf_putf(out, " [");
		} else if (ev == HTTP1_BODY) {
			assert_true(piece.n > 0 && piece.p >= data &&
				    piece.p + piece.n <= data + n);
			(void)buf_put(out, piece.p, piece.n);
		} else if (ev == HTTP1_END) {
			(void)buf_putf(out, "]%s\n", p.keep_alive ? "" : " close");
			if (!p.keep_alive)
				break;
			http1_next(&p);
			if (at == n)
				break;
		} else if (ev == HTTP1_ERROR) {
			(void)buf_putf(out, "%d\n", p.status);
			assert_non_null(p.why);
			/* H08: it sticks */
			assert_int_equal(http1_feed(&p, data, n, &used, &piece), HTTP1_ERROR);
			assert_int_equal(used, 0);
			break;
		} else if (at == n || (at == have && have == n)) {
			(void)buf_puts(out, http1_pending(&p) ? "more\n" : "");
			break;
		}
	}
	http1_done(&p);
}

static void requests(void **state)
{
	static const struct {
		const char *data;
		size_t n;
		const char *want;
	} t[] = {
	    {H "\r\n", 0, "GET /a Host=x []\n"},
	    {"\r\n" H "\r\n", 0, "GET /a Host=x []\n"},
	    {"\r\n\r\n" H "\r\n", 0, "400\n"},
	    {H "A:b\r\nC: \t d e \t\r\nE:\r\n\r\n", 0, "GET /a Host=x A=b C=d e E= []\n"},
	    {H "Connection: close\r\n\r\n" H "\r\n", 0,
	     "GET /a Host=x Connection=close [] close\n"},
	    {H "Connection: x, Close\r\n\r\n", 0, "GET /a Host=x Connection=x, Close [] close\n"},
	    {"GET /a HTTP/1.0\r\n\r\n", 0, "GET /a [] close\n"},
	    {"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0,
	     "GET /a Connection=keep-alive []\n"},
	    {H "\r\n" H "\r\n", 0, "GET /a Host=x []\nGET /a Host=x []\n"},
	    {P "Content-Length: 5\r\n\r\nhello" H "\r\n", 0,
	     "POST /a Host=x Content-Length=5 [hello]\nGET /a Host=x []\n"},
	    {P "Content-Length: 0\r\n\r\n", 0, "POST /a Host=x Content-Length=0 []\n"},
	    {P "Content-Length: 5\r\n\r\nhell", 0, "POST /a Host=x Content-Length=5 [hellmore\n"},
	    {P "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n" H
	       "\r\n",
	     0, "POST /a Host=x Transfer-Encoding=chunked [abc0123456789]\nGET /a Host=x []\n"},
	    {P "Transfer-Encoding: Chunked\r\n\r\n0\r\nX: y\r\nZ: \r\n\r\n", 0,
	     "POST /a Host=x Transfer-Encoding=Chunked []\n"},
	    {P "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx", 0,
	     "POST /a Host=x Expect=100-continue Content-Length=1 [x]\n"},
	    {"DELETE /a?b HTTP/1.1\r\nHost: x\r\n\r\n", 0, "DELETE /a?b Host=x []\n"},
	    {"X /a HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n", 0, "X /a Host=\xc3\xa9 []\n"},
	    /* request lines */
	    {"GET  /a HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"GET /a  HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"GET /a HTTP/1.1 \r\nHost: x\r\n\r\n", 0, "400\n"},
	    {" GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"GET\t/a HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"GET /a\r\n\r\n", 0, "400\n"},
	    {"GET /a HTTP/2.0\r\nHost: x\r\n\r\n", 0, "505\n"},
	    {"GET /a HTTP/1.2\r\nHost: x\r\n\r\n", 0, "505\n"},
	    {"GET /a http/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"GET /a HTTP/1.1x\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"GET /a\x7f HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"G(T /a HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    {"ABCDEFGHIJKLMNOPQ /a HTTP/1.1\r\nHost: x\r\n\r\n", 0, "400\n"},
	    /* line ends, NUL */
	    {"GET /a HTTP/1.1\nHost: x\r\n\r\n", 0, "400\n"},
	    {L "Host: x\n\r\n", 0, "400\n"},
	    {H "\n", 0, "400\n"},
	    {"\n" H "\r\n", 0, "400\n"},
	    {H "A: b\rc\r\n\r\n", 0, "400\n"},
	    {H "A: b\r\r\n\r\n", 0, "400\n"},
	    {H "A: b\0c\r\n\r\n", sizeof(H "A: b\0c\r\n\r\n") - 1, "400\n"},
	    {"GET /\0 HTTP/1.1\r\n", 18, "400\n"},
	    /* headers */
	    {H " folded: x\r\n\r\n", 0, "400\n"},
	    {H "A: b\r\n c\r\n\r\n", 0, "400\n"},
	    {H "A : b\r\n\r\n", 0, "400\n"},
	    {H "A b: c\r\n\r\n", 0, "400\n"},
	    {H ": c\r\n\r\n", 0, "400\n"},
	    {H "novalue\r\n\r\n", 0, "400\n"},
	    {H "A: b\x01\r\n\r\n", 0, "400\n"},
	    {L "\r\n", 0, "400\n"},
	    {H "HOST: y\r\n\r\n", 0, "400\n"},
	    /* smuggling */
	    {P "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "400\n"},
	    {P "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 0, "400\n"},
	    {P "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 0, "400\n"},
	    {P "Content-Length: 5, 5\r\n\r\nhello", 0, "400\n"},
	    {P "Content-Length: +5\r\n\r\nhello", 0, "400\n"},
	    {P "Content-Length: -1\r\n\r\n", 0, "400\n"},
	    {P "Content-Length: 0x5\r\n\r\nhello", 0, "400\n"},
	    {P "Content-Length:\r\n\r\n", 0, "400\n"},
	    {P "Content-Length: 5 5\r\n\r\n", 0, "400\n"},
	    {P "Content-Length: 9999999999999999\r\n\r\n", 0, "400\n"},
	    {P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, "400\n"},
	    {P "Transfer-Encoding: gzip, chunked\r\n\r\n", 0, "501\n"},
	    {P "Transfer-Encoding: xchunked\r\n\r\n", 0, "501\n"},
	    {P "Transfer-Encoding: identity\r\n\r\n", 0, "501\n"},
	    {P "Transfer-Encoding: \"chunked\"\r\n\r\n", 0, "501\n"},
	    {"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "400\n"},
	    {P "Expect: 200-ok\r\n\r\n", 0, "417\n"},
#define C P "Transfer-Encoding: chunked\r\n\r\n"
#define CW "POST /a Host=x Transfer-Encoding=chunked ["
	    {C "\r\n", 0, CW "400\n"},
	    {C "g\r\n", 0, CW "400\n"},
	    {C "-1\r\n", 0, CW "400\n"},
	    {C "0x1\r\na\r\n", 0, CW "400\n"},
	    {C " 1\r\na\r\n", 0, CW "400\n"},
	    {C "1 \r\na\r\n", 0, CW "400\n"},
	    {C "1;x=y\r\na\r\n", 0, CW "400\n"},
	    {C "1\na\r\n", 0, CW "400\n"},
	    {C "1\r\nab\r\n", 0, CW "a400\n"},
	    {C "1\r\na\n0\r\n\r\n", 0, CW "a400\n"},
	    {C "000000001\r\na\r\n", 0, CW "400\n"},
	    {C "FFFFFFFFF\r\n", 0, CW "400\n"},
	    {C "1\r\na\r\n0\r\n\n", 0, CW "a400\n"},
	    {C "0\r\nA: b\n\r\n", 0, CW "400\n"},
	    {C "0\r\n folded\r\n\r\n", 0, CW "400\n"},
	    {C "0\r\nA\r: b\r\n\r\n", 0, CW "400\n"},
	    {C "0\r\nA: \x01\r\n\r\n", 0, CW "400\n"},
	    {C "ffffffff\r\nabc", 0, CW "abcmore\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		size_t n = t[i].n ? t[i].n : strlen(t[i].data);

		/* However the bytes are cut, the same comes out. */
		for (size_t step = 1; step <= n + 1; step += step < 8 ? 1 : n / 3 + 1) {
			_cleanup_buf_ struct buf out = BUF_INIT(65536);

			drive(t[i].data, n, step, &out);
			if (strcmp(buf_text(&out), t[i].want) != 0)
				fail_msg("row %zu, step %zu: %s\ngot  %swant %s", i, step,
					 t[i].data, buf_text(&out), t[i].want);
		}
	}
}

static int status_of(const struct buf *b)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

	drive(buf_text(b), b->len, b->len, &out);
	return strchr(buf_text(&out), '[') ? 200 : buf_text(&out)[0] == '4' ? 431 : 0;
}

/* H12, P24: at the limit and one beyond. */
static void sizes_at_the_edge(void **state)
{
	struct buf b = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

	(void)state;
	for (size_t extra = 0; extra < 2; extra++) {
		buf_reset(&b);
		(void)buf_puts(&b, "GET /");
		while (b.len < HTTP1_LINE_MAX - 11 + extra)
			(void)buf_putc(&b, 'a');
		(void)buf_puts(&b, " HTTP/1.1\r\nHost: x\r\n\r\n");
		buf_reset(&out);
		drive(b.data, b.len, 1000, &out);
		if (extra)
			assert_string_equal(buf_text(&out), "414\n");
		else
			assert_true(strncmp(buf_text(&out), "GET /", 5) == 0);

		buf_reset(&b);
		(void)buf_puts(&b, H);
		for (size_t i = 1; i < BRIDGE_HEADERS_MAX + extra; i++)
			(void)buf_puts(&b, "A: b\r\n");
		(void)buf_puts(&b, "\r\n");
		assert_int_equal(status_of(&b), extra ? 431 : 200);

		buf_reset(&b);
		(void)buf_puts(&b, H "A: ");
		while (b.len - strlen(L) < HTTP1_HEAD_MAX - 4 + extra)
			(void)buf_putc(&b, 'a');
		(void)buf_puts(&b, "\r\n\r\n");
		assert_int_equal(status_of(&b), extra ? 431 : 200);

		buf_reset(&b);
		(void)buf_puts(&b, P "Transfer-Encoding: chunked\r\n\r\n0\r\nA: ");
		for (size_t i = 0; i < HTTP1_TRAILER_MAX - 7 + extra; i++)
			(void)buf_putc(&b, 'a');
		(void)buf_puts(&b, "\r\n\r\n");
		buf_reset(&out);
		drive(b.data, b.len, 1000, &out);
		assert_int_equal(strstr(buf_text(&out), "[431\n") != NULL, extra);
	}
	/* An endless line costs no more than its limit. */
	buf_reset(&b);
	for (size_t i = 0; i < 300000; i++)
		(void)buf_putc(&b, 'a');
	buf_reset(&out);
	drive(b.data, b.len, b.len, &out);
	assert_string_equal(buf_text(&out), "414\n");
	buf_done(&b);
	buf_done(&out);
}

static void head_of(struct http1 *p, const char *text)
{
	struct view piece;
	size_t used;

	http1_init(p);
	assert_int_equal(http1_feed(p, text, strlen(text), &used, &piece), HTTP1_HEAD);
}

static void responses(void **state)
{
	static const struct header h[] = {{{"content-type", 12}, {"a/b", 3}},
					  {{"Content-Length", 14}, {"99", 2}},
					  {{"Transfer-Encoding", 17}, {"x", 1}},
					  {{"connection", 10}, {"x", 1}}};
	static const struct {
		const char *request;
		int status;
		int64_t len;
		bool close;
		const char *want;
	} t[] = {
	    {H "\r\n", 200, 2, false,
	     "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 2\r\n\r\nhi"},
	    {H "\r\n", 200, 2, true,
	     "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"},
	    {H "\r\n", 404, -1, false,
	     "HTTP/1.1 404 Not Found\r\ncontent-type: a/b\r\ntransfer-encoding: "
	     "chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"},
	    {"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n", 200, 2, false,
	     "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 2\r\n\r\n"},
	    {H "\r\n", 204, 0, false, "HTTP/1.1 204 No Content\r\ncontent-type: a/b\r\n\r\n"},
	    {H "\r\n", 304, -1, false, "HTTP/1.1 304 Not Modified\r\ncontent-type: a/b\r\n\r\n"},
	    {"GET /a HTTP/1.0\r\n\r\n", 299, -1, false,
	     "HTTP/1.1 299 Status\r\ncontent-type: a/b\r\nconnection: close\r\n\r\nhi"},
	    {"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, 2, false,
	     "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 2\r\nconnection: "
	     "keep-alive\r\n\r\nhi"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(65536);
		struct http1_writer w;
		struct http1 p;

		head_of(&p, t[i].request);
		assert_int_equal(http1_put_head(&out, &p, t[i].status, h, ARRAY_LEN(h), t[i].len,
						t[i].close, &w),
				 0);
		if (t[i].len != 0) {
			assert_int_equal(http1_put_body(&out, &w, "hi", 2), 0);
			assert_int_equal(http1_put_body(&out, &w, "", 0), 0);
		}
		assert_int_equal(http1_put_end(&out, &w), 0);
		assert_string_equal(buf_text(&out), t[i].want);
		assert_int_equal(w.close, strstr(t[i].want, ": close") != NULL);
		http1_done(&p);
	}
}

/* Q12: a spoofed answer cannot split the response, nor lie about its length. */
static void spoofed_responses_Q12(void **state)
{
	static const struct header bad[] = {
	    {{"a", 1}, {"b\r\nc: d", 7}},
	    {{"a\r\nb", 4}, {"c", 1}},
	    {{"a", 1}, {"\0", 1}},
	    {{"", 0}, {"x", 1}},
	};
	static const int statuses[] = {-1, 0, 99, 100, 199, 600, 1000};
	_cleanup_buf_ struct buf out = BUF_INIT(65536);
	struct http1_writer w;
	struct http1 p;

	(void)state;
	head_of(&p, H "\r\n");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(http1_put_head(&out, &p, 200, &bad[i], 1, 0, false, &w), -EPROTO);
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
		assert_int_equal(http1_put_head(&out, &p, statuses[i], NULL, 0, 0, false, &w),
				 -EPROTO);
	assert_int_equal(out.len, 0);
	assert_int_equal(http1_put_head(&out, &p, 200, NULL, 0, 2, false, &w), 0);
	assert_int_equal(http1_put_body(&out, &w, "abc", 3), -EPROTO);
	assert_true(w.close);
	assert_int_equal(http1_put_head(&out, &p, 200, NULL, 0, 2, false, &w), 0);
	assert_int_equal(http1_put_body(&out, &w, "a", 1), 0);
	assert_int_equal(http1_put_end(&out, &w), -EPROTO);
	assert_true(w.close);
	buf_reset(&out);
	assert_int_equal(http1_put_error(&out, NULL, 400, "http.syntax", "no"), 0);
	assert_string_equal(buf_text(&out),
			    "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
			    "content-length: 35\r\nconnection: close\r\n\r\n"
			    "{\"error\":\"no\",\"code\":\"http.syntax\"}");
	http1_done(&p);
}

#define OK "HTTP/1.1 200 OK\r\n"
#define LEN3 "Content-Length: 3\r\n\r\nabc"

/* An upstream's answer: CODE[body]; "cut": the connection ended within it; "bad"; and what is left of the input. */
static void answer_of(const char *text, size_t step, bool to_head, struct buf *out)
{
	size_t n = strlen(text), at = 0;
	enum http1_event ev = HTTP1_MORE;
	struct http1 p;

	http1_init_answer(&p, 4096);
	http1_next_answer(&p, to_head);
	while (ev != HTTP1_END && ev != HTTP1_ERROR) {
		size_t k = at + step < n ? step : n - at, used;
		struct view piece;

		ev = http1_feed(&p, text + at, k, &used, &piece);
		at += used;
		if (ev == HTTP1_HEAD)
			(void)buf_putf(out, "%d%s[", p.code, p.keep_alive ? "" : "!");
		else if (ev == HTTP1_BODY)
			(void)buf_put(out, piece.p, piece.n);
		else if (ev == HTTP1_MORE && at == n)
			ev = http1_eof(&p);
		else
			continue;
		if (ev == HTTP1_MORE && at == n) {
			(void)buf_puts(out, "cut");
			break;
		}
	}
	if (ev == HTTP1_ERROR)
		(void)buf_puts(out, "bad");
	else if (ev == HTTP1_END)
		(void)buf_putf(out, "]%s", step > n ? text + at : "");
	http1_done(&p);
}

static void answers_F_and_Q12(void **state)
{
	static const struct {
		const char *text, *want;
		bool head;
	} t[] = {
	    {OK LEN3, "200[abc]", false},
	    {OK LEN3, "200[]abc", true},
	    {"HTTP/1.1 204 \r\n\r\n", "204[]", false},
	    {"HTTP/1.1 304\r\nContent-Length: 9\r\n\r\n", "304[]", false},
	    {OK "Content-Length: 0\r\n\r\n", "200[]", false},
	    {OK "Connection: close\r\n" LEN3, "200![abc]", false},
	    {"HTTP/1.0 200 OK\r\n" LEN3, "200![abc]", false},
	    {OK "\r\nuntil the end", "200![until the end]", false},
	    {OK "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2  \r\nde\r\n0\r\nT: v\r\n\r\n",
	     "200[abcde]", false},
	    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: a\r\n\r\n" OK LEN3, "200[abc]",
	     false},
	    /* What stands behind an answer is told apart from it. */
	    {OK LEN3 "HTTP/1.1 200 OK\r\n", "200[abc]HTTP/1.1 200 OK\r\n", false},
	    {OK "X: a\x01z\r\n" LEN3, "200[abc]", false},
	    {OK "Content-Length: 5\r\n\r\nabc", "200[abccut", false},
	    {OK "Transfer-Encoding: chunked\r\n\r\n3\r\nabc", "200[abccut", false},
	    {OK, "cut", false},
	    {"HTTP/1.1 101 Switching\r\n\r\nraw", "bad", false},
	    {"HTTP/1.1 099 X\r\n\r\n", "bad", false},
	    {"HTTP/1.1 600 X\r\n\r\n", "bad", false},
	    {"HTTP/2 200 X\r\n\r\n", "bad", false},
	    {"HTTP/1.1 2000 X\r\n\r\n", "bad", false},
	    {"200 OK\r\n\r\n", "bad", false},
	    {"\r\n" OK LEN3, "bad", false},
	    {"HTTP/1.1 200 OK\n\n", "bad", false},
	    {OK "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "bad", false},
	    {OK "Transfer-Encoding: chunked\r\n" LEN3, "bad", false},
	    {OK "Transfer-Encoding: gzip\r\n\r\n", "bad", false},
	    {OK "Content-Length: -1\r\n\r\n", "bad", false},
	    {OK "Content-Length : 3\r\n\r\nabc", "bad", false},
	    {OK "a: b\r\n c\r\n\r\n", "bad", false},
	    {OK "Transfer-Encoding: chunked\r\n\r\n3;\nabc", "200[bad", false},
	    {OK "Transfer-Encoding: chunked\r\n\r\n;\r\n", "200[bad", false},
	    {OK "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", "200[abcbad", false},
	};
	char big[6000];

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		for (size_t step = 1; step < 1000; step = step < 7 ? step + 1 : step * 10) {
			_cleanup_buf_ struct buf out = BUF_INIT(65536);

			if (step < 100 && t[i].want[strlen(t[i].want) - 1] == '\n')
				continue;
			if (step < 100 && t[i].head)
				continue;
			answer_of(t[i].text, step, t[i].head, &out);
			assert_string_equal(buf_text(&out), t[i].want);
		}
	}
	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	memcpy(big, OK "h: ", sizeof(OK "h: ") - 1);
	for (size_t step = 1; step < 10000; step *= 100) {
		_cleanup_buf_ struct buf out = BUF_INIT(65536);

		answer_of(big, step, false, &out);
		assert_string_equal(buf_text(&out), "bad");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(requests),		 cmocka_unit_test(sizes_at_the_edge),
	    cmocka_unit_test(responses),	 cmocka_unit_test(spoofed_responses_Q12),
	    cmocka_unit_test(answers_F_and_Q12),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
