#include "guest/gate_h2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/h2chan.h"

#define NV_MAX (BRIDGE_HEADERS_MAX + 8)

struct length {
	uint32_t name, value;
};

struct gate_call {
	struct gate_h2 *h;
	struct gate_call *next, **prev;
	struct gate_conn *conn; /* NULL: dropped */
	int32_t id;		/* of its stream; 0: it waits for one */
	char *text;		/* names and values, one behind the other: it may be sent again */
	struct length *length;
	size_t headers;
	struct buf up;
	size_t up_off;
	bool has_body, safe;
	bool up_end, deferred, sent, headed, ended, starved;
	bool took;  /* some of the body went, and is not kept */
	bool whole; /* its last frame was made, from byte last_at of the stream on */
	uint64_t last_at;
	bool begun; /* the client has been told a status */
	bool again; /* it was sent on a stream that is lost */
};

struct gate_h2 {
	struct gate *g;
	struct h2chan ch;
	struct gate_call *list; /* newest first */
	unsigned calls;
	bool up;     /* there is a session */
	bool lost;   /* its stream is gone; sorted out with the next tick */
	bool goaway; /* it takes nothing new */
	bool last;   /* no other stream follows */
	bool in_order, more;
	int64_t down_ns; /* since when there is no stream */
};

static const struct gate_carrier carrier;

/* Requests. -------------------------------------------------------------------------------- */

static ssize_t read_body(nghttp2_session *s, int32_t id, uint8_t *to, size_t n, uint32_t *flags,
			 nghttp2_data_source *source, void *arg)
{
	struct gate_call *k = source->ptr;
	size_t left = k->up.len - k->up_off;

	(void)s;
	(void)id;
	(void)arg;
	if (left == 0 && !k->up_end) {
		k->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	if (n > left)
		n = left;
	if (n)
		memcpy(to, k->up.data + k->up_off, n);
	k->up_off += n;
	if (k->up_off == k->up.len && k->up_end) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		k->whole = true;
		k->last_at = k->h->ch.queued;
	}
	if (k->starved && k->conn && k->up.len - k->up_off < GATE_UP_MAX / 2)
		k->h->more = true;
	return (ssize_t)n;
}

static bool carried(struct view name)
{
	static const char *const left_out[] = {
	    "connection",
	    "keep-alive",
	    "proxy-connection",
	    "transfer-encoding",
	    "upgrade",
	    "expect",
	    "host",
	    "te",
	    "trailer",
	    "http2-settings",
	    "content-length",
	};

	for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
		if (name.n == strlen(left_out[i]) && memcmp(name.p, left_out[i], name.n) == 0)
			return false;
	return true;
}

static void put_pair(struct gate_call *k, char **at, const char *name, struct view value)
{
	size_t n = strlen(name);

	memcpy(*at, name, n);
	memcpy(*at + n, value.p, value.n);
	*at += n + value.n;
	k->length[k->headers++] = (struct length){(uint32_t)n, (uint32_t)value.n};
}

/* A copy that is the call's own, names in lower case, as HTTP/2 wants them. */
static int copy_head(struct gate_call *k, const struct http1 *h)
{
	size_t total = h->method.n + h->target.n + 128;
	char length[24], *at;

	for (size_t i = 0; i < h->headers_len; i++)
		total += h->headers[i].name.n + h->headers[i].value.n;
	k->text = at = malloc(total);
	k->length = malloc((h->headers_len + 8) * sizeof(*k->length));
	if (!k->text || !k->length)
		return -ENOMEM;
	put_pair(k, &at, ":method", h->method);
	put_pair(k, &at, ":scheme", (struct view){"http", 4});
	put_pair(k, &at, ":authority", (struct view){"bridge.internal", 15});
	put_pair(k, &at, ":path", h->target);
	for (size_t i = 0; i < h->headers_len; i++) {
		const struct header *f = &h->headers[i];

		for (size_t c = 0; c < f->name.n; c++)
			at[c] = f->name.p[c] >= 'A' && f->name.p[c] <= 'Z'
				    ? (char)(f->name.p[c] + 32)
				    : f->name.p[c];
		if (!carried((struct view){at, f->name.n}))
			continue;
		at += f->name.n;
		if (f->value.n)
			memcpy(at, f->value.p, f->value.n);
		at += f->value.n;
		k->length[k->headers++] =
		    (struct length){(uint32_t)f->name.n, (uint32_t)f->value.n};
	}
	if (h->content_length > 0) {
		(void)snprintf(length, sizeof(length), "%lld", (long long)h->content_length);
		put_pair(k, &at, "content-length", (struct view){length, strlen(length)});
	}
	return 0;
}

/* On the stream that there is. 0 or a negative number of the library's. */
static int submit(struct gate_call *k)
{
	struct gate_h2 *h = k->h;
	nghttp2_data_provider body = {.source.ptr = k, .read_callback = read_body};
	nghttp2_nv nv[NV_MAX];
	const char *at = k->text;

	for (size_t i = 0; i < k->headers; i++) {
		nv[i] = h2_pair(at, k->length[i].name, at + k->length[i].name, k->length[i].value);
		at += k->length[i].name + k->length[i].value;
	}
	k->deferred = k->sent = false;
	k->id =
	    nghttp2_submit_request(h->ch.s, NULL, nv, k->headers, k->has_body ? &body : NULL, k);
	h->more = true;
	if (k->id > 0)
		return 0;
	k->id = 0;
	return -1;
}

static void free_call(struct gate_call *k)
{
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	k->h->calls--;
	buf_done(&k->up);
	free(k->text);
	free(k->length);
	free(k);
}

static bool is_safe(struct view m)
{
	return (m.n == 3 && memcmp(m.p, "GET", 3) == 0) ||
	       (m.n == 4 && memcmp(m.p, "HEAD", 4) == 0) ||
	       (m.n == 7 && memcmp(m.p, "OPTIONS", 7) == 0);
}

static bool usable(const struct gate_h2 *h)
{
	return h->up && !h->lost && !h->goaway;
}

static bool full(const struct gate_h2 *h)
{
	uint32_t streams = usable(h) ? nghttp2_session_get_remote_settings(
					   h->ch.s, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
				     : 0;

	return h->calls >= streams + GATE_WAITING_MAX;
}

static struct gate_call *start(struct gate *g, struct gate_conn *conn, const struct http1 *head,
			       enum gate_fail *ret_fail)
{
	struct gate_h2 *h = g->carrier_state;
	struct gate_call *k;

	*ret_fail = GATE_UNAVAILABLE;
	if ((h->last && !usable(h)) || full(h))
		return NULL;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->h = h;
	k->conn = conn;
	k->up = BUF_INIT(2 * GATE_UP_MAX);
	k->has_body = head->content_length != 0;
	k->safe = is_safe(head->method);
	k->next = h->list;
	k->prev = &h->list;
	if (k->next)
		k->next->prev = &k->next;
	h->list = k;
	h->calls++;
	if (copy_head(k, head) < 0) {
		free_call(k);
		return NULL;
	}
	if (usable(h) && submit(k) < 0) {
		free_call(k);
		*ret_fail = GATE_MALFORMED;
		return NULL;
	}
	return k;
}

static size_t room(struct gate_call *k)
{
	size_t used = k->up.len - k->up_off;

	/* Whoever heard "none" is told when there is some: wake_starved alone clears it. */
	if (used >= GATE_UP_MAX)
		k->starved = true;
	return used >= GATE_UP_MAX ? 0 : GATE_UP_MAX - used;
}

static void wake(struct gate_call *k)
{
	if (k->deferred && k->id) {
		k->deferred = false;
		(void)nghttp2_session_resume_data(k->h->ch.s, k->id);
	}
	k->h->more = true;
}

static void body(struct gate_call *k, const char *p, size_t n)
{
	/* A body that fits is kept: it can be sent again on another stream. */
	if (k->up_off && k->up.len + n > GATE_UP_MAX) {
		buf_drop(&k->up, k->up_off);
		k->up_off = 0;
		k->took = true;
	}
	(void)buf_put(&k->up, p, n);
	wake(k);
}

static void body_end(struct gate_call *k)
{
	k->up_end = true;
	wake(k);
}

static void taken(struct gate_call *k, size_t n)
{
	if (k->id && k->h->up)
		(void)nghttp2_session_consume_stream(k->h->ch.s, k->id, n);
	k->h->more = true;
}

static void drop(struct gate_call *k)
{
	k->conn = NULL;
	if (!k->id || !k->h->up) {
		free_call(k);
		return;
	}
	/* A call whose answer has come is only waiting for its stream to close. */
	if (!k->ended || !k->up_end)
		(void)nghttp2_submit_rst_stream(k->h->ch.s, NGHTTP2_FLAG_NONE, k->id,
						NGHTTP2_CANCEL);
	k->h->more = true;
}

static const struct gate_carrier carrier = {start, room, body, body_end, taken, drop, NULL};

/* Answers. --------------------------------------------------------------------------------- */

static int on_header(nghttp2_session *s, const nghttp2_frame *f, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *arg)
{
	struct gate_call *k = nghttp2_session_get_stream_user_data(s, f->hd.stream_id);
	const char *v = (const char *)value;
	int status;

	(void)flags;
	(void)arg;
	/* A 1xx, or trailers: nothing for the client. */
	if (!k || !k->conn || k->headed)
		return 0;
	if (name_len == 7 && memcmp(name, ":status", 7) == 0) {
		status = value_len == 3 ? (v[0] - '0') * 100 + (v[1] - '0') * 10 + (v[2] - '0') : 0;
		if (status >= 200 && status <= 599)
			gate_conn_head(k->conn, status);
		k->begun = true;
		return 0;
	}
	gate_conn_header(k->conn, (const char *)name, name_len, v, value_len);
	return 0;
}

static void whole(struct gate_call *k)
{
	struct gate_conn *c = k->conn;

	k->ended = true;
	k->conn = NULL;
	if (c)
		gate_conn_end(c);
	/* What the client did not get to send is not wanted any more. */
	if (!k->up_end && k->up.cap)
		(void)nghttp2_submit_rst_stream(k->h->ch.s, NGHTTP2_FLAG_NONE, k->id,
						NGHTTP2_NO_ERROR);
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	struct gate_h2 *h = arg;
	struct gate_call *k =
	    f->hd.stream_id ? nghttp2_session_get_stream_user_data(s, f->hd.stream_id) : NULL;

	h->more = true;
	if (f->hd.type == NGHTTP2_GOAWAY)
		h->goaway = true;
	if (!k)
		return 0;
	if (f->hd.type == NGHTTP2_HEADERS)
		k->headed = true;
	if ((f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA) &&
	    (f->hd.flags & NGHTTP2_FLAG_END_STREAM) && !k->ended)
		whole(k);
	return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *arg)
{
	struct gate_call *k = nghttp2_session_get_stream_user_data(s, id);

	(void)flags;
	(void)arg;
	(void)nghttp2_session_consume_connection(s, n);
	if (k && k->conn)
		gate_conn_data(k->conn, (const char *)p, n);
	return 0;
}

static int before_sent(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	struct gate_h2 *h = arg;
	struct gate_call *k = f->hd.type == NGHTTP2_HEADERS
				  ? nghttp2_session_get_stream_user_data(s, f->hd.stream_id)
				  : NULL;

	if (k && !k->has_body) {
		k->whole = true;
		k->last_at = h->ch.queued;
	}
	return 0;
}

static int on_sent(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	struct gate_call *k;

	(void)arg;
	if (f->hd.type != NGHTTP2_HEADERS)
		return 0;
	k = nghttp2_session_get_stream_user_data(s, f->hd.stream_id);
	if (k) {
		k->sent = true;
	}
	return 0;
}

static enum gate_fail reason(const struct gate_call *k, uint32_t code)
{
	if (!k->sent)
		return GATE_UNAVAILABLE;
	switch (code) {
	case NGHTTP2_REFUSED_STREAM:
		return GATE_REFUSED;
	case NGHTTP2_PROTOCOL_ERROR:
		return GATE_MALFORMED;
	case NGHTTP2_ENHANCE_YOUR_CALM:
		return GATE_TOO_LARGE;
	default:
		return GATE_LOST;
	}
}

/* All of it may have reached the other end: its last frame, or a part of that, was taken by the kernel. */
static bool gone(const struct gate_call *k)
{
	return k->whole && k->h->ch.written > k->last_at;
}

/* It may wait for the next stream: it has not gone whole, or has no effect; and all of it is still here. */
static bool may_wait(const struct gate_call *k)
{
	return k->conn && !k->begun && !k->took && !k->h->last && (k->safe || !gone(k));
}

static void put_back(struct gate_call *k)
{
	k->again = k->again || gone(k);
	k->id = 0;
	k->up_off = 0;
	k->sent = k->deferred = k->whole = false;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
	struct gate_call *k = nghttp2_session_get_stream_user_data(s, id);
	struct gate_h2 *h = arg;

	if (!k)
		return 0;
	h->more = true;
	/* GOAWAY: streams beyond its number were not looked at, whatever their method. */
	if (code == NGHTTP2_REFUSED_STREAM && h->goaway && k->conn && !k->took && !h->last) {
		k->whole = false;
		put_back(k);
		return 0;
	}
	if (k->conn)
		gate_conn_fail(k->conn, reason(k, code));
	free_call(k);
	return 0;
}

/* Life. ------------------------------------------------------------------------------------ */

static void on_lost(void *arg, enum h2_loss why)
{
	struct gate_h2 *h = arg;

	h->lost = true;
	h->in_order = why == H2_DONE;
}

static void set_callbacks(nghttp2_session_callbacks *cb)
{
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
	nghttp2_session_callbacks_set_before_frame_send_callback(cb, before_sent);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
}

static int make_session(struct gate_h2 *h, nghttp2_session **ret)
{
	static const struct h2chan_kind kind = {false, set_callbacks, NULL};
	const nghttp2_settings_entry settings[] = {
	    {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
	    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, GATE_WINDOW},
	};
	int r = h2chan_session(&kind, h, ret);

	if (r < 0)
		return r;
	if (nghttp2_submit_settings(*ret, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings)) == 0 &&
	    nghttp2_session_set_local_window_size(*ret, NGHTTP2_FLAG_NONE, 0, H2_CONN_WINDOW) == 0)
		return 0;
	nghttp2_session_del(*ret);
	return -ENOMEM;
}

int gate_h2_new(struct gate *g, struct gate_h2 **ret)
{
	struct gate_h2 *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->g = g;
	h->down_ns = clock_mono_ns();
	g->carrier = &carrier;
	g->carrier_state = h;
	*ret = h;
	return 0;
}

/* Oldest first: the list is newest first. */
static void submit_waiting(struct gate_h2 *h)
{
	struct gate_call *k = h->list;

	while (k && k->next)
		k = k->next;
	while (k) {
		struct gate_call *before =
		    k == h->list ? NULL
				 : (struct gate_call *)(void *)((char *)k->prev -
								offsetof(struct gate_call, next));

		if (!k->id && submit(k) < 0) {
			gate_conn_fail(k->conn, GATE_MALFORMED);
			free_call(k);
		}
		k = before;
	}
}

int gate_h2_attach(struct gate_h2 *h, int in, int out)
{
	nghttp2_session *s = NULL;
	int r = make_session(h, &s);

	if (h->up) {
		h->lost = true;
		(void)gate_h2_tick(h, clock_mono_ns());
	}
	if (r < 0)
		return r;
	h->ch = (struct h2chan){.lost = on_lost, .arg = h};
	h->lost = h->goaway = h->in_order = false;
	r = h2chan_init(&h->ch, h->g->loop, in, out, s);
	if (r < 0) {
		h2chan_done(&h->ch);
		return r;
	}
	h->up = h->more = true;
	submit_waiting(h);
	return 0;
}

/* Clients whose body waited for room hear of it when the session is through: not from inside of it. */
static void wake_starved(struct gate_h2 *h)
{
	for (struct gate_call *k = h->list, *next; k; k = next) {
		next = k->next;
		if (k->starved && k->conn && k->up.len - k->up_off < GATE_UP_MAX / 2) {
			k->starved = false;
			gate_conn_room(k->conn);
		}
	}
}

static int64_t flush(struct gate_h2 *h, int64_t now)
{
	h->more = false;
	h2chan_flush(&h->ch);
	wake_starved(h);
	return h2chan_tick(&h->ch, now);
}

/* The stream is gone. */
static void sort_out(struct gate_h2 *h)
{
	for (struct gate_call *k = h->list, *next; k; k = next) {
		next = k->next;
		if (k->id)
			(void)nghttp2_session_set_stream_user_data(h->ch.s, k->id, NULL);
		if (may_wait(k)) {
			put_back(k);
			continue;
		}
		/* An upload that was cut off has no effect: the host sends nothing on before its end. */
		if (k->conn)
			gate_conn_fail(k->conn, k->begun || gone(k) ? GATE_LOST : GATE_UNAVAILABLE);
		free_call(k);
	}
	h2chan_done(&h->ch);
	h->up = h->lost = h->goaway = false;
	h->down_ns = clock_mono_ns();
}

static void give_up_waiting(struct gate_h2 *h)
{
	for (struct gate_call *k = h->list, *next; k; k = next) {
		next = k->next;
		if (k->id)
			continue;
		gate_conn_fail(k->conn, k->again ? GATE_LOST : GATE_UNAVAILABLE);
		free_call(k);
	}
}

int64_t gate_h2_tick(struct gate_h2 *h, int64_t now)
{
	int64_t due;

	if (h->lost)
		sort_out(h);
	due = h->down_ns + GATE_RECONNECT_MS * NS_PER_MS;
	if (h->up)
		return h->more ? flush(h, now) : h2chan_tick(&h->ch, now);
	h->more = false;
	if (!h->list)
		return INT64_MAX;
	/* Those that come later wait as long: another stream may be made at any time. */
	if (h->last || now >= due) {
		give_up_waiting(h);
		h->down_ns = now;
		return INT64_MAX;
	}
	return due;
}

bool gate_h2_pending(const struct gate_h2 *h)
{
	return (h->more && h->up) || h->lost;
}

bool gate_h2_up(const struct gate_h2 *h)
{
	return h->up && !h->lost;
}

bool gate_h2_in_order(const struct gate_h2 *h)
{
	return h->in_order;
}

void gate_h2_last(struct gate_h2 *h)
{
	h->last = true;
	/* Seen to with the next tick. */
	h->more = true;
}

void gate_h2_free(struct gate_h2 *h)
{
	if (h->up)
		h2chan_done(&h->ch);
	free(h);
}
