#include "wire/http1.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

/* The line and its end, all headers with their separators, and the first empty line. */
#define HEAD_BYTES (HTTP1_LINE_MAX + HTTP1_HEAD_MAX)

enum state {
	S_LINE,	      /* request line */
	S_HEADERS,    /* up to the empty line */
	S_BODY_SIZED, /* Content-Length */
	S_BODY_OPEN,  /* an answer up to the end of the connection */
	S_CHUNK_SIZE,
	S_CHUNK_SIZE_LF,
	S_CHUNK_MORE, /* what an answer has behind a chunk's size */
	S_CHUNK_DATA,
	S_CHUNK_CR,
	S_CHUNK_LF,
	S_TRAILER, /* lines after the last chunk, dropped */
	S_END,	   /* complete; nothing is read before http1_next */
	S_ERROR
};

void http1_init(struct http1 *p)
{
	memset(p, 0, sizeof(*p));
	buf_init(&p->head, HEAD_BYTES);
	p->minor = 1;
}

void http1_init_answer(struct http1 *p, size_t max)
{
	memset(p, 0, sizeof(*p));
	buf_init(&p->head, max);
	p->answer = true;
}

void http1_next_answer(struct http1 *p, bool to_head)
{
	http1_next(p);
	p->to_head = to_head;
}

void http1_done(struct http1 *p)
{
	buf_done(&p->head);
}

void http1_next(struct http1 *p)
{
	buf_reset(&p->head);
	p->state = S_LINE;
	p->scanned = p->lines = p->trailer = 0;
	p->headers_len = 0;
	p->method = p->target = (struct view){NULL, 0};
	p->code = 0;
	p->minor = 1;
	p->content_length = 0;
	p->keep_alive = p->expect_continue = p->is_head = false;
}

bool http1_pending(const struct http1 *p)
{
	return p->state == S_LINE ? p->head.len > 0 : p->state != S_END && p->state != S_ERROR;
}

static enum http1_event fail(struct http1 *p, int status, const char *why)
{
	p->state = S_ERROR;
	p->status = status;
	p->why = why;
	p->keep_alive = false;
	return HTTP1_ERROR;
}

/* --- head --------------------------------------------------------------------------------- */

static bool method_byte(unsigned char c)
{
	return c > 0x20 && c < 0x7f && !strchr("()<>@,;:\\\"/[]?={}", c);
}

static bool request_line(struct http1 *p, const char *s, size_t n)
{
	const char *a = memchr(s, ' ', n), *b;
	size_t left;

	if (!a || a == s || a - s > 16)
		return false;
	for (const char *c = s; c < a; c++)
		if (!method_byte((unsigned char)*c))
			return false;
	left = n - (size_t)(a + 1 - s);
	b = memchr(a + 1, ' ', left);
	if (!b || b == a + 1)
		return false;
	for (const char *c = a + 1; c < b; c++)
		if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f)
			return false;
	p->method = (struct view){s, (size_t)(a - s)};
	p->target = (struct view){a + 1, (size_t)(b - a - 1)};
	p->is_head = p->method.n == 4 && memcmp(s, "HEAD", 4) == 0;
	left = n - (size_t)(b + 1 - s);
	if (left != 8 || memcmp(b + 1, "HTTP/", 5) != 0 || b[7] != '.')
		return false;
	p->minor = b[6] == '1' && (b[8] == '0' || b[8] == '1') ? b[8] - '0' : -1;
	return (b[6] >= '0' && b[6] <= '9') && (b[8] >= '0' && b[8] <= '9');
}

/* "HTTP/1.1 200 any text". */
static bool status_line(struct http1 *p, const char *s, size_t n)
{
	if (n < 12 || memcmp(s, "HTTP/1.", 7) != 0 || (s[7] != '0' && s[7] != '1') || s[8] != ' ' ||
	    (n > 12 && s[12] != ' '))
		return false;
	for (const char *c = s + 9; c < s + 12; c++) {
		if (*c < '0' || *c > '9')
			return false;
		p->code = p->code * 10 + (*c - '0');
	}
	p->minor = s[7] - '0';
	/* 101 would make something else of this connection. */
	return p->code >= 100 && p->code <= 599 && p->code != 101;
}

static bool ows(char c)
{
	return c == ' ' || c == '\t';
}

static const char *header_line(struct http1 *p, const char *s, size_t n)
{
	const char *colon = memchr(s, ':', n);
	struct header h;

	if (ows(s[0]))
		return "a header is folded over two lines";
	if (!colon)
		return "a header has no colon";
	h.name = (struct view){s, (size_t)(colon - s)};
	h.value = (struct view){colon + 1, n - h.name.n - 1};
	while (h.value.n && ows(h.value.p[0])) {
		h.value.p++;
		h.value.n--;
	}
	while (h.value.n && ows(h.value.p[h.value.n - 1]))
		h.value.n--;
	if (!header_name_ok(h.name))
		return "a header name is not a token";
	if (!header_value_ok(h.value) && !p->answer)
		return "a header value holds a control byte";
	p->headers[p->headers_len++] = h;
	return NULL;
}

static bool value_is(struct view v, const char *want)
{
	return v.n == strlen(want) && strncasecmp(v.p, want, v.n) == 0;
}

/* A comma-separated list that holds the word. */
static bool lists(struct view v, const char *word)
{
	while (v.n) {
		const char *comma = memchr(v.p, ',', v.n);
		struct view one = {v.p, comma ? (size_t)(comma - v.p) : v.n};

		v.p += one.n + (comma ? 1 : 0);
		v.n -= one.n + (comma ? 1 : 0);
		while (one.n && ows(one.p[0])) {
			one.p++;
			one.n--;
		}
		while (one.n && ows(one.p[one.n - 1]))
			one.n--;
		if (value_is(one, word))
			return true;
	}
	return false;
}

static bool digits(struct view v, int64_t *ret)
{
	int64_t n = 0;

	if (v.n == 0 || v.n > 15) /* far above any body, far below overflow */
		return false;
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return false;
		n = n * 10 + (v.p[i] - '0');
	}
	*ret = n;
	return true;
}

/* What the headers say about framing and the connection; the counts catch repetition. */
static enum http1_event framing(struct http1 *p)
{
	unsigned host = 0, length = 0, coding = 0;
	bool close = false, keep = false;

	for (size_t i = 0; i < p->headers_len; i++) {
		struct view name = p->headers[i].name, v = p->headers[i].value;

		if (header_name_is(name, "host")) {
			host++;
		} else if (header_name_is(name, "content-length")) {
			if (length++ || !digits(v, &p->content_length))
				return fail(p, 400, "Content-Length is not one number");
		} else if (header_name_is(name, "transfer-encoding")) {
			if (coding++)
				return fail(p, 400, "Transfer-Encoding is there twice");
			if (!value_is(v, "chunked"))
				return fail(p, 501, "Transfer-Encoding is not chunked");
		} else if (header_name_is(name, "expect")) {
			if (!value_is(v, "100-continue"))
				return fail(p, 417, "Expect is not 100-continue");
			p->expect_continue = p->minor == 1;
		} else if (header_name_is(name, "connection")) {
			close = close || lists(v, "close");
			keep = keep || lists(v, "keep-alive");
		}
	}
	if (!p->answer && (host > 1 || (host == 0 && p->minor == 1)))
		return fail(p, 400, "there must be one Host header");
	if (coding && (length || p->minor == 0))
		return fail(p, 400,
			    "Transfer-Encoding stands beside Content-Length or in HTTP/1.0");
	if (coding || (p->answer && !length))
		p->content_length = -1;
	p->keep_alive = !close && (p->minor == 1 || keep);
	p->expect_continue = p->expect_continue && p->content_length != 0;
	p->left = p->content_length > 0 ? (uint64_t)p->content_length : 0;
	p->digits = 0;
	p->state = coding ? S_CHUNK_SIZE : p->left ? S_BODY_SIZED : S_END;
	if (p->answer && (p->to_head || p->code == 204 || p->code == 304))
		p->state = S_END;
	else if (p->answer && !coding && !length)
		p->state = S_BODY_OPEN;
	if (p->state == S_BODY_OPEN)
		p->keep_alive = false;
	return HTTP1_HEAD;
}

/* head holds the whole head, checked for CR LF at each line's end. */
static enum http1_event parse_head(struct http1 *p)
{
	const char *at = p->head.data, *end = at + p->head.len - 2; /* without the empty line */
	const char *nl = memchr(at, '\n', p->head.len);

	if (p->answer && !status_line(p, at, (size_t)(nl - 1 - at)))
		return fail(p, 400, "the answer does not begin with HTTP/1.1 and a status");
	if (!p->answer && !request_line(p, at, (size_t)(nl - 1 - at)))
		return fail(p, 400, "the request line is not METHOD TARGET HTTP/1.1");
	if (p->minor < 0)
		return fail(p, 505, "the version is not HTTP/1.1 or HTTP/1.0");
	for (at = nl + 1; at < end; at = nl + 1) {
		const char *why;

		nl = memchr(at, '\n', (size_t)(end - at));
		if (p->headers_len == BRIDGE_HEADERS_MAX)
			return fail(p, 431, "the request has too many headers");
		why = header_line(p, at, (size_t)(nl - 1 - at));
		if (why)
			return fail(p, 400, why);
	}
	return framing(p);
}

/* Takes bytes up to the end of the head; the line ends are judged as they come. */
static enum http1_event take_head(struct http1 *p, const char *data, size_t n, size_t *used)
{
	while (*used < n) {
		const char *from = data + *used, *nl = memchr(from, '\n', n - *used);
		size_t len = nl ? (size_t)(nl - from) + 1 : n - *used, max;

		max = p->answer		   ? p->head.max
		      : p->state == S_LINE ? HTTP1_LINE_MAX
					   : p->line + HTTP1_HEAD_MAX;
		if (p->head.len + len > max)
			return p->state == S_LINE ? fail(p, 414, "the request line is too long")
						  : fail(p, 431, "the headers are too long");
		if (memchr(from, '\0', len))
			return fail(p, 400, "the head holds a NUL byte");
		if (buf_put(&p->head, from, len) < 0)
			return fail(p, 503, "out of memory");
		*used += len;
		/* A CR that is not followed by LF, here or at the seam of two feeds. */
		for (; p->scanned + 1 < p->head.len; p->scanned++) {
			const char *c = p->head.data + p->scanned;

			if ((c[0] == '\r') != (c[1] == '\n'))
				return fail(p, 400, "a line does not end with CR LF");
		}
		if (p->head.data[0] == '\n')
			return fail(p, 400, "a line does not end with CR LF");
		if (!nl)
			continue;
		if (p->head.len - p->lines == 2) { /* an empty line */
			if (p->state == S_HEADERS)
				return parse_head(p);
			if (p->answer)
				return fail(p, 400, "the status line is empty");
			/* One before the request line is forgiven: some clients end a body with it. */
			if (p->trailer++)
				return fail(p, 400, "the request line is empty");
			buf_reset(&p->head);
			p->scanned = 0;
			continue;
		}
		if (p->state == S_LINE)
			p->line = p->head.len;
		p->state = S_HEADERS;
		p->lines = p->head.len;
	}
	return HTTP1_MORE;
}

/* --- body --------------------------------------------------------------------------------- */

static enum http1_event piece(struct http1 *p, const char *data, size_t n, size_t *used,
			      struct view *ret)
{
	size_t len = n - *used;

	if (len == 0)
		return HTTP1_MORE;
	if (p->state == S_BODY_OPEN) {
		*ret = (struct view){data + *used, len};
		*used += len;
		return HTTP1_BODY;
	}
	if (len > p->left)
		len = (size_t)p->left;
	*ret = (struct view){data + *used, len};
	*used += len;
	p->left -= len;
	if (p->left == 0)
		p->state = p->state == S_BODY_SIZED ? S_END : S_CHUNK_CR;
	return HTTP1_BODY;
}

static enum http1_event chunk_size(struct http1 *p, char c)
{
	int v = str_hex_digit(c);

	if (v >= 0) {
		if (++p->digits > 8)
			return fail(p, 400, "a chunk size has more than 8 digits");
		p->left = p->left << 4 | (unsigned)v;
		return HTTP1_MORE;
	}
	/* Extensions too: nobody needs them, and parsers differ on where they end. */
	if (p->answer && p->digits && (c == ' ' || c == '\t' || c == ';')) {
		p->state = S_CHUNK_MORE;
		p->trailer = 0;
		return HTTP1_MORE;
	}
	if (c != '\r' || p->digits == 0)
		return fail(p, 400, "a chunk size is not hexadecimal digits and CR LF");
	p->state = S_CHUNK_SIZE_LF;
	return HTTP1_MORE;
}

/* Trailer lines are held to the rules of headers as to bytes and then dropped: none of them means anything here. */
static enum http1_event trailer(struct http1 *p, char c)
{
	bool cr = p->digits & 1, empty = !(p->digits & 2);

	if (++p->trailer > HTTP1_TRAILER_MAX)
		return fail(p, 431, "the trailer is too long");
	if (cr != (c == '\n'))
		return fail(p, 400, "a trailer line does not end with CR LF");
	if (c == '\n') {
		p->digits = 0;
		if (empty)
			p->state = S_END;
		return HTTP1_MORE;
	}
	if (c == '\r') {
		p->digits |= 1;
		return HTTP1_MORE;
	}
	if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f || (empty && ows(c)))
		return fail(p, 400, "a trailer line holds a byte that may not be there");
	p->digits |= 2;
	return HTTP1_MORE;
}

static enum http1_event chunk_byte(struct http1 *p, char c)
{
	switch ((enum state)p->state) {
	case S_CHUNK_SIZE:
		return chunk_size(p, c);
	case S_CHUNK_SIZE_LF:
		if (c != '\n')
			return fail(p, 400, "a chunk size is not hexadecimal digits and CR LF");
		p->digits = 0;
		p->state = p->left ? S_CHUNK_DATA : S_TRAILER;
		p->trailer = 0;
		return HTTP1_MORE;
	case S_CHUNK_MORE:
		if (c == '\r')
			p->state = S_CHUNK_SIZE_LF;
		else if (c == '\n' || ++p->trailer > HTTP1_TRAILER_MAX)
			return fail(p, 400, "an extension of a chunk does not end");
		return HTTP1_MORE;
	case S_CHUNK_CR:
		p->state = S_CHUNK_LF;
		return c == '\r' ? HTTP1_MORE : fail(p, 400, "a chunk is longer than its size");
	case S_CHUNK_LF:
		p->state = S_CHUNK_SIZE;
		return c == '\n' ? HTTP1_MORE : fail(p, 400, "a chunk is longer than its size");
	default:
		return trailer(p, c);
	}
}

enum http1_event http1_feed(struct http1 *p, const char *data, size_t n, size_t *ret_used,
			    struct view *ret_piece)
{
	size_t used = 0;
	enum http1_event ev = HTTP1_MORE;

	*ret_piece = (struct view){data, 0};
	for (;;) {
		if (p->state == S_ERROR) {
			ev = HTTP1_ERROR;
		} else if (p->state == S_END) {
			ev = HTTP1_END;
		} else if (p->state <= S_HEADERS) {
			ev = take_head(p, data, n, &used);
			/* Interim: the answer is still to come. */
			if (ev == HTTP1_HEAD && p->answer && p->code < 200) {
				http1_next(p);
				continue;
			}
		} else if (p->state == S_BODY_SIZED || p->state == S_BODY_OPEN ||
			   p->state == S_CHUNK_DATA) {
			ev = piece(p, data, n, &used, ret_piece);
		} else if (used < n) {
			ev = chunk_byte(p, data[used++]);
			if (ev == HTTP1_MORE)
				continue;
		}
		break;
	}
	*ret_used = used;
	return ev;
}

enum http1_event http1_eof(struct http1 *p)
{
	if (p->state == S_BODY_OPEN)
		p->state = S_END;
	return p->state == S_END ? HTTP1_END : p->state == S_ERROR ? HTTP1_ERROR : HTTP1_MORE;
}
