/*
 * The direct way (H04..H08, B01, B09): whatever the connections of a sandbox say, in whatever pieces, alone and beside each other, only what
 * the guard allows reaches the upstream, whole, with our credential and no other; what goes back to each are well-formed answers, in the
 * order of its requests and never more of them; nothing is left over.
 *
 * Input: records of one byte (connection, and what is done to it), a length byte, and that many bytes that it sends.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "bridge/h1server.h"
#include "door2.h"
#include "wire/http1.h"

#define CONNS 3
#define NOT_READ 1
#define HALF 2
#define CLOSE 4

struct client {
	int fd;
	struct http1 p;
	size_t sent; /* bytes, so far */
	unsigned answers;
};

struct rig {
	struct loop loop;
	struct h1server *s;
	struct client c[CONNS];
	struct sockaddr_un where;
	socklen_t where_len;
};

static void one_turn(void *arg, int64_t now)
{
	struct rig *g = arg;

	(void)h1server_tick(g->s, now);
	g->loop.stop = true;
}

static void turns(struct rig *g)
{
	for (int i = 0; i < 3; i++) {
		g->loop.stop = false;
		g->loop.wake_ns = 0;
		MUST(loop_run(&g->loop, one_turn, g, NULL) == 0);
		door2_turn();
		(void)h1server_tick(g->s, clock_mono_ns());
	}
}

/* One answer after the other; not one of them holds what must not come back. */
static void look(struct client *c, const char *b, size_t n)
{
	for (size_t at = 0; at < n;) {
		struct view piece;
		size_t used;
		enum http1_event ev = http1_feed(&c->p, b + at, n - at, &used, &piece);

		at += used;
		MUST(ev != HTTP1_ERROR);
		if (ev == HTTP1_HEAD) {
			for (size_t i = 0; i < c->p.headers_len; i++) {
				MUST(header_value_ok(c->p.headers[i].value));
				MUST(!header_name_is(c->p.headers[i].name, "set-cookie"));
			}
			c->answers++;
			/* An answer for fewer than 16 bytes of request would be one that nobody asked for. */
			MUST(c->answers <= c->sent / 16 + 1);
		} else if (ev == HTTP1_END) {
			http1_next_answer(&c->p, false);
		} else if (ev == HTTP1_MORE && used == 0) {
			break;
		}
	}
}

static void drain(struct client *c)
{
	static char b[65536];
	ssize_t n;

	while (c->fd >= 0 && (n = recv(c->fd, b, sizeof(b), MSG_DONTWAIT)) > 0) {
		MUST(!memmem(b, (size_t)n, DOOR2_SECRET, strlen(DOOR2_SECRET)));
		look(c, b, (size_t)n);
	}
}

static void leave(struct client *c)
{
	if (c->fd < 0)
		return;
	(void)close(c->fd);
	http1_done(&c->p);
	c->fd = -1;
}

static void enter(struct rig *g, struct client *c)
{
	if (c->fd >= 0)
		return;
	*c = (struct client){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
	MUST(c->fd >= 0);
	MUST(connect(c->fd, (struct sockaddr *)&g->where, g->where_len) == 0);
	http1_init_answer(&c->p, 65536);
	http1_next_answer(&c->p, false);
}

static void start(struct rig *g, struct bridge *b)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*g = (struct rig){.where.sun_family = AF_UNIX, .where_len = sizeof(g->where)};
	for (int i = 0; i < CONNS; i++)
		g->c[i].fd = -1;
	MUST(loop_init(&g->loop, NULL) == 0);
	/* A name that the kernel chooses. */
	MUST(fd >= 0 && bind(fd, (struct sockaddr *)&g->where, sizeof(sa_family_t)) == 0);
	MUST(listen(fd, CONNS) == 0);
	MUST(getsockname(fd, (struct sockaddr *)&g->where, &g->where_len) == 0);
	b->loop = &g->loop;
	MUST(h1server_new(b, fd, NULL, 0, &g->s, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct guard *guard;
	struct bridge_counts counts = {0};
	struct bridge b = {.transport = "direct", .counts = &counts};
	struct rig g;

	if (!guard)
		guard = door2_guard();
	b.guard = guard;
	door2_started = 0;
	start(&g, &b);
	for (size_t at = 0; at + 2 <= n;) {
		struct client *c = &g.c[(p[at] >> 4) % CONNS];
		unsigned what = p[at] & 15;
		size_t k = p[at + 1];

		at += 2;
		k = k < n - at ? k : n - at;
		enter(&g, c);
		if (k && send(c->fd, p + at, k, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
			c->sent += k;
		at += k;
		if (what & HALF)
			(void)shutdown(c->fd, SHUT_WR);
		turns(&g);
		if (!(what & NOT_READ))
			drain(c);
		if (what & CLOSE)
			leave(c);
		MUST(h1server_under_way(g.s) <= CONNS);
	}
	for (int i = 0; i < CONNS; i++) {
		turns(&g);
		drain(&g.c[i]);
		leave(&g.c[i]);
	}
	turns(&g);
	h1server_stop(g.s);
	turns(&g);
	h1server_free(g.s);
	MUST(door2_idle());
	MUST(b.held == NULL && b.in_hand == 0);
	MUST(counts.forwarded <= door2_started && door2_started <= counts.requests);
	loop_done(&g.loop);
	return 0;
}

/* --- seeds -------------------------------------------------------------------------------- */

#define AUTH "authorization: Bearer " DOOR2_TOKEN "\r\n"

static void record(struct buf *b, unsigned conn, unsigned what, const char *text)
{
	size_t n = strlen(text);

	do {
		size_t k = n < 255 ? n : 255;

		MUST(buf_u8(b, (uint8_t)(conn << 4 | (n > k ? 0 : what))) == 0);
		MUST(buf_u8(b, (uint8_t)k) == 0 && buf_put(b, text, k) == 0);
		text += k;
		n -= k;
	} while (n);
}

static void ask(struct buf *b, unsigned conn, unsigned what, const char *line, const char *rest)
{
	struct buf t = BUF_INIT(4096);

	MUST(buf_putf(&t, "%s HTTP/1.1\r\nhost: x\r\n" AUTH "%s", line, rest) == 0);
	record(b, conn, what, buf_text(&t));
	buf_done(&t);
}

bool fuzz_seed(size_t i, struct buf *b)
{
	switch (i) {
	case 0: /* answers of every mood, two of them pipelined */
		ask(b, 0, 0, "GET /api/agents/me", "\r\n");
		ask(b, 0, NOT_READ, "GET /api/agents/b",
		    "\r\nGET /api/agents/n HTTP/1.1\r\nhost: x\r\n\r\n");
		ask(b, 1, 0, "GET /api/agents/u", "connection: close\r\n\r\n");
		ask(b, 2, 0, "GET /api/agents/l", "\r\n");
		record(b, 0, 0, "");
		break;
	case 1: /* bodies: sized, in chunks with a trailer, announced, half of one */
		ask(b, 0, 0, "POST /api/issues/i/comments", "content-length: 2\r\n\r\n{}");
		ask(b, 1, 0, "POST /api/issues/l/comments",
		    "transfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n");
		record(b, 1, 0, "2\r\n{}\r\n0\r\nx: y\r\n\r\n");
		ask(b, 2, HALF, "POST /api/issues/z/comments", "content-length: 20\r\n\r\nabc");
		break;
	case 2: /* refusals, what is no request, another version */
		ask(b, 0, 0, "GET /api/../x", "\r\n");
		ask(b, 0, 0, "PUT /api/agents/me", "content-length: 5\r\n\r\nabcde");
		ask(b, 1, 0, "POST /api/issues/i/comments",
		    "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}");
		record(b, 2, CLOSE, "GET / HTTP/1.0\r\n\r\n");
		record(b, 2, 0, "HEAD /api/agents/me HTTP/1.1\r\nhost: x\r\n\r\n");
		break;
	case 3: /* one that leaves while it is served, and one that never gets an answer */
		ask(b, 0, CLOSE, "GET /api/agents/z", "\r\n");
		ask(b, 1, HALF, "GET /api/agents/b", "\r\n");
		ask(b, 2, NOT_READ, "POST /api/issues/z/comments", "content-length: 2\r\n\r\n{}");
		break;
	default:
		return false;
	}
	return true;
}

/* Records that fit: otherwise every mutation ends at the first one. */
void fuzz_repair(uint8_t *p, size_t n)
{
	for (size_t at = 0; at + 2 <= n;) {
		p[at] &= 0x2f;
		if (p[at + 1] > n - at - 2)
			p[at + 1] = (uint8_t)(n - at - 2);
		at += 2 + p[at + 1];
	}
}
