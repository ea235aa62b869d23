/*
 * Policy of door 2 here: a request of a connection becomes an exchange, as many at once as the policy allows, GATE_WAITING_MAX more wait;
 * bodies take bounded memory (room.h), an answer waits while its client does not read. Not done here: reading HTTP/1.1
 * (os/gate.c, wire/http1.c), any decision about a request (guard.h).
 */
#include "bridge/h1server.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "bridge/room.h"
#include "os/gate.h"

#define QUEUED_MAX (8 << 20) /* bytes of all answers that wait for their clients */

struct gate_call {
	struct h1server *s;
	struct gate_call *next, **prev;
	struct gate_conn *conn; /* NULL: it is done, and freed with the next tick */
	const struct http1 *head;
	struct exchange *x; /* NULL: it waits for its turn */
	uint64_t got;	    /* bytes of body */
	struct room_share share;
	bool deaf;    /* the connection heard that there is no room */
	bool waiting; /* the answer waits for the client */
};

struct h1server {
	struct bridge *b;
	struct gate gate;
	struct gate_call *calls, **end; /* oldest first */
	unsigned under_way, waiting;
	struct room room;
	bool more;
};

/* Answers. --------------------------------------------------------------------------------- */

static void answer_head(void *arg, int status, const struct header *h, size_t n)
{
	const struct gate_call *k = arg;

	gate_conn_head(k->conn, status);
	for (size_t i = 0; i < n; i++)
		gate_conn_header(k->conn, h[i].name.p, h[i].name.n, h[i].value.p, h[i].value.n);
}

/* A client that has taken all it was given may always have more. */
static bool has_room(const struct gate_call *k, size_t n, size_t most)
{
	size_t queued = gate_conn_queued(k->conn);

	return queued == 0 || (queued + n <= most && k->s->gate.queued <= QUEUED_MAX);
}

static bool answer_room(void *arg, size_t n)
{
	struct gate_call *k = arg;

	k->waiting = !has_room(k, n, BRIDGE_OUT_MAX);
	return !k->waiting;
}

static void answer_data(void *arg, const char *p, size_t n)
{
	const struct gate_call *k = arg;

	gate_conn_data(k->conn, p, n);
}

/* The exchange is freed with the next tick: not from inside of itself. */
static void answer_end(void *arg, bool whole)
{
	struct gate_call *k = arg;

	if (whole)
		gate_conn_end(k->conn);
	else
		gate_conn_fail(k->conn, GATE_LOST);
	k->conn = NULL;
	k->s->more = true;
}

static const struct exchange_ops answers = {
    .head = answer_head, .room = answer_room, .data = answer_data, .end = answer_end};

/* Requests. -------------------------------------------------------------------------------- */

static void free_call(struct gate_call *k)
{
	struct h1server *s = k->s;

	room_return(&s->room, &k->share);
	if (k->x) {
		exchange_free(k->x);
		s->under_way--;
		s->more = s->more || s->waiting;
	} else {
		s->waiting--;
	}
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	else
		s->end = k->prev;
	free(k);
}

static bool judge(struct gate_call *k)
{
	struct h1server *s = k->s;
	const struct http1 *h = k->head;
	const struct guard_request req = {
	    .token_in = GUARD_TOKEN_HEADERS,
	    .method = h->method,
	    .target = h->target,
	    .headers = h->headers,
	    .headers_len = h->headers_len,
	    .body_len = h->content_length,
	};

	k->x = exchange_begin(s->b, &req, &answers, k);
	if (!k->x)
		return false;
	s->waiting--;
	s->under_way++;
	if (exchange_wants_body(k->x) && h->content_length > H2_WINDOW)
		(void)room_take(&s->room, &k->share, k->x, h->content_length);
	return true;
}

static struct gate_call *start(struct gate *g, struct gate_conn *c, const struct http1 *h,
			       enum gate_fail *ret_fail)
{
	struct h1server *s = g->carrier_state;
	bool now = s->under_way < guard_policy(s->b->guard)->streams_max && !s->waiting;
	struct gate_call *k;

	*ret_fail = GATE_REFUSED;
	if (!now && s->waiting >= GATE_WAITING_MAX) {
		exchange_refused(s->b, 503, "bridge.busy");
		return NULL;
	}
	*ret_fail = GATE_UNAVAILABLE;
	k = calloc(1, sizeof(*k));
	if (!k) {
		exchange_refused(s->b, 503, "bridge.memory");
		return NULL;
	}
	k->s = s;
	k->conn = c;
	k->head = h;
	k->prev = s->end;
	*s->end = k;
	s->end = &k->next;
	s->waiting++;
	if (!now || judge(k))
		return k;
	exchange_refused(s->b, 503, "bridge.memory");
	free_call(k);
	return NULL;
}

static size_t room(struct gate_call *k)
{
	uint64_t most;

	k->deaf = false;
	if (k->x && !exchange_wants_body(k->x))
		return SIZE_MAX;
	most = H2_WINDOW + k->share.granted;
	if (k->x && k->got >= H2_WINDOW && !k->share.granted && !k->share.wants &&
	    room_take(&k->s->room, &k->share, k->x, k->head->content_length))
		most += k->share.granted;
	k->deaf = !k->x || k->got >= most;
	return k->deaf ? 0 : (size_t)(most - k->got);
}

static void body(struct gate_call *k, const char *p, size_t n)
{
	k->got += n;
	exchange_body(k->x, p, n);
	if (!exchange_wants_body(k->x))
		room_return(&k->s->room, &k->share);
}

static void body_end(struct gate_call *k)
{
	/* One that waits for its turn has no body; else it would have been told to wait before this. */
	if (k->x)
		exchange_body_end(k->x);
}

static void malformed(struct gate *g, int status)
{
	struct h1server *s = g->carrier_state;

	exchange_refused(s->b, status, "http1.malformed");
}

static const struct gate_carrier carrier = {start, room,      body,	body_end,
					    NULL,  free_call, malformed};

/* Turns. ----------------------------------------------------------------------------------- */

/* Those whose turn has come; one whose request has ended there already goes out at once. */
static void begin_waiting(struct h1server *s)
{
	for (struct gate_call *k = s->calls, *next; k && s->waiting; k = next) {
		next = k->next;
		if (k->x)
			continue;
		if (s->under_way >= guard_policy(s->b->guard)->streams_max)
			return;
		if (!judge(k)) {
			exchange_refused(s->b, 503, "bridge.memory");
			gate_conn_fail(k->conn, GATE_UNAVAILABLE);
			free_call(k);
		} else if (k->conn && k->head->content_length == 0) {
			exchange_body_end(k->x);
		}
	}
}

static void share_room(struct h1server *s)
{
	for (struct gate_call *k = s->calls; k; k = k->next)
		if (k->share.wants &&
		    !room_take(&s->room, &k->share, k->x, k->head->content_length))
			break;
	s->room.wanted = false;
}

/* Connections that were told to wait, and need not any more. Not from inside of a call of theirs. */
static void wake(struct h1server *s)
{
	for (struct gate_call *k = s->calls, *next; k; k = next) {
		next = k->next;
		if (k->conn && k->deaf && room(k) > 0)
			gate_conn_room(k->conn);
	}
}

static void free_done(struct h1server *s)
{
	for (struct gate_call *k = s->calls, *next; k; k = next) {
		next = k->next;
		if (!k->conn)
			free_call(k);
	}
}

/* Answers that waited for their clients. */
static void resume(struct h1server *s)
{
	for (struct gate_call *k = s->calls; k; k = k->next) {
		if (!k->conn || !k->waiting || !has_room(k, 0, BRIDGE_OUT_MAX / 2))
			continue;
		k->waiting = false;
		exchange_resume(k->x);
	}
}

int64_t h1server_tick(struct h1server *s, int64_t now)
{
	int64_t next = INT64_MAX, due;

	/* Before their connections go on: what an exchange was begun with lies there. */
	free_done(s);
	s->more = false;
	if (s->waiting)
		begin_waiting(s);
	if (s->room.wanted)
		share_room(s);
	wake(s);
	for (struct gate_call *k = s->calls; k; k = k->next) {
		if (!k->x || !k->conn)
			continue;
		if (k->share.wants)
			exchange_body_waits(k->x, now);
		due = exchange_tick(k->x, now);
		if (due < next)
			next = due;
	}
	free_done(s);
	due = gate_tick(&s->gate, now);
	resume(s);
	return due < next ? due : next;
}

bool h1server_pending(const struct h1server *s)
{
	return s->more || s->room.wanted || s->gate.pending;
}

void h1server_stop(struct h1server *s)
{
	gate_stop(&s->gate);
}

unsigned h1server_under_way(const struct h1server *s)
{
	return gate_busy(&s->gate);
}

int h1server_new(struct bridge *b, int listener, unsigned char *words, int words_len,
		 struct h1server **ret, struct err *e)
{
	struct h1server *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		(void)close(listener);
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	}
	s->b = b;
	s->end = &s->calls;
	s->gate.loop = b->loop;
	s->gate.carrier = &carrier;
	s->gate.carrier_state = s;
	s->gate.wary = true;
	s->gate.words = words;
	s->gate.words_len = words_len;
	r = gate_serve(&s->gate, listener);
	if (r < 0) {
		h1server_free(s);
		return err_sys(e, -r, "bridge: the listening socket");
	}
	*ret = s;
	return 0;
}

void h1server_free(struct h1server *s)
{
	gate_done(&s->gate);
	free_done(s);
	free(s);
}
