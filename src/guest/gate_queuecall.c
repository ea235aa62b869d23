#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf_write.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/gate_queue_internal.h"

#define FLUSH_AT 65536
#define SPOOFS_MAX 8	    /* answers that are none, for one request */
#define HELD_MAX (64 << 20) /* bytes of answers in memory; others wait in their files */

/* Files. ----------------------------------------------------------------------------------- */

void gate_queuecall_name(const char *id, char out[GATE_QUEUE_NAME])
{
	(void)snprintf(out, GATE_QUEUE_NAME, "%s" QUEUE_SUFFIX, id);
}

static void flush(struct gate_call *k)
{
	/* Not into a file of which a piece is missing already. */
	if (k->broken)
		buf_reset(&k->out);
	else if (buf_write(&k->out, k->fd) < 0)
		k->broken = true;
}

void gate_queuecall_away(int dir, const char *name)
{
	if (unlinkat(dir, name, 0) < 0 && (errno == EISDIR || errno == EPERM))
		(void)unlinkat(dir, name, AT_REMOVEDIR);
}

bool gate_queuecall_take_back(struct gate_call *k)
{
	char name[GATE_QUEUE_NAME];

	gate_queuecall_name(k->id, name);
	return k->state == CALL_PUBLISHED && unlinkat(k->q->requests, name, 0) == 0;
}

int gate_queuecall_read(int dir, const char *name, size_t max, struct buf *out)
{
	_cleanup_fd_ int fd =
	    openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	size_t at = 0;
	char *to;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : -EBADMSG;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_size < 0 ||
	    (uint64_t)st.st_size > max)
		return -EBADMSG;
	to = buf_room(out, (size_t)st.st_size + 1);
	if (!to)
		return -ENOMEM;
	while (at < (size_t)st.st_size) {
		ssize_t n = read(fd, to + at, (size_t)st.st_size - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EBADMSG;
		at += (size_t)n;
	}
	buf_add(out, at);
	return 0;
}

void gate_queuecall_free(struct gate_call *k)
{
	struct gate_queue *q = k->q;

	if (k->fd >= 0) {
		cleanup_fd(&k->fd);
		(void)unlinkat(q->requests, k->draft, 0);
	}
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	q->calls--;
	q->held -= k->held;
	buf_done(&k->out);
	buf_done(&k->answer);
	free(k);
}

void gate_queuecall_fail(struct gate_call *k, enum gate_fail why)
{
	if (k->conn)
		gate_conn_fail(k->conn, why);
	gate_queuecall_free(k);
}

/* Requests. -------------------------------------------------------------------------------- */

/* Of the connection from client to gateway; what it says is not the request's. */
static bool carried(const struct header *h)
{
	static const char *const left_out[] = {"connection",
					       "keep-alive",
					       "proxy-connection",
					       "upgrade",
					       "transfer-encoding",
					       "expect",
					       "host",
					       "te",
					       "trailer",
					       "http2-settings",
					       "content-length"};

	for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
		if (header_name_is(h->name, left_out[i]))
			return false;
	return true;
}

static int put_head(struct gate_call *k, const struct http1 *h)
{
	struct header headers[BRIDGE_HEADERS_MAX + 1];
	_cleanup_buf_ struct buf low = BUF_INIT(65536);
	struct queue_message m = {.auth = {k->q->token, strlen(k->q->token)},
				  .method = h->method,
				  .target = h->target,
				  .headers = headers};
	size_t total = 0;
	char *at;

	for (size_t i = 0; i < h->headers_len; i++)
		total += h->headers[i].name.n;
	at = buf_room(&low, total + 1);
	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < h->headers_len; i++) {
		struct header f = h->headers[i];

		if (!carried(&f))
			continue;
		if (m.headers_len == BRIDGE_HEADERS_MAX)
			return -E2BIG;
		for (size_t c = 0; c < f.name.n; c++)
			at[c] = f.name.p[c] >= 'A' && f.name.p[c] <= 'Z' ? (char)(f.name.p[c] + 32)
									 : f.name.p[c];
		f.name.p = at;
		at += f.name.n;
		headers[m.headers_len++] = f;
	}
	return queue_request_begin(&k->out, &m);
}

static struct gate_call *start(struct gate *g, struct gate_conn *conn, const struct http1 *head,
			       enum gate_fail *ret_fail)
{
	struct gate_queue *q = g->carrier_state;
	struct gate_call *k;
	int r;

	*ret_fail = GATE_UNAVAILABLE;
	if (q->last)
		return NULL;
	if (q->calls >= BRIDGE_STREAMS_MAX + GATE_WAITING_MAX) {
		*ret_fail = GATE_REFUSED;
		return NULL;
	}
	if (head->content_length > BRIDGE_QUEUE_BODY_MAX) {
		*ret_fail = GATE_BODY_SIZE;
		return NULL;
	}
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->q = q;
	k->conn = conn;
	k->out = BUF_INIT(1 << 20);
	k->answer = BUF_INIT(BRIDGE_QUEUE_BODY_MAX + 1);
	k->next = q->list;
	k->prev = &q->list;
	if (k->next)
		k->next->prev = &k->next;
	q->list = k;
	q->calls++;
	(void)snprintf(k->draft, sizeof(k->draft), ".%016llx-%llx.tmp",
		       (unsigned long long)q->random, (unsigned long long)++q->drafts);
	k->fd = openat(q->requests, k->draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		       0644);
	/* The host may be another user: its group owns the directory, but our umask would have a say. */
	if (k->fd >= 0)
		(void)fchmod(k->fd, 0644);
	r = k->fd < 0 ? -errno : put_head(k, head);
	if (r < 0) {
		*ret_fail = r == -EILSEQ  ? GATE_MALFORMED
			    : r == -E2BIG ? GATE_TOO_LARGE
					  : GATE_UNAVAILABLE;
		gate_queuecall_free(k);
		return NULL;
	}
	return k;
}

static size_t room(struct gate_call *k)
{
	(void)k;
	return GATE_UP_MAX;
}

static void body(struct gate_call *k, const char *p, size_t n)
{
	k->sent += n;
	if (k->sent > BRIDGE_QUEUE_BODY_MAX) {
		gate_queuecall_fail(k, GATE_BODY_SIZE);
		return;
	}
	if (queue_body_put(&k->out, &k->b64, (struct view){p, n}) < 0)
		k->broken = true;
	if (k->out.len >= FLUSH_AT)
		flush(k);
}

static void body_end(struct gate_call *k)
{
	struct gate_queue *q = k->q;
	char name[GATE_QUEUE_NAME];
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		k->broken = true;
	/* Here, not at the start: numbers grow in the order of publishing, however long an upload takes. */
	queue_id_format(++q->seq, random, k->id);
	gate_queuecall_name(k->id, name);
	if (queue_end(&k->out, &k->b64, k->id) < 0)
		k->broken = true;
	flush(k);
	if (k->broken || renameat(q->requests, k->draft, q->requests, name) < 0) {
		gate_queuecall_fail(k, GATE_UNAVAILABLE);
		return;
	}
	cleanup_fd(&k->fd);
	k->state = CALL_PUBLISHED;
	k->alive_ns = clock_mono_ns();
	q->poll_gap_ns = 0;
	q->poll_ns = q->poll_ns == INT64_MAX ? INT64_MAX : 0;
	q->more = true;
}

/* Answers. --------------------------------------------------------------------------------- */

/* As much as the client takes; the rest when it has taken that. */
static void feed(struct gate_call *k)
{
	while (k->conn && k->answer_off < k->answer.len && k->untaken < GATE_WINDOW) {
		size_t n = k->answer.len - k->answer_off, space = GATE_WINDOW - k->untaken;

		n = n < space ? n : space;
		gate_conn_data(k->conn, k->answer.data + k->answer_off, n);
		k->answer_off += n;
		k->untaken += n;
	}
	if (k->answer_off < k->answer.len)
		return;
	if (k->conn)
		gate_conn_end(k->conn);
	gate_queuecall_free(k);
}

static void taken(struct gate_call *k, size_t n)
{
	k->untaken -= n < k->untaken ? n : k->untaken;
	if (k->state == CALL_ANSWER)
		feed(k);
}

static void drop(struct gate_call *k)
{
	k->conn = NULL;
	/* What the host has is the host's; its answer is removed when it comes. */
	if (k->state == CALL_UPLOAD || k->state == CALL_ANSWER || gate_queuecall_take_back(k))
		gate_queuecall_free(k);
}

const struct gate_carrier gate_queuecall_carrier = {start, room, body, body_end, taken, drop, NULL};

static void answer(struct gate_call *k, struct queue_envelope *e)
{
	if (!k->conn) {
		gate_queuecall_free(k);
		return;
	}
	k->state = CALL_ANSWER;
	gate_conn_head(k->conn, e->status);
	for (size_t i = 0; i < e->headers_len; i++)
		gate_conn_header(k->conn, e->headers[i].name.p, e->headers[i].name.n,
				 e->headers[i].value.p, e->headers[i].value.n);
	k->held = k->answer.len;
	k->q->held += k->held;
	feed(k);
}

bool gate_queuecall_look(struct gate_call *k)
{
	struct gate_queue *q = k->q;
	size_t max = (size_t)queue_envelope_max(BRIDGE_QUEUE_BODY_MAX);
	_cleanup_buf_ struct buf raw = BUF_INIT(max + 2);
	struct queue_envelope e = {0};
	const char *why = "";
	char name[GATE_QUEUE_NAME];
	int r;

	if (q->held > HELD_MAX)
		return false;
	gate_queuecall_name(k->id, name);
	r = gate_queuecall_read(q->responses, name, max, &raw);
	if (r == -ENOENT || r == -ENOMEM)
		return false;
	if (r == 0)
		r = queue_response_parse(raw.data ? raw.data : "", raw.len, k->id,
					 (struct view){q->token, strlen(q->token)},
					 BRIDGE_QUEUE_BODY_MAX, &e, &why);
	/* A status that is no end, however well it is written. */
	if (r == 0 && e.status < 200)
		r = -EPROTO;
	if (r == 0)
		r = queue_body(&e, &k->answer);
	gate_queuecall_away(q->responses, name);
	if (r == 0) {
		buf_done(&raw);
		answer(k, &e);
	} else if (++k->spoofs > SPOOFS_MAX) {
		/* Somebody in here answers in the host's place. */
		gate_queuecall_fail(k, GATE_LOST);
	}
	queue_envelope_done(&e);
	return r == 0;
}
