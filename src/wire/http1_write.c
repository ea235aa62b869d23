#include "wire/http1.h"

#include <errno.h>
#include <string.h>

static const char *reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} t[] = {
	    {200, "OK"},
	    {201, "Created"},
	    {202, "Accepted"},
	    {204, "No Content"},
	    {206, "Partial Content"},
	    {301, "Moved Permanently"},
	    {302, "Found"},
	    {303, "See Other"},
	    {304, "Not Modified"},
	    {307, "Temporary Redirect"},
	    {308, "Permanent Redirect"},
	    {400, "Bad Request"},
	    {401, "Unauthorized"},
	    {403, "Forbidden"},
	    {404, "Not Found"},
	    {405, "Method Not Allowed"},
	    {408, "Request Timeout"},
	    {409, "Conflict"},
	    {410, "Gone"},
	    {412, "Precondition Failed"},
	    {413, "Content Too Large"},
	    {414, "URI Too Long"},
	    {415, "Unsupported Media Type"},
	    {417, "Expectation Failed"},
	    {422, "Unprocessable Content"},
	    {429, "Too Many Requests"},
	    {431, "Request Header Fields Too Large"},
	    {500, "Internal Server Error"},
	    {501, "Not Implemented"},
	    {502, "Bad Gateway"},
	    {503, "Service Unavailable"},
	    {504, "Gateway Timeout"},
	    {505, "HTTP Version Not Supported"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (t[i].status == status)
			return t[i].text;
	return "Status";
}

/* Of every answer: a tenth of the time that making a head takes, were it printf's. */
static int put_number(struct buf *out, uint64_t v)
{
	char digits[20];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + v % 10);
	while (v /= 10);
	return buf_put(out, digits + at, sizeof(digits) - at);
}

/* Made here from what is known, whatever the other side said about them. */
static bool framing_name(struct view name)
{
	static const char *const t[] = {
	    "connection", "content-length", "keep-alive", "proxy-connection",
	    "te",	  "trailer",	    "upgrade",	  "transfer-encoding",
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (header_name_is(name, t[i]))
			return true;
	return false;
}

int http1_put_head(struct buf *out, const struct http1 *p, int status, const struct header *headers,
		   size_t n, int64_t body_len, bool close, struct http1_writer *w)
{
	bool empty = status == 204 || status == 304;

	if (status < 200 || status > 599)
		return -EPROTO;
	for (size_t i = 0; i < n; i++)
		if (!header_name_ok(headers[i].name) || !header_value_ok(headers[i].value))
			return -EPROTO;
	*w = (struct http1_writer){.close = close || !p || !p->keep_alive};
	w->no_body = empty || (p && p->is_head);
	w->sized = body_len >= 0;
	w->left = w->sized ? (uint64_t)body_len : 0;
	w->chunked = !w->sized && p && p->minor == 1;
	/* HTTP/1.0 and no length: the end of the connection is the end of the body. */
	if (!w->sized && !w->chunked && !w->no_body)
		w->close = true;
	(void)buf_puts(out, "HTTP/1.1 ");
	(void)put_number(out, (uint64_t)status);
	(void)buf_putc(out, ' ');
	(void)buf_puts(out, reason(status));
	(void)buf_puts(out, "\r\n");
	for (size_t i = 0; i < n; i++) {
		if (framing_name(headers[i].name))
			continue;
		(void)buf_put(out, headers[i].name.p, headers[i].name.n);
		(void)buf_puts(out, ": ");
		(void)buf_put(out, headers[i].value.p, headers[i].value.n);
		(void)buf_puts(out, "\r\n");
	}
	if (!empty && w->sized) {
		(void)buf_puts(out, "content-length: ");
		(void)put_number(out, (uint64_t)body_len);
		(void)buf_puts(out, "\r\n");
	} else if (!empty && w->chunked) {
		(void)buf_puts(out, "transfer-encoding: chunked\r\n");
	}
	if (w->close)
		(void)buf_puts(out, "connection: close\r\n");
	else if (p->minor == 0)
		(void)buf_puts(out, "connection: keep-alive\r\n");
	return buf_puts(out, "\r\n");
}

int http1_put_body(struct buf *out, struct http1_writer *w, const void *data, size_t n)
{
	if (w->sized) {
		if (n > w->left) {
			w->close = true;
			return -EPROTO;
		}
		w->left -= n;
	}
	if (w->no_body || n == 0)
		return 0;
	if (!w->chunked)
		return buf_put(out, data, n);
	(void)buf_putf(out, "%zx\r\n", n);
	(void)buf_put(out, data, n);
	return buf_puts(out, "\r\n");
}

int http1_put_end(struct buf *out, struct http1_writer *w)
{
	if (w->no_body)
		return 0;
	if (w->sized && w->left) {
		w->close = true;
		return -EPROTO;
	}
	return w->chunked ? buf_puts(out, "0\r\n\r\n") : 0;
}

int http1_put_error(struct buf *out, const struct http1 *p, int status, const char *code,
		    const char *why)
{
	static const struct header type = {{"content-type", 12}, {"application/json", 16}};
	struct buf body = BUF_INIT(1024);
	struct http1_writer w;
	int r;

	(void)buf_putf(&body, "{\"error\":\"%.300s\",\"code\":\"%.100s\"}", why, code);
	r = http1_put_head(out, p, status, &type, 1, (int64_t)body.len, true, &w);
	if (r == 0)
		r = http1_put_body(out, &w, buf_text(&body), body.len);
	buf_done(&body);
	return r < 0 ? r : http1_put_end(out, &w);
}
