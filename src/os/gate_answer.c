#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/gate_internal.h"

#define OUT_HIGH 262144 /* bytes waiting for a slow client; then the answer waits in the channel */
#define KEEP_CAP 65536	/* memory that an idle connection keeps of an answer */
#define OUTCOME "x-paperclip-bridge-outcome"

void gate_conn_head(struct gate_conn *c, int status)
{
	c->status = status;
	c->has_head = true;
	gate_touch(c);
}

void gate_conn_header(struct gate_conn *c, const char *name, size_t name_len, const char *value,
		      size_t value_len)
{
	struct view n = {name, name_len}, v = {value, value_len};

	/* Whatever the other end is, it does not end our lines. */
	if (!header_name_ok(n) || !header_value_ok(v) || v.n > UINT16_MAX ||
	    c->fields == GATE_FIELDS_MAX)
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
	c->g->queued += n;
	gate_touch(c);
	if (!c->broken && buf_put(&c->data, p, n) < 0)
		c->broken = true;
}

size_t gate_conn_queued(const struct gate_conn *c)
{
	return c->data.len + c->out.len - c->out_off;
}

void gate_conn_end(struct gate_conn *c)
{
	c->call = NULL;
	c->untaken = 0;
	c->answered = true;
	gate_touch(c);
}

void gate_own_answer(struct gate_conn *c, int status, const char *code, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	buf_reset(&c->head);
	buf_reset(&c->data);
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
	/* Of one that has only come as far as here, nobody has heard yet. */
	if (c->head_out) {
		c->broken = c->answered = true;
		gate_touch(c);
		return;
	}
	switch (why) {
	case GATE_UNAVAILABLE:
		gate_own_answer(c, 503, "bridge_unavailable",
				"the bridge cannot take this request now; it was not sent");
		return;
	case GATE_REFUSED:
		gate_own_answer(c, 503, "bridge_busy",
				"too many requests at once; it was not sent on");
		return;
	case GATE_MALFORMED:
		gate_own_answer(c, 400, "request.malformed", "this request cannot be carried");
		return;
	case GATE_TOO_LARGE:
		gate_own_answer(c, 431, "headers.size",
				"the headers of this request are too large");
		return;
	case GATE_BODY_SIZE:
		gate_own_answer(
		    c, 413, "body.size",
		    "the body is larger than the file queue carries; sending it again will not help");
		return;
	default:
		if (c->safe)
			gate_own_answer(c, 502, "bridge_lost",
					"the answer was lost; it may be asked for again");
		else
			gate_own_answer(c, 409, "bridge_lost",
					"it is not known whether this request had its effect");
	}
}

/* From what the carrier gave to bytes for the client. A short answer that is whole goes out with its length. */
static void put_head(struct gate_conn *c)
{
	struct header h[GATE_FIELDS_MAX];
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
			   c->broken || c->g->last || (c->answered && !c->body_done), &c->w1) < 0)
		c->broken = c->answered = true;
}

static void spare(struct buf *b)
{
	if (b->cap > KEEP_CAP)
		buf_done(b);
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
	spare(&c->data);
	/* Once, however often a slow client makes us come back. */
	if (c->answered && !c->ended && !c->broken && http1_put_end(&c->out, &c->w1) < 0)
		c->broken = true;
	c->ended = c->answered;
	if (c->out.err)
		c->broken = true;
	c->answered = c->answered || c->broken;
}

/* False: the connection is gone. */
static bool write_out(struct gate_conn *c)
{
	if (c->head_out && c->out_off < c->out.len)
		gate_word(c, GATE_WORD_CUT);
	while (c->out_off < c->out.len) {
		ssize_t n =
		    send(c->fd, c->out.data + c->out_off, c->out.len - c->out_off, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			/* A client that is always a little behind must not cost the whole answer's memory. */
			if (c->out_off > KEEP_CAP) {
				buf_drop(&c->out, c->out_off);
				c->out_off = 0;
			}
			return true;
		}
		if (n < 0) {
			gate_free_conn(c);
			return false;
		}
		c->out_off += (size_t)n;
		c->moved_ns = clock_mono_ns();
	}
	buf_reset(&c->out);
	c->out_off = 0;
	return true;
}

/* After the answer: the next request (1), or an end that does not cost the client its answer (0), or at once (-1). */
static int after_answer(struct gate_conn *c)
{
	/* Cut short where it cannot be told otherwise that it is not whole. */
	if (c->broken || (c->body_done && !c->refused && c->w1.close)) {
		gate_free_conn(c);
		return -1;
	}
	spare(&c->data);
	spare(&c->out);
	if (c->body_done && !c->refused)
		return 1;
	gate_word(c, GATE_WORD_NONE);
	c->state = CONN_LINGER;
	c->moved_ns = clock_mono_ns();
	(void)shutdown(c->fd, SHUT_WR);
	return 0;
}

int gate_flush(struct gate_conn *c)
{
	size_t before;

	/* What did not fit before the write may fit behind it: nobody else would come back for it. */
	do {
		frame_answer(c);
		if (!write_out(c))
			return -1;
	} while (c->data.len && c->out.len == c->out_off && !c->broken);
	before = c->untaken;
	if (c->call && before && c->out.len - c->out_off <= OUT_HIGH && c->data.len == 0) {
		c->untaken = 0;
		if (c->g->carrier->taken)
			c->g->carrier->taken(c->call, before);
	}
	if (c->answered && c->head_out && c->data.len == 0 && c->out.len == c->out_off &&
	    c->state != CONN_LINGER)
		return after_answer(c);
	return 0;
}
