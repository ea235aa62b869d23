/*
 * Requests of the network proxy (S2-09): whatever is let through names one place in canonical form, and what is written
 * for the server reads back as one request, to that place, with nothing left that belongs to one connection.
 */
#include "fuzz.h"

#include <string.h>

#include "bridge/proxy_request.h"

static void reads_back(const struct http1 *from, const struct proxy_request *r)
{
	struct buf out = BUF_INIT(1 << 16);
	struct http1 h;
	struct view piece;
	struct net_target host;
	const char *why;
	size_t used, hosts = 0;

	MUST(proxy_request_head(from, r, &out) == 0);
	http1_init(&h);
	MUST(http1_feed(&h, out.data, out.len, &used, &piece) == HTTP1_HEAD);
	MUST(used == out.len);
	MUST(h.content_length == from->content_length && !h.keep_alive && !h.expect_continue);
	MUST(h.method.n == from->method.n && h.target.n > 0 && h.target.p[0] == '/');
	for (size_t i = 0; i < h.headers_len; i++) {
		MUST(!header_name_is(h.headers[i].name, "proxy-authorization"));
		MUST(!header_name_is(h.headers[i].name, "upgrade"));
		if (!header_name_is(h.headers[i].name, "host"))
			continue;
		hosts++;
		MUST(net_target_parse(h.headers[i].value, 80, &host, &why) == 0);
		MUST(host.port == r->to.port && strcmp(host.host, r->to.host) == 0);
	}
	MUST(hosts == 1);
	http1_done(&h);
	buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char text[NET_TARGET_TEXT];
	struct proxy_request r;
	struct net_target again;
	struct view piece;
	struct http1 h;
	const char *why;
	size_t used;

	http1_init(&h);
	if (http1_feed(&h, (const char *)p, n, &used, &piece) == HTTP1_HEAD &&
	    proxy_request_parse(&h, &r) == 0) {
		net_target_text(&r.to, text);
		MUST(net_target_parse((struct view){text, strlen(text)}, NET_DEFAULT_PORT, &again,
				      &why) == 0);
		MUST(strcmp(again.host, r.to.host) == 0 && again.port == r.to.port &&
		     again.literal == r.to.literal);
		for (const char *c = r.to.host; *c; c++)
			MUST(strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.:", *c));
		if (!r.connect)
			reads_back(&h, &r);
	}
	http1_done(&h);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char *const seeds[] = {
	    "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
	    "CONNECT [2001:4860::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n",
	    "CONNECT 127.0.0.1:80 HTTP/1.0\r\n\r\n",
	    "GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nConnection: x, y\r\nX: 1\r\n\r\n",
	    "POST http://a.test:81 HTTP/1.1\r\nHost: a.test:81\r\nContent-Length: 3\r\n\r\nabc",
	    "PUT http://a.test?q HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	    "GET http://u@a.test/ HTTP/1.1\r\nHost: a.test\r\nUpgrade: h2c\r\n\r\n",
	};

	return FUZZ_TEXT(seeds, i, b);
}

FUZZ_NO_REPAIR()
