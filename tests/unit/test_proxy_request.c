/* Unit tests of src/bridge/proxy_request.c and wire/tlshello.c: what clients of the network proxy may say (S2-09). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "bridge/proxy_request.h"
#include "wire/tlshello.h"

static enum http1_event feed(struct http1 *h, const char *text)
{
	struct view piece;
	size_t used;

	http1_init(h);
	return http1_feed(h, text, strlen(text), &used, &piece);
}

static void verdicts(void **state)
{
	static const struct {
		const char *head; /* without the empty line */
		const char *want; /* "host port", or the rule that refuses */
	} rows[] = {
	    {"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443", "a.test 443"},
	    {"CONNECT a.test:443 HTTP/1.0", "a.test 443"},
	    {"CONNECT A.Test.:8443 HTTP/1.1\r\nHost: x", "a.test 8443"},
	    {"CONNECT [2001:4860::1]:443 HTTP/1.1\r\nHost: x", "2001:4860::1 443"},
	    {"CONNECT a.test HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"CONNECT http://a.test:443 HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"CONNECT u@a.test:443 HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"CONNECT 0x7f.1:443 HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 3", "proxy.body"},
	    {"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked", "proxy.body"},
	    {"GET http://a.test/x HTTP/1.1\r\nHost: a.test", "a.test 80"},
	    {"GET HTTP://A.test:80/x HTTP/1.1\r\nHost: a.TEST", "a.test 80"},
	    {"GET http://a.test?q HTTP/1.1\r\nHost: a.test:80", "a.test 80"},
	    {"GET http://a.test:8080/ HTTP/1.1\r\nHost: a.test:8080", "a.test 8080"},
	    {"GET http://a.test/x HTTP/1.0", "a.test 80"},
	    {"GET http://a.test:8080/ HTTP/1.1\r\nHost: a.test", "proxy.host"},
	    {"GET http://a.test/ HTTP/1.1\r\nHost: b.test", "proxy.host"},
	    {"GET http://a.test/ HTTP/1.1\r\nHost: a.test, b.test", "proxy.host"},
	    {"GET http://a.test/ HTTP/1.1\r\nHost: ", "proxy.host"},
	    {"GET http://a.test@b.test/ HTTP/1.1\r\nHost: b.test", "proxy.target"},
	    {"GET http://a.test:80:80/ HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"GET http://a.test\\@b.test/ HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"GET http:///x HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"GET http://a.test/#x HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"GET http://a%2etest/ HTTP/1.1\r\nHost: a.test", "proxy.target"},
	    {"GET /x HTTP/1.1\r\nHost: a.test", "proxy.form"},
	    {"GET https://a.test/ HTTP/1.1\r\nHost: a.test", "proxy.form"},
	    {"GET ftp://a.test/ HTTP/1.1\r\nHost: a.test", "proxy.form"},
	    {"OPTIONS * HTTP/1.1\r\nHost: a.test", "proxy.form"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[512], got[300];
		struct proxy_request r;
		struct http1 h;

		(void)snprintf(text, sizeof(text), "%s\r\n\r\n", rows[i].head);
		assert_int_equal(feed(&h, text), HTTP1_HEAD);
		if (proxy_request_parse(&h, &r) == 0)
			(void)snprintf(got, sizeof(got), "%s %u", r.to.host, r.to.port);
		else
			(void)snprintf(got, sizeof(got), "%s", r.rule);
		if (strcmp(got, rows[i].want) != 0)
			fail_msg("%s: %s, not %s", rows[i].head, got, rows[i].want);
		http1_done(&h);
	}
}

/* RFC 9110, 7.6.1: what belongs to one connection ends here; framing is made anew. */
static void rewriting(void **state)
{
	static const struct {
		const char *from, *to;
	} rows[] = {
	    {"GET http://a.test/x?y HTTP/1.1\r\nHost: A.TEST:80\r\nAccept: */*\r\n\r\n",
	     "GET /x?y HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nAccept: */*\r\n\r\n"},
	    {"GET http://a.test:81?y HTTP/1.0\r\n\r\n",
	     "GET /?y HTTP/1.1\r\nHost: a.test:81\r\nConnection: close\r\n\r\n"},
	    {"POST http://a.test HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, X-Hop\r\n"
	     "X-Hop: 1\r\nX-Stay: 2\r\nProxy-Authorization: Basic x\r\nProxy-Connection: close\r\n"
	     "Upgrade: h2c\r\nTE: trailers\r\nKeep-Alive: 3\r\nExpect: 100-continue\r\n"
	     "Content-Length: 3\r\n\r\n",
	     "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nX-Stay: 2\r\n"
	     "Content-Length: 3\r\n\r\n"},
	    {"PUT http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n",
	     "PUT / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nTransfer-Encoding: "
	     "chunked\r\n\r\n"},
	    {"DELETE http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
	     "DELETE / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(65536);
		struct proxy_request r;
		struct http1 h;

		assert_int_equal(feed(&h, rows[i].from), HTTP1_HEAD);
		assert_int_equal(proxy_request_parse(&h, &r), 0);
		assert_int_equal(proxy_request_head(&h, &r, &out), 0);
		assert_string_equal(buf_text(&out), rows[i].to);
		http1_done(&h);
	}
}

/* A ClientHello with these extensions, in records of at most `cut` bytes. */
static void hello(struct buf *b, const char *exts, size_t n, size_t cut)
{
	_cleanup_buf_ struct buf m = BUF_INIT(65536);
	static const char zeros[32];

	(void)buf_put(&m, "\3\3", 2);
	(void)buf_put(&m, zeros, 32);
	(void)buf_put(&m, "\0\0\2\x13\1\1\0", 7);
	(void)buf_putc(&m, (char)(n >> 8));
	(void)buf_putc(&m, (char)n);
	(void)buf_put(&m, exts, n);
	{
		_cleanup_buf_ struct buf all = BUF_INIT(65536);

		(void)buf_putc(&all, 1);
		(void)buf_putc(&all, 0);
		(void)buf_putc(&all, (char)(m.len >> 8));
		(void)buf_putc(&all, (char)m.len);
		(void)buf_put(&all, m.data, m.len);
		for (size_t at = 0; at < all.len; at += cut) {
			size_t k = all.len - at < cut ? all.len - at : cut;

			(void)buf_put(b, "\x16\3\1", 3);
			(void)buf_putc(b, (char)(k >> 8));
			(void)buf_putc(b, (char)k);
			(void)buf_put(b, all.data + at, k);
		}
	}
}

static void hellos(void **state)
{
	static const char good[] = "\0\x2b\0\3\2\3\4\0\0\0\x0b\0\x09\0\0\6a.test";
	static const char twice[] = "\0\0\0\x0b\0\x09\0\0\6a.test\0\0\0\x0b\0\x09\0\0\6b.test";
	static const char two_names[] = "\0\0\0\x14\0\x12\0\0\6a.test\0\0\6b.test";
	static const char nul[] = "\0\0\0\x0b\0\x09\0\0\6a.t\0st";
	static const char none[] = "\0\x2b\0\3\2\3\4";
	static const char cut_short[] = "\0\0\0\x0b\0\x09\0\0\7a.test";
	const struct {
		const char *exts;
		size_t n;
		enum tlshello want;
	} rows[] = {
	    {good, sizeof(good) - 1, TLSHELLO_NAME},
	    {twice, sizeof(twice) - 1, TLSHELLO_BAD},
	    {two_names, sizeof(two_names) - 1, TLSHELLO_BAD},
	    {nul, sizeof(nul) - 1, TLSHELLO_BAD},
	    {none, sizeof(none) - 1, TLSHELLO_NONE},
	    {cut_short, sizeof(cut_short) - 1, TLSHELLO_BAD},
	};
	char name[TLSHELLO_NAME_MAX + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (size_t cut = 1; cut < 128; cut++) {
			_cleanup_buf_ struct buf b = BUF_INIT(65536);

			hello(&b, rows[i].exts, rows[i].n, cut);
			assert_int_equal(tlshello_name(b.data, b.len, name), rows[i].want);
			if (rows[i].want == TLSHELLO_NAME)
				assert_string_equal(name, "a.test");
			/* Any beginning of it is not whole yet. */
			for (size_t k = 0; k < b.len; k++)
				assert_int_equal(tlshello_name(b.data, k, name), TLSHELLO_MORE);
		}
	assert_int_equal(tlshello_name("GET / HTTP/1.1\r\n", 16, name), TLSHELLO_BAD);
	assert_int_equal(tlshello_name("\x16\3\1\0\4\2", 6, name), TLSHELLO_BAD);
	assert_int_equal(tlshello_name("\x16\3\1\0\0", 5, name), TLSHELLO_BAD);
	assert_int_equal(tlshello_name("\x16\3\1\0\4\1\xff\xff\xff", 9, name), TLSHELLO_BAD);
	assert_int_equal(tlshello_name("SSH-2.0-x", 9, name), TLSHELLO_BAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(verdicts),
	    cmocka_unit_test(rewriting),
	    cmocka_unit_test(hellos),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
