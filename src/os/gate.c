/*
 * Policy, where it runs outside of a sandbox (wary): a client costs bounded memory and bounded time, and one that only makes noise waits.
 * What it says is read by wire/http1.c alone, and handed on in pieces of that parser. Not done here: any decision about a request.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/gate_internal.h"
#include "os/listen.h"

#define IN_MAX 65536
#define READ_CHUNK 16384
#define ACCEPT_TURN 16
#define SMALL_READ 64  /* bytes; less that ends nothing is noise */
#define REQUEST_GAIN 2 /* tokens */
#define MALFORMED_COST 10
#define HUSH_MS 50 /* until it is looked at again; some tokens have come by then */

static int64_t after_ms(int64_t from, int64_t ms)
{
	return from + ms * NS_PER_MS;
}

void gate_touch(struct gate_conn *c)
{
	c->dirty = c->g->pending = true;
}

static void hush(struct gate *g)
{
	if (!g->hushed)
		g->hushed_ns = clock_mono_ns();
	g->hushed = g->pending = true;
}

static void fill_up(struct gate *g)
{
	g->full = g->pending = true;
	g->full_ns = clock_mono_ns();
	loop_mod(g->loop, &g->accept_watch, 0);
}

static double poured(double left, double more)
{
	return left + more < GATE_NOISE_BURST ? left + more : GATE_NOISE_BURST;
}

/* Time fills both buckets, and requests do. */
static void pour(struct gate *g, double more)
{
	int64_t now = clock_mono_ns();

	more += (double)(now - g->noise_ns) / (double)NS_PER_S * GATE_NOISE_RATE;
	g->noise_ns = now;
	g->noise = poured(g->noise, more);
	g->knocks = poured(g->knocks, more);
}

static void pay(struct gate *g, double cost)
{
	if (!g->wary)
		return;
	pour(g, 0);
	g->noise -= cost;
	if (g->noise < 0)
		hush(g);
}

void gate_free_conn(struct gate_conn *c)
{
	const struct linger cut = {.l_onoff = 1};
	struct gate *g = c->g;

	gate_word(c, GATE_WORD_NONE);
	if (c->call)
		g->carrier->drop(c->call);
	loop_del(g->loop, &c->w);
	/* Not to look like the end of an answer that has no other; and what the kernel still holds is not worth keeping. */
	if (c->out.len > c->out_off || (c->broken && !c->w1.chunked && !c->w1.sized))
		(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut));
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
	if (g->conns_len-- == GATE_CONNS_MAX && !g->full)
		loop_mod(g->loop, &g->accept_watch, EPOLLIN);
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
	if (c->g->hushed)
		ev &= ~(uint32_t)EPOLLIN;
	loop_mod(c->g->loop, &c->w, ev);
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

static void forget_in(struct gate_conn *c)
{
	c->dropped += c->in.len - c->in_off;
	buf_reset(&c->in);
	c->in_off = 0;
}

static bool is_method(struct view m, const char *name)
{
	return m.n == strlen(name) && memcmp(m.p, name, m.n) == 0;
}

static void begin(struct gate_conn *c)
{
	enum gate_fail why = GATE_UNAVAILABLE;
	struct gate_call *k;

	if (c->g->wary)
		pour(c->g, REQUEST_GAIN);
	c->safe =
	    c->p.is_head || is_method(c->p.method, "GET") || is_method(c->p.method, "OPTIONS");
	c->untaken = 0;
	c->status = 0;
	c->state = CONN_BODY;
	gate_word(c, GATE_WORD_UNSENT);
	k = c->g->carrier->start(c->g, c, &c->p, &why);
	if (!k) {
		/* It earned tokens as a request would, and no pace holds it back. */
		pay(c->g, MALFORMED_COST + REQUEST_GAIN);
		gate_conn_fail(c, why);
		return;
	}
	if (c->answered)
		return;
	c->call = k;
	if (c->p.expect_continue && c->p.content_length)
		(void)buf_puts(&c->out, HTTP1_CONTINUE);
}

static void body_over(struct gate_conn *c)
{
	c->body_done = true;
	c->state = CONN_ANSWER;
	if (!c->call)
		return;
	gate_word(c, c->safe ? GATE_WORD_SAFE : GATE_WORD_UNSAFE);
	c->g->carrier->body_end(c->call);
}

/* What cannot be read, and with it the connection. Half of a body is no request: it is cut off upstream too. */
static void refuse(struct gate_conn *c)
{
	/* Of a request whose head was judged there is a decision already, and perhaps an answer, which stands. */
	if (c->state == CONN_HEAD && c->g->carrier->malformed)
		c->g->carrier->malformed(c->g, c->p.status);
	pay(c->g, MALFORMED_COST);
	if (c->call)
		c->g->carrier->drop(c->call);
	c->call = NULL;
	forget_in(c);
	c->refused = true;
	c->state = CONN_ANSWER;
	if (c->answered)
		return;
	if (c->has_head)
		c->broken = c->answered = true;
	else
		gate_own_answer(c, c->p.status, "request.malformed", c->p.why);
}

/* One event of the parser. False: it needs what is not here. */
static bool step(struct gate_conn *c)
{
	size_t have = c->in.len - c->in_off, n = have, used;
	struct view piece;

	if (c->state == CONN_BODY && c->call && c->p.content_length) {
		size_t room = c->g->carrier->room(c->call);

		/* Of no bytes the parser still says that the body has ended. */
		n = n < room ? n : room;
		c->starved = room == 0;
	}
	switch (http1_feed(&c->p, c->in.data + c->in_off, n, &used, &piece)) {
	case HTTP1_HEAD:
		drop_in(c, used);
		begin(c);
		return true;
	case HTTP1_BODY:
		if (c->call)
			c->g->carrier->body(c->call, piece.p, piece.n);
		else
			c->dropped += piece.n;
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
		/* All that there was room for was framing, which takes none: there is more to look at. */
		return used && used == n && n < have;
	}
}

static void serve(struct gate_conn *c)
{
	while ((c->state == CONN_HEAD || c->state == CONN_BODY) && step(c))
		;
	if (c->state == CONN_LINGER)
		forget_in(c);
	gate_touch(c);
}

static void next_request(struct gate_conn *c)
{
	gate_word(c, GATE_WORD_NONE);
	http1_next(&c->p);
	buf_reset(&c->head);
	c->fields = 0;
	c->has_head = c->head_out = c->answered = c->ended = c->broken = false;
	c->body_done = false;
	c->muted = false;
	c->dropped = 0;
	c->state = CONN_HEAD;
	c->moved_ns = clock_mono_ns();
}

static void flush(struct gate_conn *c)
{
	int r;

	c->dirty = false;
	r = gate_flush(c);
	if (r < 0)
		return;
	if (r > 0 && c->g->last) {
		gate_free_conn(c);
		return;
	}
	if (r > 0) {
		next_request(c);
		if (c->in.len > c->in_off) {
			serve(c);
			return;
		}
	}
	want(c);
}

/* What came, from n bytes of one read. */
static void take(struct gate_conn *c, size_t n)
{
	enum conn_state before = c->state;

	/* What is only dropped is not waited for. */
	if (c->state == CONN_BODY ? c->call != NULL
				  : c->state == CONN_HEAD && !http1_pending(&c->p))
		c->moved_ns = clock_mono_ns();
	buf_add(&c->in, n);
	serve(c);
	if (n < SMALL_READ && c->state == before)
		pay(c->g, 0.2);
}

static void on_conn(struct loop_watch *w, uint32_t events)
{
	struct gate_conn *c =
	    (struct gate_conn *)(void *)((char *)w - offsetof(struct gate_conn, w));
	char *to;
	ssize_t n;

	if (events & (EPOLLERR | EPOLLHUP)) {
		gate_free_conn(c);
		return;
	}
	if (events & EPOLLOUT)
		gate_touch(c);
	if (!(events & EPOLLIN))
		return;
	if (c->state == CONN_ANSWER || c->g->hushed) {
		c->muted = c->muted || c->state == CONN_ANSWER;
		want(c);
		return;
	}
	if (c->in_off) {
		buf_drop(&c->in, c->in_off);
		c->in_off = 0;
	}
	to = c->in.len < IN_MAX ? buf_room(&c->in, READ_CHUNK) : NULL;
	if (!to)
		return;
	n = recv(c->fd, to, READ_CHUNK, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* Half a request is none. A whole one is answered first, whether or not somebody still listens. */
	if (n <= 0 || c->dropped > GATE_DROP_MAX)
		gate_free_conn(c);
	else
		take(c, (size_t)n);
}

void gate_conn_room(struct gate_conn *c)
{
	if (c->state != CONN_BODY)
		return;
	/* It was not the client who waited: its time begins now. */
	c->moved_ns = clock_mono_ns();
	if (c->in.len > c->in_off)
		serve(c);
	gate_touch(c);
}

/* Connections. ----------------------------------------------------------------------------- */

static void add_conn(struct gate *g, int fd)
{
	struct gate_conn *c = calloc(1, sizeof(*c));
	int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!c || loop_add(g->loop, &c->w, fd, EPOLLIN, on_conn) < 0) {
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
		loop_mod(g->loop, &g->accept_watch, 0);
}

static void close_listener(struct gate *g)
{
	if (g->listener < 0)
		return;
	loop_del(g->loop, &g->accept_watch);
	(void)close(g->listener);
	g->listener = -1;
}

static void on_accept(struct loop_watch *w, uint32_t events)
{
	struct gate *g = (struct gate *)(void *)((char *)w - offsetof(struct gate, accept_watch));

	/* Its owner listens no more. */
	if (events & (EPOLLHUP | EPOLLERR)) {
		close_listener(g);
		return;
	}
	for (int i = 0; i < ACCEPT_TURN && g->conns_len < GATE_CONNS_MAX && !g->full; i++) {
		int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			add_conn(g, fd);
			if (!g->wary)
				continue;
			pour(g, 0);
			g->knocks -= 1;
			if (g->knocks < 0)
				fill_up(g);
			continue;
		}
		/* No descriptors or no memory: asked at once, it would say so again. */
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			fill_up(g);
		return;
	}
}

int gate_serve(struct gate *g, int listener)
{
	int fl = fcntl(listener, F_GETFL), r;

	g->accept_watch.fd = -1;
	g->listener = listener;
	g->noise = g->knocks = GATE_NOISE_BURST;
	g->noise_ns = clock_mono_ns();
	if (fl < 0 || fcntl(listener, F_SETFL, fl | O_NONBLOCK) < 0)
		return -errno;
	r = loop_add(g->loop, &g->accept_watch, listener, EPOLLIN, on_accept);
	return r;
}

int gate_listen(struct gate *g, const struct gate_config *c)
{
	_cleanup_fd_ int fd = listen_socket();
	int r;

	g->listener = g->accept_watch.fd = -1;
	r = fd < 0 ? fd : listen_on(fd, c->host, c->port, &g->port);
	return r < 0 ? r : gate_serve(g, TAKE_FD(fd));
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

/* Reads and accepts again when there are tokens for it. Time in which nothing was read was no client's. */
static void look_again(struct gate *g, int64_t now)
{
	if (g->wary)
		pour(g, 0);
	if (g->full && now - g->full_ns >= HUSH_MS * NS_PER_MS && g->knocks >= 0) {
		g->full = false;
		if (g->conns_len < GATE_CONNS_MAX)
			loop_mod(g->loop, &g->accept_watch, EPOLLIN);
	}
	if (!g->hushed || g->noise < 0)
		return;
	g->hushed = false;
	for (struct gate_conn *c = g->conns; c; c = c->next) {
		c->moved_ns += now - (c->moved_ns > g->hushed_ns ? c->moved_ns : g->hushed_ns);
		gate_touch(c);
	}
}

int64_t gate_tick(struct gate *g, int64_t now)
{
	int64_t next = INT64_MAX;

	g->pending = false;
	g->queued = 0;
	if (g->hushed || g->full) {
		look_again(g, now);
		next = after_ms(now, HUSH_MS);
	}
	for (struct gate_conn *c = g->conns, *following; c; c = following) {
		int64_t due;

		following = c->next;
		g->queued += gate_conn_queued(c);
		if (c->dirty) {
			flush(c);
			/* It may be gone; the next look is at the next turn. */
			next = next < now + NS_PER_S ? next : now + NS_PER_S;
			continue;
		}
		due = g->hushed ? INT64_MAX : conn_due(c);
		if (due <= now)
			gate_free_conn(c);
		else if (due < next)
			next = due;
	}
	return next;
}

void gate_stop(struct gate *g)
{
	g->last = g->pending = true;
	close_listener(g);
	for (struct gate_conn *c = g->conns, *following; c; c = following) {
		following = c->next;
		if (c->state == CONN_HEAD && !http1_pending(&c->p))
			gate_free_conn(c);
	}
}

unsigned gate_busy(const struct gate *g)
{
	unsigned n = 0;

	for (const struct gate_conn *c = g->conns; c; c = c->next)
		n += c->state == CONN_BODY || c->state == CONN_ANSWER || c->out.len > c->out_off;
	return n;
}

void gate_done(struct gate *g)
{
	close_listener(g);
	while (g->conns)
		gate_free_conn(g->conns);
}
