/*
 * Policy of door 2 here: every stream is one exchange, and an exchange is the only way from a stream to the
 * upstream. Bounded: streams at once, header bytes, body bytes in memory, cheap frames, silence. Trailers, pushes and
 * priorities of the sandbox are not heard. Not done here: any decision about a request (guard.h).
 */
#include "bridge/h2server_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

/* Bytes that a header costs beyond its own (RFC 9113, 6.5.2). */
#define PAIR_COST 32
#define FIELDS_MOST 32	   /* headers of nearly every request */
#define TEXT_MOST 500	   /* and their bytes */
#define NO_REQUEST_COST 12 /* tokens (h2chan.h): those of a request, and those of a reset */

/* Requests. -------------------------------------------------------------------------------- */

/* It was none. It earned tokens as a request would, and no pace holds it back: it costs what a reset costs. */
static void no_request(struct h2server *s, int status, const char *rule)
{
	s->ch.noise -= NO_REQUEST_COST;
	exchange_refused(s->b, status, rule);
}

static struct stream *stream_of(struct h2server *s, int32_t id)
{
	return nghttp2_session_get_stream_user_data(s->ch.s, id);
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct h2server *s = arg;
	struct stream *st;

	if (f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	st = calloc(1, sizeof(*st));
	if (!st)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	st->s = s;
	st->id = f->hd.stream_id;
	st->content_length = -1;
	st->moved_ns = s->now_ns;
	st->text = BUF_INIT(BRIDGE_HEADER_BLOCK_MAX + BRIDGE_PATH_MAX + BRIDGE_QUERY_MAX + 256);
	st->out = BUF_INIT(3 * BRIDGE_OUT_MAX);
	st->next = s->streams;
	st->prev = &s->streams;
	if (st->next)
		st->next->prev = &st->next;
	s->streams = st;
	s->under_way++;
	return nghttp2_session_set_stream_user_data(session, st->id, st);
}

/* What nearly every request has, then as many as there may be. */
static int more_fields(struct stream *st)
{
	size_t cap = st->fields_cap ? BRIDGE_HEADERS_MAX + 8 : FIELDS_MOST;
	struct field *f = realloc(st->field, cap * sizeof(*f));

	if (!f)
		return -ENOMEM;
	st->field = f;
	st->fields_cap = cap;
	return st->text.data || buf_room(&st->text, TEXT_MOST) ? 0 : -ENOMEM;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *arg)
{
	struct h2server *s = arg;
	struct stream *st = stream_of(s, f->hd.stream_id);
	struct field *to;

	(void)session;
	(void)flags;
	/* A trailer is heard by nobody. */
	if (!st || st->judged || f->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (st->fields == BRIDGE_HEADERS_MAX + 8) {
		st->oversize = true;
		return 0;
	}
	if (st->fields == st->fields_cap && more_fields(st) < 0)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	to = &st->field[st->fields];
	*to = (struct field){(uint32_t)st->text.len, (uint32_t)name_len,
			     (uint32_t)(st->text.len + name_len), (uint32_t)value_len};
	if (buf_put(&st->text, name, name_len) < 0 || buf_put(&st->text, value, value_len) < 0) {
		st->oversize = true;
		st->text.err = 0;
		return 0;
	}
	st->fields++;
	return 0;
}

/* The library would drop such a header and go on: a request that hides something is none (H04, H05). */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
			     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
			     void *arg)
{
	struct stream *st = stream_of(arg, f->hd.stream_id);

	(void)session;
	(void)name;
	(void)name_len;
	(void)value;
	(void)value_len;
	(void)flags;
	if (st && !st->judged)
		st->malformed = true;
	return 0;
}

static struct view text_at(const struct stream *st, uint32_t at, uint32_t n)
{
	return (struct view){st->text.data + at, n};
}

/* Pseudo-headers out, the rest into views. */
static int sort_fields(struct stream *st)
{
	size_t n = 0;

	st->headers = calloc(st->fields + 1, sizeof(*st->headers));
	if (!st->headers)
		return -ENOMEM;
	for (size_t i = 0; i < st->fields; i++) {
		const struct field *fl = &st->field[i];
		struct header h = {text_at(st, fl->name, fl->name_len),
				   text_at(st, fl->value, fl->value_len)};

		if (header_name_is(h.name, ":method"))
			st->method = h.value;
		else if (header_name_is(h.name, ":path"))
			st->path = h.value;
		else if (h.name.n && h.name.p[0] != ':')
			st->headers[n++] = h;
		if (header_name_is(h.name, "content-length") && h.value.n < 20) {
			char digits[20];
			uint64_t v;

			memcpy(digits, h.value.p, h.value.n);
			digits[h.value.n] = '\0';
			if (str_to_u64(digits, INT64_MAX, &v) == 0)
				st->content_length = (int64_t)v;
		}
	}
	free(st->field);
	st->field = NULL;
	st->fields = n;
	return 0;
}

static void judge(struct stream *st, bool no_body)
{
	struct h2server *s = st->s;
	struct guard_request req = {.token_in = GUARD_TOKEN_HEADERS};

	st->judged = true;
	if (st->malformed || sort_fields(st) < 0) {
		no_request(s, st->malformed ? 400 : 0,
			   st->malformed ? "http2.malformed" : "http2.memory");
		(void)nghttp2_submit_rst_stream(s->ch.s, NGHTTP2_FLAG_NONE, st->id,
						st->malformed ? NGHTTP2_PROTOCOL_ERROR
							      : NGHTTP2_INTERNAL_ERROR);
		return;
	}
	req.method = st->method;
	req.target = st->path;
	req.headers = st->headers;
	req.headers_len = st->fields;
	req.body_len = no_body ? 0 : st->content_length;
	/* Cut short here: the guard has not seen it, the audit has. */
	if (st->oversize) {
		no_request(s, 431, "headers.size");
		(void)nghttp2_submit_rst_stream(s->ch.s, NGHTTP2_FLAG_NONE, st->id,
						NGHTTP2_ENHANCE_YOUR_CALM);
	} else {
		st->x = exchange_begin(s->b, &req, &h2stream_answers, st);
	}
	if (!st->x) {
		/* Out of memory: counted, as whatever else is not forwarded. */
		if (!st->oversize)
			exchange_refused(s->b, 0, "bridge.memory");
		if (!st->oversize)
			(void)nghttp2_submit_rst_stream(s->ch.s, NGHTTP2_FLAG_NONE, st->id,
							NGHTTP2_REFUSED_STREAM);
		return;
	}
	if (exchange_wants_body(st->x) && st->content_length > H2_WINDOW)
		h2stream_give_room(st);
}

static void request_done(struct stream *st)
{
	st->request_done = true;
	if (st->x)
		exchange_body_end(st->x);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct h2server *s = arg;
	struct stream *st = f->hd.stream_id ? stream_of(s, f->hd.stream_id) : NULL;
	bool last = f->hd.flags & NGHTTP2_FLAG_END_STREAM;

	(void)session;
	switch (f->hd.type) {
	case NGHTTP2_HEADERS:
		if (!st)
			break;
		if (f->headers.cat == NGHTTP2_HCAT_REQUEST)
			judge(st, last);
		if (last && !st->request_done)
			request_done(st);
		break;
	case NGHTTP2_DATA:
		if (st && last && !st->request_done)
			request_done(st);
		break;
	default:
		break;
	}
	s->more = true;
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *arg)
{
	struct h2server *s = arg;
	struct stream *st = stream_of(s, id);

	(void)flags;
	/* The channel's window is not where memory is bounded: the streams' windows are. */
	(void)nghttp2_session_consume_connection(session, n);
	if (!st)
		return 0;
	st->got += n;
	if (st->x && exchange_wants_body(st->x)) {
		exchange_body(st->x, p, n);
		/* Nobody said how long it is, and it is longer than the first window. */
		if (exchange_wants_body(st->x) && !st->share.granted && !st->share.wants &&
		    st->got >= H2_WINDOW / 2)
			h2stream_give_room(st);
	}
	if (!st->x || !exchange_wants_body(st->x))
		h2stream_drop_rest(st);
	return 0;
}

static void free_stream(struct stream *st)
{
	struct h2server *s = st->s;

	room_return(&st->s->room, &st->share);
	if (st->x)
		exchange_free(st->x);
	*st->prev = st->next;
	if (st->next)
		st->next->prev = st->prev;
	s->under_way--;
	buf_done(&st->text);
	buf_done(&st->out);
	free(st->field);
	free(st->headers);
	free(st);
}

/* The peer broke the protocol on it, and had the library reset what it need not reset itself (CVE-2025-8671). */
static bool provoked(const struct stream *st, uint32_t code)
{
	return !st->malformed && (code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_STREAM_CLOSED ||
				  code == NGHTTP2_FLOW_CONTROL_ERROR);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2server *s = arg;
	struct stream *st = stream_of(s, id);

	(void)session;
	if (!st)
		return 0;
	if (st->judged && provoked(st, code))
		s->ch.noise -= NO_REQUEST_COST;
	/* The library's own refusal of a request that breaks the protocol. */
	if (!st->judged)
		no_request(s, 400, "http2.malformed");
	free_stream(st);
	return 0;
}

/* Life. ------------------------------------------------------------------------------------ */

static void on_lost(void *arg, enum h2_loss why)
{
	struct h2server *s = arg;

	s->loss = why;
}

static void set_callbacks(nghttp2_session_callbacks *cb)
{
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
}

static void set_options(nghttp2_option *opt)
{
	nghttp2_option_set_max_send_header_block_length(opt, 65536);
	/* As many as wait for one write; beyond it the peer floods and does not read. */
	nghttp2_option_set_max_outbound_ack(opt, H2_NOISE_BURST);
	nghttp2_option_set_max_settings(opt, 32);
	/* CVE-2023-44487 is stopped by h2chan's count before it comes here. */
	nghttp2_option_set_stream_reset_rate_limit(opt, H2_NOISE_BURST, H2_NOISE_RATE);
	nghttp2_option_set_max_continuations(opt, 8);
}

int h2server_new(struct bridge *b, int in, int out, unsigned streams_max, struct h2server **ret,
		 struct err *e)
{
	const nghttp2_settings_entry settings[] = {
	    {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, 4096},
	    {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams_max},
	    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_WINDOW},
	    {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
	     BRIDGE_HEADER_BLOCK_MAX + BRIDGE_HEADERS_MAX * PAIR_COST},
	};
	struct h2server *s = calloc(1, sizeof(*s));
	nghttp2_session *session = NULL;
	static const struct h2chan_kind kind = {true, set_callbacks, set_options};
	int r = s ? h2chan_session(&kind, s, &session) : -ENOMEM;

	if (r == 0) {
		s->ch.wary = true;
		s->b = b;
		s->now_ns = clock_mono_ns();
		s->ch.lost = on_lost;
		s->ch.arg = s;
		r = h2chan_init(&s->ch, b->loop, in, out, session);
	} else {
		if (out != in)
			(void)close(out);
		(void)close(in);
	}
	if (r == 0 && (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings,
					       ARRAY_LEN(settings)) < 0 ||
		       nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
							     H2_CONN_WINDOW) < 0))
		r = -ENOMEM;
	if (r < 0) {
		if (s)
			h2server_free(s);
		return err_sys(e, -r, "HTTP/2 session");
	}
	*ret = s;
	return 0;
}

void h2server_feed(struct h2server *s, const void *early, size_t n)
{
	h2chan_feed(&s->ch, early, n);
}

int64_t h2server_tick(struct h2server *s, int64_t now)
{
	int64_t next = INT64_MAX, due;

	s->now_ns = now;
	for (struct stream *st = s->streams; st; st = st->next) {
		due = h2stream_tick(st, now);
		if (due < next)
			next = due;
	}
	if (s->room.wanted)
		h2stream_share_room(s);
	if (s->more) {
		s->more = false;
		h2chan_flush(&s->ch);
	}
	due = h2chan_tick(&s->ch, now);
	return due < next ? due : next;
}

bool h2server_pending(const struct h2server *s)
{
	return (s->more || s->room.wanted) && !s->loss;
}

void h2server_stop(struct h2server *s)
{
	if (s->goaway)
		return;
	s->goaway = true;
	(void)nghttp2_submit_goaway(s->ch.s, NGHTTP2_FLAG_NONE,
				    nghttp2_session_get_last_proc_stream_id(s->ch.s),
				    NGHTTP2_NO_ERROR, NULL, 0);
	s->more = true;
}

enum h2_loss h2server_state(const struct h2server *s)
{
	return s->loss;
}

unsigned h2server_under_way(const struct h2server *s)
{
	return s->under_way;
}

void h2server_free(struct h2server *s)
{
	while (s->streams)
		free_stream(s->streams);
	h2chan_done(&s->ch);
	free(s);
}
