#include "guest/gate_h2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/h2chan.h"

#define NV_MAX (BRIDGE_HEADERS_MAX + 8)

struct gate_call {
	struct gate_h2 *h;
	struct gate_call *next, **prev;
	struct gate_conn *conn; /* NULL: dropped */
	int32_t id;
	struct buf up;
	size_t up_off;
	bool up_end, deferred, sent, headed, ended, starved;
};

struct gate_h2 {
	struct gate *g;
	struct h2chan ch;
	struct gate_call *list;
	unsigned calls;
	bool lost, in_order, more;
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
	if (k->up_off == k->up.len) {
		buf_reset(&k->up);
		k->up_off = 0;
		if (k->up_end)
			*flags |= NGHTTP2_DATA_FLAG_EOF;
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

/* Names in lower case, as HTTP/2 wants them; the text lives in `names`. */
static size_t fill(nghttp2_nv nv[NV_MAX], struct buf *names, const struct http1 *h)
{
	size_t n = 0, total = 0;
	char *low;

	for (size_t i = 0; i < h->headers_len; i++)
		total += h->headers[i].name.n;
	low = buf_room(names, total + 1);
	if (!low)
		return 0;
	nv[n++] = h2_pair(":method", 7, h->method.p, h->method.n);
	nv[n++] = h2_pair(":scheme", 7, "http", 4);
	nv[n++] = h2_pair(":authority", 10, "bridge.internal", 15);
	nv[n++] = h2_pair(":path", 5, h->target.p, h->target.n);
	for (size_t i = 0; i < h->headers_len; i++) {
		const struct header *f = &h->headers[i];

		for (size_t k = 0; k < f->name.n; k++) {
			char c = f->name.p[k];

			low[k] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
		}
		if (!carried((struct view){low, f->name.n}))
			continue;
		nv[n++] = h2_pair(low, f->name.n, f->value.p, f->value.n);
		low += f->name.n;
	}
	return n;
}

static struct gate_call *start(struct gate *g, struct gate_conn *conn, const struct http1 *head,
			       enum gate_fail *ret_fail)
{
	struct gate_h2 *h = g->carrier_state;
	_cleanup_buf_ struct buf names = BUF_INIT(65536);
	nghttp2_data_provider body = {.read_callback = read_body};
	nghttp2_nv nv[NV_MAX];
	char length[24];
	struct gate_call *k;
	size_t n;

	*ret_fail = GATE_UNAVAILABLE;
	if (h->lost || h->calls >= nghttp2_session_get_remote_settings(
				       h->ch.s, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) +
				       GATE_WAITING_MAX)
		return NULL;
	n = fill(nv, &names, head);
	k = n ? calloc(1, sizeof(*k)) : NULL;
	if (!k)
		return NULL;
	if (head->content_length > 0) {
		(void)snprintf(length, sizeof(length), "%lld", (long long)head->content_length);
		nv[n++] = h2_pair("content-length", 14, length, strlen(length));
	}
	k->h = h;
	k->conn = conn;
	k->up = BUF_INIT(2 * GATE_UP_MAX);
	body.source.ptr = k;
	k->id =
	    nghttp2_submit_request(h->ch.s, NULL, nv, n, head->content_length ? &body : NULL, k);
	if (k->id < 0) {
		free(k);
		*ret_fail = GATE_MALFORMED;
		return NULL;
	}
	k->next = h->list;
	k->prev = &h->list;
	if (k->next)
		k->next->prev = &k->next;
	h->list = k;
	h->calls++;
	h->more = true;
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
	if (k->deferred) {
		k->deferred = false;
		(void)nghttp2_session_resume_data(k->h->ch.s, k->id);
	}
	k->h->more = true;
}

static void body(struct gate_call *k, const char *p, size_t n)
{
	if (k->up_off) {
		buf_drop(&k->up, k->up_off);
		k->up_off = 0;
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
	(void)nghttp2_session_consume_stream(k->h->ch.s, k->id, n);
	k->h->more = true;
}

static void drop(struct gate_call *k)
{
	k->conn = NULL;
	/* A call whose answer has come is only waiting for its stream to close. */
	if (!k->ended || !k->up_end)
		(void)nghttp2_submit_rst_stream(k->h->ch.s, NGHTTP2_FLAG_NONE, k->id,
						NGHTTP2_CANCEL);
	k->h->more = true;
}

static const struct gate_carrier carrier = {start, room, body, body_end, taken, drop};

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

static int on_sent(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	struct gate_call *k;

	(void)arg;
	if (f->hd.type != NGHTTP2_HEADERS)
		return 0;
	k = nghttp2_session_get_stream_user_data(s, f->hd.stream_id);
	if (k)
		k->sent = true;
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

static void free_call(struct gate_call *k)
{
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	k->h->calls--;
	buf_done(&k->up);
	free(k);
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
	struct gate_call *k = nghttp2_session_get_stream_user_data(s, id);
	struct gate_h2 *h = arg;

	if (!k)
		return 0;
	if (k->conn)
		gate_conn_fail(k->conn, reason(k, code));
	free_call(k);
	h->more = true;
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

int gate_h2_open(struct gate *g, int in, int out, struct gate_h2 **ret)
{
	struct gate_h2 *h = calloc(1, sizeof(*h));
	nghttp2_session *s = NULL;
	int r = h ? make_session(h, &s) : -ENOMEM;

	if (r == 0) {
		h->g = g;
		h->more = true;
		h->ch.lost = on_lost;
		h->ch.arg = h;
		r = h2chan_init(&h->ch, &g->loop, in, out, s);
		if (r < 0)
			h2chan_done(&h->ch);
	}
	if (r < 0) {
		free(h);
		return r;
	}
	g->carrier = &carrier;
	g->carrier_state = h;
	*ret = h;
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

int64_t gate_h2_tick(struct gate_h2 *h, int64_t now)
{
	if (h->lost)
		return INT64_MAX;
	return h->more ? flush(h, now) : h2chan_tick(&h->ch, now);
}

bool gate_h2_pending(const struct gate_h2 *h)
{
	return h->more && !h->lost;
}

bool gate_h2_lost(const struct gate_h2 *h)
{
	return h->lost;
}

bool gate_h2_in_order(const struct gate_h2 *h)
{
	return h->in_order;
}

void gate_h2_fail_all(struct gate_h2 *h)
{
	while (h->list) {
		struct gate_call *k = h->list;

		(void)nghttp2_session_set_stream_user_data(h->ch.s, k->id, NULL);
		if (k->conn)
			gate_conn_fail(k->conn, k->sent ? GATE_LOST : GATE_UNAVAILABLE);
		free_call(k);
	}
}

void gate_h2_close(struct gate_h2 *h)
{
	h2chan_done(&h->ch);
	free(h);
}
