#include "guest/gate_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/queue.h"

#define FLUSH_AT 65536
#define NAME_LEN (QUEUE_ID_LEN + 16)
#define SPOOFS_MAX 8	      /* answers that are none, for one request */
#define HELD_MAX (64 << 20)   /* bytes of answers in memory; others wait in their files */
#define ALIVE_MAX (256 << 10) /* bytes of the host's sign of life */
#define LOOK_MS 1000	      /* between two looks at it */

enum call_state {
	CALL_UPLOAD,	/* its file is being written */
	CALL_PUBLISHED, /* the host has not taken it, as far as is known */
	CALL_TAKEN,
	CALL_ANSWER, /* its answer is in memory and goes to the client */
};

struct gate_call {
	struct gate_queue *q;
	struct gate_call *next, **prev;
	struct gate_conn *conn; /* NULL: dropped */
	enum call_state state;
	char draft[NAME_LEN];	   /* name of the file that is being written */
	char id[QUEUE_ID_LEN + 1]; /* once published */
	int fd;
	struct buf out;
	struct queue_body_put b64;
	uint64_t sent; /* bytes of the body */
	bool broken;
	unsigned spoofs;
	int64_t alive_ns; /* when the host named it last, or it began to wait */
	struct buf answer;
	size_t answer_off, untaken, held;
};

struct gate_queue {
	struct gate *g;
	int requests, responses, root; /* owned */
	int notify;		       /* owned; -1: none */
	struct loop_watch watch;
	char *token; /* owned */
	struct gate_call *list;
	unsigned calls;
	uint64_t seq, drafts, random;
	uint64_t held;
	bool last, more, look;
	int64_t poll_ns, poll_gap_ns, look_ns;
	char *alive; /* owned: what the sign of life was */
	size_t alive_len;
};

/* Files. ----------------------------------------------------------------------------------- */

static void name_of(const char *id, char out[NAME_LEN])
{
	(void)snprintf(out, NAME_LEN, "%s" QUEUE_SUFFIX, id);
}

static void flush(struct gate_call *k)
{
	size_t at = 0;

	while (!k->broken && at < k->out.len) {
		ssize_t n = write(k->fd, k->out.data + at, k->out.len - at);

		if (n < 0 && errno != EINTR)
			k->broken = true;
		else if (n > 0)
			at += (size_t)n;
	}
	buf_reset(&k->out);
}

static void away(int dir, const char *name)
{
	if (unlinkat(dir, name, 0) < 0 && (errno == EISDIR || errno == EPERM))
		(void)unlinkat(dir, name, AT_REMOVEDIR);
}

/* True: it was still here, so the host has it not, and never will. */
static bool take_back(struct gate_call *k)
{
	char name[NAME_LEN];

	name_of(k->id, name);
	return k->state == CALL_PUBLISHED && unlinkat(k->q->requests, name, 0) == 0;
}

/* A plain file of bounded size, whole. 0; -ENOENT; else it is no answer. */
static int read_file(int dir, const char *name, size_t max, struct buf *out)
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

static void free_call(struct gate_call *k)
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

static void fail(struct gate_call *k, enum gate_fail why)
{
	if (k->conn)
		gate_conn_fail(k->conn, why);
	free_call(k);
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
		free_call(k);
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
		fail(k, GATE_BODY_SIZE);
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
	char name[NAME_LEN];
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		k->broken = true;
	/* Here, not at the start: numbers grow in the order of publishing, however long an upload takes. */
	queue_id_format(++q->seq, random, k->id);
	name_of(k->id, name);
	if (queue_end(&k->out, &k->b64, k->id) < 0)
		k->broken = true;
	flush(k);
	if (k->broken || renameat(q->requests, k->draft, q->requests, name) < 0) {
		fail(k, GATE_UNAVAILABLE);
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
	free_call(k);
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
	if (k->state == CALL_UPLOAD || k->state == CALL_ANSWER || take_back(k))
		free_call(k);
}

static const struct gate_carrier carrier = {start, room, body, body_end, taken, drop};

static void answer(struct gate_call *k, struct queue_envelope *e)
{
	if (!k->conn) {
		free_call(k);
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

/* Its file is there. False: not yet, or there is no room for it now. */
static bool look_for(struct gate_call *k)
{
	struct gate_queue *q = k->q;
	size_t max = (size_t)queue_envelope_max(BRIDGE_QUEUE_BODY_MAX);
	_cleanup_buf_ struct buf raw = BUF_INIT(max + 2);
	struct queue_envelope e = {0};
	const char *why = "";
	char name[NAME_LEN];
	int r;

	if (q->held > HELD_MAX)
		return false;
	name_of(k->id, name);
	r = read_file(q->responses, name, max, &raw);
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
	away(q->responses, name);
	if (r == 0) {
		buf_done(&raw);
		answer(k, &e);
	} else if (++k->spoofs > SPOOFS_MAX) {
		/* Somebody in here answers in the host's place. */
		fail(k, GATE_LOST);
	}
	queue_envelope_done(&e);
	return r == 0;
}

static struct gate_call *find(const struct gate_queue *q, const char *id)
{
	for (struct gate_call *k = q->list; k; k = k->next)
		if ((k->state == CALL_PUBLISHED || k->state == CALL_TAKEN) &&
		    strcmp(k->id, id) == 0)
			return k;
	return NULL;
}

static void on_notify(struct loop_watch *w, uint32_t events)
{
	struct gate_queue *q =
	    (struct gate_queue *)(void *)((char *)w - offsetof(struct gate_queue, watch));
	_Alignas(struct inotify_event) char buf[8192];
	ssize_t n = read(q->notify, buf, sizeof(buf));

	(void)events;
	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *ev = (const void *)(buf + at);
		char id[QUEUE_ID_LEN + 1];
		struct gate_call *k;
		uint64_t seq;

		at += (ssize_t)(sizeof(*ev) + ev->len);
		if (ev->mask & IN_Q_OVERFLOW)
			q->look = true;
		if (!ev->len || !queue_name_parse(ev->name, id, &seq))
			continue;
		k = find(q, id);
		if (k)
			(void)look_for(k);
		else
			away(q->responses, ev->name);
	}
}

/* Signs of life. --------------------------------------------------------------------------- */

/* What the host says now, if it is another word than the last. */
static bool host_spoke(struct gate_queue *q)
{
	_cleanup_buf_ struct buf b = BUF_INIT(ALIVE_MAX);
	bool other;

	if (read_file(q->root, "alive", ALIVE_MAX - 1, &b) < 0 || b.len == 0)
		return false;
	other = b.len != q->alive_len || memcmp(b.data, q->alive, b.len) != 0;
	if (!other)
		return false;
	free(q->alive);
	q->alive_len = b.len;
	q->alive = buf_take(&b);
	return q->alive != NULL;
}

static bool named(const struct gate_queue *q, const char *id)
{
	for (size_t at = 0; at + QUEUE_ID_LEN <= q->alive_len; at++) {
		const char *lf = memchr(q->alive + at, '\n', q->alive_len - at);

		if (memcmp(q->alive + at, id, QUEUE_ID_LEN) == 0)
			return true;
		if (!lf)
			return false;
		at = (size_t)(lf - q->alive);
	}
	return false;
}

static void watch_calls(struct gate_queue *q, int64_t now)
{
	bool spoke = host_spoke(q);

	for (struct gate_call *k = q->list, *next; k; k = next) {
		char name[NAME_LEN];

		next = k->next;
		if (k->state != CALL_PUBLISHED && k->state != CALL_TAKEN)
			continue;
		name_of(k->id, name);
		if (k->state == CALL_PUBLISHED &&
		    faccessat(q->requests, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
			k->state = CALL_TAKEN;
			k->alive_ns = now;
		}
		if (spoke && named(q, k->id))
			k->alive_ns = now;
		if (!q->last && now - k->alive_ns < QUEUE_STALL_MS * NS_PER_MS)
			continue;
		/* Its answer may have come by this very moment. */
		if (look_for(k))
			continue;
		if (k->state == CALL_PUBLISHED && take_back(k))
			fail(k, GATE_UNAVAILABLE);
		else
			fail(k, GATE_LOST);
	}
}

static void look_at_all(struct gate_queue *q)
{
	for (struct gate_call *k = q->list, *next; k; k = next) {
		next = k->next;
		if (k->state == CALL_PUBLISHED || k->state == CALL_TAKEN)
			(void)look_for(k);
	}
}

/* Life. ------------------------------------------------------------------------------------ */

static int open_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static void watch_answers(struct gate_queue *q)
{
	struct statfs fs;
	char self[64];

	if (fstatfs(q->responses, &fs) < 0 || !queue_fs_notifies((uint64_t)fs.f_type))
		return;
	q->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", q->responses);
	if (q->notify >= 0 && (inotify_add_watch(q->notify, self, IN_MOVED_TO | IN_ONLYDIR) < 0 ||
			       loop_add(&q->g->loop, &q->watch, q->notify, EPOLLIN, on_notify) < 0))
		cleanup_fd(&q->notify);
}

int gate_queue_open(struct gate *g, const struct gate_queue_config *c, struct gate_queue **ret)
{
	struct gate_queue *q = calloc(1, sizeof(*q));
	int r = 0;

	if (!q)
		return -ENOMEM;
	q->g = g;
	q->notify = q->watch.fd = q->requests = q->responses = -1;
	q->look_ns = INT64_MAX;
	q->root = open_dir(AT_FDCWD, c->dir);
	q->requests = q->root < 0 ? q->root : open_dir(q->root, "requests");
	q->responses = q->requests < 0 ? q->requests : open_dir(q->root, "responses");
	q->token = strdup(c->token);
	if (q->responses < 0)
		r = q->responses;
	else if (!q->token || getrandom(&q->random, sizeof(q->random), 0) != sizeof(q->random))
		r = -ENOMEM;
	if (r < 0) {
		gate_queue_free(q);
		return r;
	}
	/* Numbers of a gateway before this one are lower: the host never takes one of them again. */
	q->seq = (uint64_t)clock_mono_ns();
	watch_answers(q);
	q->poll_ns = q->notify < 0 ? 0 : INT64_MAX;
	g->carrier = &carrier;
	g->carrier_state = q;
	*ret = q;
	return 0;
}

static bool waits(const struct gate_queue *q)
{
	for (const struct gate_call *k = q->list; k; k = k->next)
		if (k->state == CALL_PUBLISHED || k->state == CALL_TAKEN)
			return true;
	return false;
}

int64_t gate_queue_tick(struct gate_queue *q, int64_t now)
{
	const int64_t least = QUEUE_POLL_MIN_MS * NS_PER_MS, most = QUEUE_POLL_MAX_MS * NS_PER_MS;

	q->more = false;
	if (!waits(q)) {
		q->look_ns = INT64_MAX;
		return INT64_MAX;
	}
	if (q->look_ns == INT64_MAX)
		q->look_ns = now + LOOK_MS * NS_PER_MS;
	if (q->look || now >= q->poll_ns) {
		q->look = false;
		look_at_all(q);
		if (q->notify < 0) {
			q->poll_gap_ns = q->poll_gap_ns * 5 / 4;
			q->poll_gap_ns = q->poll_gap_ns < least	 ? least
					 : q->poll_gap_ns > most ? most
								 : q->poll_gap_ns;
			q->poll_ns = now + q->poll_gap_ns;
		}
	}
	if (q->last || now >= q->look_ns) {
		watch_calls(q, now);
		/* What found no room in memory, or was never told of. */
		look_at_all(q);
		q->look_ns = now + LOOK_MS * NS_PER_MS;
	}
	return q->poll_ns < q->look_ns ? q->poll_ns : q->look_ns;
}

bool gate_queue_pending(const struct gate_queue *q)
{
	return q->more;
}

void gate_queue_last(struct gate_queue *q)
{
	q->last = q->more = true;
}

void gate_queue_free(struct gate_queue *q)
{
	while (q->list)
		free_call(q->list);
	if (q->watch.fd >= 0)
		loop_del(&q->g->loop, &q->watch);
	cleanup_fd(&q->notify);
	cleanup_fd(&q->requests);
	cleanup_fd(&q->responses);
	cleanup_fd(&q->root);
	free(q->token);
	free(q->alive);
	free(q);
}
