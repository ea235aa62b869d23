/*
 * http1.h: strict HTTP/1.1 without I/O: requests are read and responses written; or, on the other side, answers read.
 *
 * For the gateway inside a sandbox, whose clients are whatever HTTP library an agent brings, and for the forwarder,
 * whose upstream is whatever an operator named. It judges form only; what may be asked for is the guard's business. Everything that two parsers could read in two ways is
 * an error, because such differences are how a request is smuggled behind another:
 *   lines end with CR LF, no bare LF or CR, no NUL, no folded header, no space before a colon;
 *   one Host; one Content-Length of digits, or one Transfer-Encoding that is exactly "chunked", never
 *   both; chunk sizes of 1..8 hex digits and no chunk extensions.
 * An error sticks: answer with its status, then close; bytes behind it are never read as a request.
 *
 * Limits (base/limits.h): HTTP1_LINE_MAX 414, HTTP1_HEAD_MAX and BRIDGE_HEADERS_MAX 431, HTTP1_TRAILER_MAX 431. How
 * long a body may be is the caller's rule: see content_length and count what comes.
 *
 * Use:
 *	http1_init(&p);
 *	for (;;) {
 *		ev = http1_feed(&p, data, n, &used, &piece);    then drop `used` bytes of data
 *		HTTP1_MORE  wait for more bytes          HTTP1_HEAD  p.method, p.target, p.headers ... are there
 *		HTTP1_BODY  `piece` is body              HTTP1_END   complete; http1_next(&p) before the next feed
 *		HTTP1_ERROR p.status, p.why
 *	}
 * Answers (http1_init_answer) come the same way, with p.code instead of method and target. An interim answer (1xx) is passed
 * over, but for 101, which is an error; one without any length ends with the connection (http1_eof). Header values
 * that break the syntax are left to the reader, and extensions of chunks are ignored: servers send both.
 *
 * If p.expect_continue, send HTTP1_CONTINUE before waiting for the body, or a final answer instead (and close).
 */
#ifndef AIRLOCK_WIRE_HTTP1_H
#define AIRLOCK_WIRE_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/limits.h"
#include "wire/header.h"

#define HTTP1_CONTINUE "HTTP/1.1 100 Continue\r\n\r\n"

enum http1_event { HTTP1_MORE, HTTP1_HEAD, HTTP1_BODY, HTTP1_END, HTTP1_ERROR };

struct http1 {
	struct buf head; /* owned: request line and headers; views point into it */
	int state;	 /* private */
	size_t scanned, lines, line, trailer;
	uint64_t left; /* bytes of the sized body or of this chunk */
	unsigned digits;
	bool answer, to_head; /* answers are read; this one is to HEAD and has no body */

	/* valid from HTTP1_HEAD until http1_next */
	struct view method, target;
	int minor; /* 0 or 1 */
	struct header headers[BRIDGE_HEADERS_MAX];
	size_t headers_len;
	int64_t content_length; /* bytes; -1: chunked */
	bool keep_alive, expect_continue, is_head;
	int code; /* of an answer: 200..599 */

	/* with HTTP1_ERROR */
	int status; /* 400, 414, 417, 431, 501, 505 */
	const char *why;
};

void http1_init(struct http1 *p);
/* For answers: heads of at most max bytes. */
void http1_init_answer(struct http1 *p, size_t max);
/* Before the first feed, and again for each answer on the same connection. */
void http1_next_answer(struct http1 *p, bool to_head);
/* The connection ended. HTTP1_END: that was the end of the answer; HTTP1_MORE: it is cut short. */
enum http1_event http1_eof(struct http1 *p);
void http1_done(struct http1 *p);
/* Consumes at most n bytes, one event a call; *ret_used bytes are done with. piece is a view of data. */
enum http1_event http1_feed(struct http1 *p, const char *data, size_t n, size_t *ret_used,
			    struct view *ret_piece);
/* After HTTP1_END: ready for the next request; keeps the buffer's memory. */
void http1_next(struct http1 *p);
/* True if bytes of a request have been taken and it is not complete: time limits begin here. */
bool http1_pending(const struct http1 *p);

/* --- responses ---------------------------------------------------------------------------- */

struct http1_writer {
	bool chunked, sized, no_body; /* how this body is framed; none: until close */
	bool close;		      /* the connection ends with this response */
	uint64_t left;		      /* bytes still owed to Content-Length */
};

/*
 * Appends status line and headers. body_len: bytes, -1: not known. close: the caller wants to end the connection;
 * w->close says what holds. p may be NULL or in error (then it closes). Framing headers among `headers` are left
 * out: they are made here. -EPROTO, and nothing appended: status not 200..599, or a header that breaks the syntax
 * (a spoofed answer must not split into two). Else as buf_put.
 */
int http1_put_head(struct buf *out, const struct http1 *p, int status, const struct header *headers,
		   size_t n, int64_t body_len, bool close, struct http1_writer *w);
/* A piece of body, framed. -EPROTO: more than Content-Length said. HEAD, 204 and 304 swallow it. */
int http1_put_body(struct buf *out, struct http1_writer *w, const void *data, size_t n);
/* Ends the body. -EPROTO: less than Content-Length said; the connection must be cut, and w->close is set. */
int http1_put_end(struct buf *out, struct http1_writer *w);
/* A whole answer with a JSON body {"error":why,"code":code}; both plain text without quotes. It closes. */
int http1_put_error(struct buf *out, const struct http1 *p, int status, const char *code,
		    const char *why);

#endif
