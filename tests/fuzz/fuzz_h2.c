/*
 * The frame path of http2_v1 (H09..H13, C05..C07): whatever frames a sandbox sends, only what the guard allows reaches the
 * upstream, with our credential and no other, whole, at most once a stream; what goes back are well-formed frames; nothing is
 * left over.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bridge/h2server.h"
#include "door2.h"

/* Frames of the answer, across reads. */
struct reader {
	uint8_t hd[9];
	size_t have, skip;
};

static void drain(int fd, struct reader *r)
{
	uint8_t b[65536];
	ssize_t n;

	while ((n = recv(fd, b, sizeof(b), MSG_DONTWAIT)) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (r->skip) {
				size_t k = (size_t)(n - i) < r->skip ? (size_t)(n - i) : r->skip;

				r->skip -= k;
				i += (ssize_t)k - 1;
				continue;
			}
			r->hd[r->have++] = b[i];
			if (r->have < sizeof(r->hd))
				continue;
			r->have = 0;
			r->skip = (size_t)r->hd[0] << 16 | (size_t)r->hd[1] << 8 | r->hd[2];
			MUST(r->skip <= 16384 && r->hd[3] <= 9 && r->hd[3] != 5 && r->hd[3] != 2);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct guard *guard;
	struct loop loop;
	struct bridge_counts counts = {0};
	struct bridge b = {.loop = &loop, .transport = "http2", .counts = &counts};
	struct h2server *s = NULL;
	struct reader r = {0};
	uint32_t seed = (uint32_t)n * 2 + 1;
	int sv[2];

	if (!guard)
		guard = door2_guard();
	b.guard = guard;
	door2_started = 0;
	MUST(loop_init(&loop, NULL) == 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	MUST(h2server_new(&b, sv[0], sv[0], 8, &s, NULL) == 0);
	h2server_feed(s, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
	for (size_t at = 0; h2server_state(s) == H2_OPEN;) {
		size_t k = seed % 3 ? fuzz_random(&seed) % 400 + 1 : n - at;

		if (k > n - at)
			k = n - at;
		if (k)
			h2server_feed(s, p + at, k);
		at += k;
		for (int i = 0; i < 4; i++) {
			door2_turn();
			(void)h2server_tick(s, clock_mono_ns());
			drain(sv[1], &r);
		}
		MUST(h2server_under_way(s) <= 8 + 1);
		if (at == n)
			break;
	}
	h2server_free(s);
	MUST(door2_idle());
	MUST(counts.forwarded <= door2_started && door2_started <= counts.requests);
	(void)close(sv[1]);
	loop_done(&loop);
	return 0;
}

/* --- seeds -------------------------------------------------------------------------------- */

static void frame(struct buf *b, int kind, int flags, unsigned id, const void *p, size_t n)
{
	const uint8_t hd[9] = {(uint8_t)(n >> 16),  (uint8_t)(n >> 8),	(uint8_t)n,
			       (uint8_t)kind,	    (uint8_t)flags,	(uint8_t)(id >> 24),
			       (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};

	MUST(buf_put(b, hd, sizeof(hd)) == 0 && buf_put(b, p, n) == 0);
}

static void field(struct buf *b, const char *name, const char *value)
{
	MUST(buf_u8(b, 0) == 0 && buf_u8(b, (uint8_t)strlen(name)) == 0 && buf_puts(b, name) == 0);
	MUST(buf_u8(b, (uint8_t)strlen(value)) == 0 && buf_puts(b, value) == 0);
}

static void head(struct buf *b, unsigned id, int flags, const char *method, const char *path,
		 const char *more)
{
	struct buf h = BUF_INIT(4096);

	field(&h, ":method", method);
	field(&h, ":scheme", "http");
	field(&h, ":authority", "bridge.internal");
	field(&h, ":path", path);
	field(&h, "authorization", "Bearer " DOOR2_TOKEN);
	if (more)
		field(&h, more, "2");
	frame(b, 1, flags, id, h.data, h.len);
	buf_done(&h);
}

#define GET_ALL 5 /* END_STREAM, END_HEADERS */

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char settings[] = "\0\1\0\0\20\0\0\4\0\0\377\377";

	frame(b, 4, 0, 0, settings, 12);
	switch (i) {
	case 0: /* answers of every mood */
		head(b, 1, GET_ALL, "GET", "/api/agents/me", NULL);
		head(b, 3, GET_ALL, "GET", "/api/agents/b", NULL);
		head(b, 5, GET_ALL, "GET", "/api/agents/u", NULL);
		head(b, 7, GET_ALL, "GET", "/api/agents/n", NULL);
		frame(b, 8, 0, 0, "\0\x10\0\0", 4);
		frame(b, 8, 0, 3, "\0\x10\0\0", 4);
		break;
	case 1: /* bodies: sized, open, reset, with a trailer, padded */
		head(b, 1, 4, "POST", "/api/issues/i/comments", "content-length");
		frame(b, 0, 1, 1, "{}", 2);
		head(b, 3, 4, "POST", "/api/issues/l/comments", NULL);
		frame(b, 0, 8, 3, "\3{}\0\0\0", 6);
		frame(b, 1, GET_ALL, 3, "\0\1x\1y", 5);
		head(b, 5, 4, "POST", "/api/issues/z/comments", NULL);
		frame(b, 0, 0, 5, "abc", 3);
		frame(b, 3, 0, 5, "\0\0\0\10", 4);
		break;
	case 2: /* refusals, and what has no meaning */
		head(b, 1, GET_ALL, "GET", "/api/../x", NULL);
		head(b, 3, 4, "PUT", "/api/agents/me", NULL);
		frame(b, 0, 0, 3, "dropped", 7);
		frame(b, 6, 0, 0, "12345678", 8);
		frame(b, 2, 0, 9, "\0\0\0\1\20", 5);
		frame(b, 0x77, 0, 1, "?", 1);
		frame(b, 7, 0, 0, "\0\0\0\0\0\0\0\0", 8);
		break;
	case 3: /* a header block in pieces; a table entry and references to it */
		frame(b, 1, 1, 1, "\x82\x86\x44\x0e/api/agents/me", 18);
		frame(b, 9, 0, 1,
		      "\x40\x0d"
		      "authorization",
		      15);
		frame(b, 9, 4, 1,
		      "\x27"
		      "Bearer " DOOR2_TOKEN,
		      40);
		frame(b, 1, GET_ALL, 3, "\x82\x86\x84\xbe", 4);
		frame(b, 1, GET_ALL, 5, "\x3f\xe1\xff\x03\x82\x86\x84\xbe", 8);
		break;
	default:
		return false;
	}
	return true;
}

/* Lengths that fit: otherwise every mutation ends at the first frame. */
void fuzz_repair(uint8_t *p, size_t n)
{
	for (size_t at = 0; at + 9 <= n;) {
		size_t len = (size_t)p[at] << 16 | (size_t)p[at + 1] << 8 | p[at + 2];

		if (len > n - at - 9 || len > 16384) {
			len = (n - at - 9) % 64;
			p[at] = p[at + 1] = 0;
			p[at + 2] = (uint8_t)len;
		}
		p[at + 3] %= 11;
		at += 9 + len;
	}
}
