/* Queue envelopes (H16, Q12): what was accepted lies inside its bounds, and written again it reads the same. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "wire/queue.h"

#define ID "00000000000000a1-0123456789abcdef"
#define BODY_MAX 4096

static bool same(struct view a, struct view b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static void again(const struct queue_envelope *q, bool request)
{
	static struct queue_envelope q2;
	struct buf body = BUF_INIT(BODY_MAX), body2 = BUF_INIT(BODY_MAX),
		   text = BUF_INIT(FUZZ_SEED_MAX);
	struct queue_message m = {.id = ID,
				  .auth = q->auth,
				  .method = q->method,
				  .target = q->target,
				  .status = q->status,
				  .headers = q->headers,
				  .headers_len = q->headers_len};
	const char *why;

	MUST(queue_body(q, &body) == 0 && body.len == q->body_len && body.len <= BODY_MAX);
	m.body = (struct view){buf_text(&body), body.len};
	MUST((request ? queue_request_print : queue_response_print)(&text, &m) == 0);
	/* Escapes make some texts longer than the limit lets in again. */
	if (text.len <= queue_envelope_max(BODY_MAX)) {
		int r = request ? queue_request_parse(text.data, text.len, ID, BODY_MAX, &q2, &why)
				: queue_response_parse(text.data, text.len, ID, q->auth, BODY_MAX,
						       &q2, &why);

		MUST(r == 0);
		MUST(same(q->auth, q2.auth) && same(q->method, q2.method) &&
		     same(q->target, q2.target));
		MUST(q->status == q2.status && q->headers_len == q2.headers_len);
		for (size_t i = 0; i < q->headers_len; i++)
			MUST(same(q->headers[i].name, q2.headers[i].name) &&
			     same(q->headers[i].value, q2.headers[i].value));
		MUST(queue_body(&q2, &body2) == 0 && body2.len == body.len);
		MUST(memcmp(buf_text(&body2), buf_text(&body), body.len) == 0);
		queue_envelope_done(&q2);
	}
	buf_done(&body);
	buf_done(&body2);
	buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct queue_envelope q;
	const char *why;

	for (int request = 0; request < 2; request++) {
		int r = request ? queue_request_parse(p, n, ID, BODY_MAX, &q, &why)
				: queue_response_parse(p, n, ID, (struct view){"tok", 3}, BODY_MAX,
						       &q, &why);

		MUST(r == 0 || ((r == -EPROTO || r == -E2BIG) && why[0]));
		if (r == 0) {
			MUST(n <= queue_envelope_max(BODY_MAX) &&
			     same(q.id, (struct view){ID, strlen(ID)}));
			MUST(request || (q.status >= 100 && q.status <= 599));
			again(&q, request);
		}
		queue_envelope_done(&q);
	}
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char *const seeds[] = {
	    "{\"version\":2,\"id\":\"" ID
	    "\",\"auth\":\"tok\",\"method\":\"POST\",\"path\":\"/a\",\"query\":\"?b=c\","
	    "\"headers\":{\"accept\":\"*/*\",\"x\":\"\\u00e9\\ud83d\\ude00\"},\"bodyEncoding\":\"base64\",\"body\":\"AP8=\"}\n",
	    "{\"version\":2,\"id\":\"" ID
	    "\",\"auth\":\"tok\",\"status\":200,\"headers\":{\"etag\":\"\\\"1\\\"\"},"
	    "\"body\":\"a\\n\xc3\xa9\"}\n",
	    "{\"version\":2,\"id\":\"" ID
	    "\",\"auth\":\"tok\",\"method\":\"GET\",\"path\":\"/a\",\"headers\":{}}",
	    "{\"version\":2,\"id\":\"" ID
	    "\",\"auth\":\"tok\",\"method\":[\"GET\"],\"path\":\"/a\",\"headers\":{\"a\":{}}}",
	};

	return FUZZ_TEXT(seeds, i, b);
}

FUZZ_NO_REPAIR()
