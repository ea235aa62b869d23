/*
 * Policy of door 2 here: bodies of the sandbox take bounded memory, first come, first served, and an answer that nobody reads, or an
 * upload that does not end, has an end. Not done here: any decision about a request (guard.h), what becomes one (h2server.c).
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "bridge/h2server_internal.h"

/* Answers. --------------------------------------------------------------------------------- */

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *to, size_t n,
			   uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct stream *st = source->ptr;
	size_t left = st->out.len - st->out_off;

	(void)session;
	(void)id;
	(void)arg;
	if (left == 0 && !st->out_end) {
		st->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	if (left == 0 && st->out_broken)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (n > left)
		n = left;
	st->moved_ns = st->s->now_ns;
	if (n)
		memcpy(to, st->out.data + st->out_off, n);
	st->out_off += n;
	if (st->out_off == st->out.len) {
		buf_reset(&st->out);
		st->out_off = 0;
		if (st->out_end && !st->out_broken)
			*flags |= NGHTTP2_DATA_FLAG_EOF;
	}
	if (st->waiting && st->out.len - st->out_off < BRIDGE_OUT_MAX / 2) {
		st->waiting = false;
		exchange_resume(st->x);
	}
	return (ssize_t)n;
}

static void kick(struct stream *st)
{
	if (!st->deferred)
		return;
	st->deferred = false;
	(void)nghttp2_session_resume_data(st->s->ch.s, st->id);
	st->s->more = true;
}

/* An answer to HEAD has no body, however it was made. */
static bool is_head(const struct stream *st)
{
	return st->method.n == 4 && memcmp(st->method.p, "HEAD", 4) == 0;
}

static void answer_head(void *arg, int status, const struct header *h, size_t n)
{
	struct stream *st = arg;
	nghttp2_nv nv[POLICY_HEADERS_MAX + 8];
	nghttp2_data_provider body = {.source.ptr = st, .read_callback = read_answer};
	/* 200 to 599 (guard.h) */
	const char code[] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10),
			     (char)('0' + status % 10)};
	size_t k = 0;

	nv[k++] = h2_pair(":status", 7, code, sizeof(code));
	for (size_t i = 0; i < n && k < ARRAY_LEN(nv); i++)
		nv[k++] = h2_pair(h[i].name.p, h[i].name.n, h[i].value.p, h[i].value.n);
	if (nghttp2_submit_response(st->s->ch.s, st->id, nv, k, is_head(st) ? NULL : &body) < 0)
		(void)nghttp2_submit_rst_stream(st->s->ch.s, NGHTTP2_FLAG_NONE, st->id,
						NGHTTP2_INTERNAL_ERROR);
	st->s->more = true;
}

static bool answer_room(void *arg, size_t n)
{
	struct stream *st = arg;

	if (st->out.len - st->out_off + n <= BRIDGE_OUT_MAX)
		return true;
	st->waiting = true;
	return false;
}

static void answer_data(void *arg, const char *p, size_t n)
{
	struct stream *st = arg;

	if (is_head(st))
		return;
	if (st->out_off > BRIDGE_OUT_MAX) {
		buf_drop(&st->out, st->out_off);
		st->out_off = 0;
	}
	if (st->out.len == st->out_off)
		st->moved_ns = st->s->now_ns;
	if (buf_put(&st->out, p, n) < 0)
		st->out_end = st->out_broken = true;
	kick(st);
}

static void answer_end(void *arg, bool whole)
{
	struct stream *st = arg;

	st->answered = st->out_end = true;
	st->moved_ns = st->s->now_ns;
	st->out_broken = st->out_broken || !whole;
	kick(st);
	st->s->more = true;
}

const struct exchange_ops h2stream_answers = {
    .head = answer_head, .room = answer_room, .data = answer_data, .end = answer_end};

/* Room for bodies. ------------------------------------------------------------------------- */

void h2stream_give_room(struct stream *st)
{
	struct h2server *s = st->s;
	uint64_t room;

	if (!room_take(&s->room, &st->share, st->x, st->content_length))
		return;
	room = st->share.granted + H2_WINDOW;
	(void)nghttp2_session_set_local_window_size(s->ch.s, NGHTTP2_FLAG_NONE, st->id,
						    room > INT32_MAX ? INT32_MAX : (int32_t)room);
	s->more = true;
}

void h2stream_share_room(struct h2server *s)
{
	while (s->room.wanted) {
		struct stream *first = NULL;

		for (struct stream *st = s->streams; st; st = st->next)
			if (st->share.wants &&
			    (!first || st->share.since_ns < first->share.since_ns))
				first = st;
		s->room.wanted = false;
		if (first)
			h2stream_give_room(first);
		s->room.wanted = first && !first->share.wants;
		if (!s->room.wanted)
			return;
	}
}

void h2stream_drop_rest(struct stream *st)
{
	nghttp2_session *session = st->s->ch.s;

	room_return(&st->s->room, &st->share);
	if (st->got > 2 * (uint64_t)BRIDGE_BODY_MAX)
		(void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, st->id,
						NGHTTP2_NO_ERROR);
	else
		(void)nghttp2_session_consume_stream(session, st->id,
						     (size_t)(st->got - st->consumed));
	st->consumed = st->got;
}

/* Limits. ---------------------------------------------------------------------------------- */

int64_t h2stream_tick(struct stream *st, int64_t now)
{
	int64_t due, slow = INT64_MAX;

	if (st->x && st->share.wants)
		exchange_body_waits(st->x, now);
	due = st->x ? exchange_tick(st->x, now) : INT64_MAX;

	if (st->cut)
		return due;
	if (st->answered && !st->request_done)
		slow = st->moved_ns + BRIDGE_DROP_MS * NS_PER_MS;
	else if (st->out.len > st->out_off)
		slow = st->moved_ns + BRIDGE_IDLE_MS * NS_PER_MS;
	if (slow <= now) {
		st->cut = st->s->more = true;
		(void)nghttp2_submit_rst_stream(st->s->ch.s, NGHTTP2_FLAG_NONE, st->id,
						st->request_done ? NGHTTP2_CANCEL
								 : NGHTTP2_NO_ERROR);
		slow = INT64_MAX;
	}
	return slow < due ? slow : due;
}
