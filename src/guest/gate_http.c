#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/gate.h"

#define IN_MAX 65536
#define OUT_HIGH 262144 /* bytes waiting for a slow client; then the answer waits in the channel */
#define FIELDS_MAX 64
#define OUTCOME "x-paperclip-bridge-outcome"

enum conn_state {
	CONN_HEAD,   /* reads a head, or idles */
	CONN_BODY,   /* reads a body */
	CONN_ANSWER, /* waits for the answer */
	CONN_LINGER, /* answered; drops what still comes, so that the answer is read */
};

struct gate_conn {
	struct gate *g;
	struct gate_conn *next, **prev;
	int fd;
	struct loop_watch w;
	enum conn_state state;
	struct buf in;
	size_t in_off;
	bool muted; /* muted: something came while the answer is made; it waits in the kernel */
	/* the request */
	struct gate_call *call;
	struct http1 p;
	bool body_done, safe, refused;
	/* the answer */
	struct buf head, data, out; /* names and values; body to be framed; bytes to be written */
	struct {
		uint16_t name_len, value_len;
	} field[FIELDS_MAX];
	size_t fields, out_off, untaken;
	struct http1_writer w1;
	int status;
	bool has_head, head_out, answered, broken, dirty;
	bool starved; /* its body waits for room; gate_conn_room follows */
	int64_t moved_ns;
};

static int64_t after_ms(int64_t from, int64_t ms)
{
	return from + ms * NS_PER_MS;
}

/* Something is to be written, or watched otherwise: gate_tick sees to it. */
static void touch(struct gate_conn *c)
{
	c->dirty = c->g->pending = true;
}

static void free_conn(struct gate_conn *c)
{
	struct gate *g = c->g;

	if (c->call)
		g->carrier->drop(c->call);
	loop_del(&g->loop, &c->w);
	(void)close(c->fd);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	http1_done(&c->p);
	buf_done(&c->in);
	buf_done(&c->head);
	buf_done(&c->data);
	buf_done(&c->out);
	free(c);
	if (g->conns_len-- == GATE_CONNS_MAX)
		loop_mod(&g->loop, &g->accept_watch, EPOLLIN);
}

/* Answers. --------------------------------------------------------------------------------- */

void gate_conn_head(struct gate_conn *c, int status)
{
	c->status = status;
	c->has_head = true;
	touch(c);
}

void gate_conn_header(struct gate_conn *c, const char *name, size_t name_len, const char *value,
		      size_t value_len)
{
	struct view n = {name, name_len}, v = {value, value_len};

	/* Whatever the other end is, it does not end our lines. */
	if (!header_name_ok(n) || !header_value_ok(v) || v.n > UINT16_MAX ||
	    c->fields == FIELDS_MAX)
		return;
	/* Said with another status by the peer's host, which leaves the last word to its gateway. */
	if (header_name_is(n, OUTCOME))
		c->status = 409;
	if (buf_put(&c->head, name, name_len) < 0 || buf_put(&c->head, value, value_len) < 0)
		return;
	c->field[c->fields].name_len = (uint16_t)name_len;
	c->field[c->fields++].value_len = (uint16_t)value_len;
}

void gate_conn_data(struct gate_conn *c, const char *p, size_t n)
{
	c->untaken += n;
	touch(c);
	if (!c->broken && buf_put(&c->data, p, n) < 0)
		c->broken = true;
}

void gate_conn_end(struct gate_conn *c)
{
	c->call = NULL;
	c->untaken = 0;
	c->answered = true;
	touch(c);
}

static void own_answer(struct gate_conn *c, int status, const char *code, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	buf_reset(&c->head);
	c->fields = 0;
	gate_conn_head(c, status);
	gate_conn_header(c, "content-type", 12, "application/json", 16);
	gate_conn_header(c, "x-airlock-bridge", 16, code, strlen(code));
	if (status == 409)
		gate_conn_header(c, OUTCOME, strlen(OUTCOME), "indeterminate", 13);
	(void)buf_putf(&b, "{\"error\":\"%s\",\"code\":\"%s\"%s}", text, code,
		       status == 409 ? ",\"outcome\":\"indeterminate\",\"retryable\":false" : "");
	gate_conn_data(c, b.data, b.len);
	gate_conn_end(c);
}

void gate_conn_fail(struct gate_conn *c, enum gate_fail why)
{
	c->call = NULL;
	if (c->has_head) {
		c->broken = c->answered = true;
		touch(c);
		return;
	}
	switch (why) {
	case GATE_UNAVAILABLE:
		own_answer(c, 503, "bridge_unavailable",
			   "the bridge cannot take this request now; it was not sent");
		return;
	case GATE_REFUSED:
		own_answer(c, 503, "bridge_busy", "too many requests at once; it was not sent on");
		return;
	case GATE_MALFORMED:
		own_answer(c, 400, "request.malformed", "this request cannot be carried");
		return;
	case GATE_TOO_LARGE:
		own_answer(c, 431, "headers.size", "the headers of this request are too large");
		return;
	case GATE_BODY_SIZE:
		own_answer(
		    c, 413, "body.size",
		    "the body is larger than the file queue carries; sending it again will not help");
		return;
	default:
		if (c->safe)
			own_answer(c, 502, "bridge_lost",
				   "the answer was lost; it may be asked for again");
		else
			own_answer(c, 409, "bridge_lost",
				   "it is not known whether this request had its effect");
	}
}

/* From what the carrier gave to bytes for the client. A short answer that is whole goes out with its length. */
static void put_head(struct gate_conn *c)
{
	struct header h[FIELDS_MAX];
	const char *at = c->head.data;
	int64_t len = c->answered && !c->broken ? (int64_t)c->data.len : -1;

	for (size_t i = 0; i < c->fields; i++) {
		h[i].name = (struct view){at, c->field[i].name_len};
		h[i].value = (struct view){at + c->field[i].name_len, c->field[i].value_len};
		at += c->field[i].name_len + c->field[i].value_len;
	}
	c->head_out = true;
	/* An answer that came before its request was read whole is the connection's last. */
	if (http1_put_head(&c->out, &c->p, c->status, h, c->fields, len,
			   c->broken || (c->answered && !c->body_done), &c->w1) < 0)
		c->broken = c->answered = true;
}

static void frame_answer(struct gate_conn *c)
{
	if (!c->has_head || c->out.len - c->out_off > OUT_HIGH)
		return;
	if (!c->head_out)
		put_head(c);
	if (!c->broken && http1_put_body(&c->out, &c->w1, c->data.data, c->data.len) < 0)
		c->broken = true;
	buf_reset(&c->data);
	if (c->answered && !c->broken && http1_put_end(&c->out, &c->w1) < 0)
		c->broken = true;
	if (c->out.err)
		c->broken = true;
	c->answered = c->answered || c->broken;
}

static void next_request(struct gate_conn *c)
{
	http1_next(&c->p);
	buf_reset(&c->head);
	c->fields = 0;
	c->has_head = c->head_out = c->answered = c->broken = c->body_done = false;
	c->muted = false;
	c->state = CONN_HEAD;
	c->moved_ns = clock_mono_ns();
}

static void serve(struct gate_conn *c);

/* False: the connection is gone. */
static bool write_out(struct gate_conn *c)
{
	while (c->out_off < c->out.len) {
		ssize_t n =
		    send(c->fd, c->out.data + c->out_off, c->out.len - c->out_off, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0) {
			free_conn(c);
			return false;
		}
		c->out_off += (size_t)n;
		c->moved_ns = clock_mono_ns();
	}
	buf_reset(&c->out);
	c->out_off = 0;
	return true;
}

static void want(struct gate_conn *c)
{
	uint32_t ev = 0;
	bool unsent = c->out.len > c->out_off;

	if (unsent)
		ev |= EPOLLOUT;
	switch (c->state) {
	case CONN_HEAD:
		ev |= unsent ? 0 : EPOLLIN;
		break;
	case CONN_BODY:
		if (!c->call || c->g->carrier->room(c->call) > 0)
			ev |= EPOLLIN;
		break;
	case CONN_LINGER:
		ev |= EPOLLIN;
		break;
	default:
		/* Armed until something comes: the next request seldom does so soon, and changing costs a call. */
		ev |= c->muted ? 0 : EPOLLIN;
		break;
	}
	loop_mod(&c->g->loop, &c->w, ev);
}

/* After the answer: the next request, or an end that does not cost the client its answer. */
static bool after_answer(struct gate_conn *c)
{
	/* Cut short where it cannot be told otherwise that it is not whole. */
	if (c->broken) {
		free_conn(c);
		return false;
	}
	if (!c->w1.close && c->body_done && !c->refused) {
		next_request(c);
		return true;
	}
	if (c->body_done && !c->refused) {
		free_conn(c);
		return false;
	}
	c->state = CONN_LINGER;
	c->moved_ns = clock_mono_ns();
	(void)shutdown(c->fd, SHUT_WR);
	return true;
}

static void flush(struct gate_conn *c)
{
	size_t before;

	c->dirty = false;
	/* What did not fit before the write may fit behind it: nobody else would come back for it. */
	do {
		frame_answer(c);
		if (!write_out(c))
			return;
	} while (c->data.len && c->out.len == c->out_off && !c->broken);
	before = c->untaken;
	if (c->call && before && c->out.len - c->out_off <= OUT_HIGH && c->data.len == 0) {
		c->untaken = 0;
		c->g->carrier->taken(c->call, before);
	}
	if (c->answered && c->head_out && c->data.len == 0 && c->out.len == c->out_off &&
	    c->state != CONN_LINGER) {
		if (!after_answer(c))
			return;
		if (c->state == CONN_HEAD && c->in.len > c->in_off) {
			serve(c);
			return;
		}
	}
	want(c);
}

/* Requests. -------------------------------------------------------------------------------- */

static void drop_in(struct gate_conn *c, size_t n)
{
	c->in_off += n;
	if (c->in_off == c->in.len) {
		buf_reset(&c->in);
		c->in_off = 0;
	}
}

static bool is_method(struct view m, const char *name)
{
	return m.n == strlen(name) && memcmp(m.p, name, m.n) == 0;
}

static void begin(struct gate_conn *c)
{
	enum gate_fail why = GATE_UNAVAILABLE;

	c->safe =
	    c->p.is_head || is_method(c->p.method, "GET") || is_method(c->p.method, "OPTIONS");
	c->untaken = 0;
	c->status = 0;
	c->state = CONN_BODY;
	c->call = c->g->carrier->start(c->g, c, &c->p, &why);
	if (!c->call)
		gate_conn_fail(c, why);
	else if (c->p.expect_continue && c->p.content_length)
		(void)buf_puts(&c->out, HTTP1_CONTINUE);
}

static void body_over(struct gate_conn *c)
{
	c->body_done = true;
	c->state = CONN_ANSWER;
	if (c->call)
		c->g->carrier->body_end(c->call);
}

/* What cannot be read, and with it the connection. Half of a body is no request: it is cut off upstream too. */
static void refuse(struct gate_conn *c)
{
	if (c->call)
		c->g->carrier->drop(c->call);
	c->call = NULL;
	buf_reset(&c->in);
	c->in_off = 0;
	c->refused = true;
	c->state = CONN_ANSWER;
	if (c->has_head)
		c->broken = c->answered = true;
	else
		own_answer(c, c->p.status, "request.malformed", c->p.why);
}

/* One event of the parser. False: it needs what is not here. */
static bool step(struct gate_conn *c)
{
	size_t n = c->in.len - c->in_off, used;
	struct view piece;

	if (c->state == CONN_BODY && c->call && c->p.content_length) {
		size_t room = c->g->carrier->room(c->call);

		n = n < room ? n : room;
		c->starved = room == 0;
		if (c->starved)
			return false;
	}
	switch (http1_feed(&c->p, c->in.data + c->in_off, n, &used, &piece)) {
	case HTTP1_HEAD:
		drop_in(c, used);
		begin(c);
		return true;
	case HTTP1_BODY:
		if (c->call)
			c->g->carrier->body(c->call, piece.p, piece.n);
		drop_in(c, used);
		return true;
	case HTTP1_END:
		drop_in(c, used);
		body_over(c);
		return true;
	case HTTP1_ERROR:
		refuse(c);
		return false;
	default:
		drop_in(c, used);
		return false;
	}
}

static void serve(struct gate_conn *c)
{
	while ((c->state == CONN_HEAD || c->state == CONN_BODY) && step(c))
		;
	if (c->state == CONN_LINGER) {
		buf_reset(&c->in);
		c->in_off = 0;
	}
	touch(c);
}

static void on_conn(struct loop_watch *w, uint32_t events)
{
	struct gate_conn *c =
	    (struct gate_conn *)(void *)((char *)w - offsetof(struct gate_conn, w));
	char *to;
	ssize_t n;

	if (events & (EPOLLERR | EPOLLHUP)) {
		free_conn(c);
		return;
	}
	if (events & EPOLLOUT)
		touch(c);
	if (!(events & EPOLLIN))
		return;
	if (c->state == CONN_ANSWER) {
		c->muted = true;
		want(c);
		return;
	}
	if (c->in_off) {
		buf_drop(&c->in, c->in_off);
		c->in_off = 0;
	}
	to = c->in.len < IN_MAX ? buf_room(&c->in, 16384) : NULL;
	if (!to)
		return;
	n = recv(c->fd, to, 16384, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		/* Half a request is none. A whole one is answered first, whether or not somebody still listens. */
		free_conn(c);
		return;
	}
	if (c->state == CONN_HEAD && !http1_pending(&c->p))
		c->moved_ns = clock_mono_ns();
	if (c->state == CONN_BODY)
		c->moved_ns = clock_mono_ns();
	buf_add(&c->in, (size_t)n);
	serve(c);
}

void gate_conn_room(struct gate_conn *c)
{
	if (c->state != CONN_BODY)
		return;
	/* It was not the client who waited: its time begins now. */
	c->moved_ns = clock_mono_ns();
	if (c->in.len > c->in_off)
		serve(c);
	touch(c);
}

/* Connections. ----------------------------------------------------------------------------- */

static void add_conn(struct gate *g, int fd)
{
	struct gate_conn *c = calloc(1, sizeof(*c));
	int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!c || loop_add(&g->loop, &c->w, fd, EPOLLIN, on_conn) < 0) {
		free(c);
		(void)close(fd);
		return;
	}
	c->g = g;
	c->fd = fd;
	http1_init(&c->p);
	c->in = BUF_INIT(IN_MAX + 32768);
	c->head = BUF_INIT(65536);
	c->data = BUF_INIT(2 * GATE_WINDOW);
	c->out = BUF_INIT(4 * GATE_WINDOW);
	c->moved_ns = clock_mono_ns();
	c->next = g->conns;
	c->prev = &g->conns;
	if (c->next)
		c->next->prev = &c->next;
	g->conns = c;
	if (++g->conns_len == GATE_CONNS_MAX)
		loop_mod(&g->loop, &g->accept_watch, 0);
}

static void on_accept(struct loop_watch *w, uint32_t events)
{
	struct gate *g = (struct gate *)(void *)((char *)w - offsetof(struct gate, accept_watch));

	(void)events;
	for (int i = 0; i < 16 && g->conns_len < GATE_CONNS_MAX; i++) {
		int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		add_conn(g, fd);
	}
}

int gate_listen(struct gate *g, const struct gate_config *c)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(c->port)};
	socklen_t len = sizeof(a);
	int on = 1, r;

	g->accept_watch.fd = -1;
	if (inet_pton(AF_INET, c->host, &a.sin_addr) != 1)
		return -EINVAL;
	g->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (g->listener < 0)
		return -errno;
	/* A port that a gateway of an earlier run has just left is free. */
	(void)setsockopt(g->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(g->listener, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(g->listener, 128) < 0 ||
	    getsockname(g->listener, (struct sockaddr *)&a, &len) < 0)
		return -errno;
	g->port = ntohs(a.sin_port);
	r = loop_add(&g->loop, &g->accept_watch, g->listener, EPOLLIN, on_accept);
	return r;
}

static int64_t conn_due(const struct gate_conn *c)
{
	if (c->out.len > c->out_off)
		return after_ms(c->moved_ns, GATE_IDLE_MS);
	switch (c->state) {
	case CONN_HEAD:
		return after_ms(c->moved_ns, http1_pending(&c->p) ? GATE_HEAD_MS : GATE_KEEP_MS);
	case CONN_BODY:
		/* Until the channel says that it has room it is not the client who waits. */
		return c->call && c->starved ? INT64_MAX : after_ms(c->moved_ns, GATE_IDLE_MS);
	case CONN_LINGER:
		return after_ms(c->moved_ns, GATE_LINGER_MS);
	default:
		return INT64_MAX;
	}
}

int64_t gate_tick(struct gate *g, int64_t now)
{
	int64_t next = INT64_MAX;

	g->pending = false;
	for (struct gate_conn *c = g->conns, *following; c; c = following) {
		int64_t due;

		following = c->next;
		if (c->dirty) {
			flush(c);
			/* It may be gone; the next look is at the next turn. */
			next = next < now + NS_PER_S ? next : now + NS_PER_S;
			continue;
		}
		due = conn_due(c);
		if (due <= now)
			free_conn(c);
		else if (due < next)
			next = due;
	}
	return next;
}
