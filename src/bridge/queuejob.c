/*
 * Policy of door 2 here: a file becomes an exchange, and an exchange is the only way from a file to the upstream. A number runs
 * once, in this process and in those before it. Not done here: what may be opened (queuedir.c), when (queueserver.c), any
 * decision about a request (guard.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf_write.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "bridge/queueserver_internal.h"

#define FLUSH_AT 65536 /* bytes of an answer gathered before they are written */
#define RETRY_MS 500   /* an answer that could not be published */
#define RETRIES 20
#define UNPUBLISHED_MAX 64 /* of those at once; a further one is given up */

struct job {
	struct queueserver *s;
	struct job *next, **prev;
	char id[QUEUE_ID_LEN + 1];
	struct queue_envelope q;
	struct exchange *x;
	uint64_t held; /* bytes that count against s->held */
	bool refused;  /* it counts in s->refusing */
	int fd;	       /* of the answer; -1: none yet */
	struct buf out;
	struct queue_body_put b64;
	bool safe, head, broken, over, waits; /* waits: counts in s->unpublished */
	unsigned tries;
	int64_t retry_ns;
};

/* Answers. --------------------------------------------------------------------------------- */

static void flush(struct job *j)
{
	/* Not into a file of which a piece is missing already. */
	if (j->broken)
		buf_reset(&j->out);
	else if (buf_write(&j->out, j->fd) < 0)
		j->broken = true;
}

static void forget_answer(struct job *j)
{
	if (j->fd >= 0)
		queuedir_drop(&j->s->d, j->id);
	cleanup_fd(&j->fd);
	buf_reset(&j->out);
	j->out.err = 0;
	j->b64.n = 0;
	j->head = j->broken = false;
}

static void answer_head(void *arg, int status, const struct header *h, size_t n)
{
	struct job *j = arg;
	/* Back under what the request showed: who does not know the token learns nothing by asking. */
	const struct queue_message m = {
	    .auth = j->q.auth, .status = status, .headers = h, .headers_len = n};

	j->head = true;
	j->fd = queuedir_answer(&j->s->d, j->id);
	if (j->fd < 0 || queue_response_begin(&j->out, &m) < 0)
		j->broken = true;
}

static bool answer_room(void *arg, size_t n)
{
	(void)arg;
	(void)n;
	return true;
}

static bool is_head(const struct job *j)
{
	return j->q.method.n == 4 && memcmp(j->q.method.p, "HEAD", 4) == 0;
}

static void answer_data(void *arg, const char *p, size_t n)
{
	struct job *j = arg;

	if (j->broken || is_head(j))
		return;
	if (queue_body_put(&j->out, &j->b64, (struct view){p, n}) < 0)
		j->broken = true;
	if (j->out.len >= FLUSH_AT)
		flush(j);
}

static void answer_restart(void *arg)
{
	forget_answer(arg);
}

/* True: somebody can read it now. */
static bool publish(struct job *j)
{
	if (queue_end(&j->out, &j->b64, j->id) < 0)
		j->broken = true;
	flush(j);
	cleanup_fd(&j->fd);
	if (j->broken || queuedir_publish(&j->s->d, j->id) < 0)
		return false;
	queuedir_release(&j->s->d, j->id);
	return true;
}

/* Nobody can be told: the gateway is left to its own limit. */
static void give_up(struct job *j)
{
	forget_answer(j);
	queuedir_release(&j->s->d, j->id);
	j->s->b->counts->unanswered++;
	j->over = true;
}

static void answer_end(void *arg, bool whole)
{
	struct job *j = arg;

	(void)whole; /* what breaks off is begun anew, see answer_restart */
	j->over = publish(j);
	if (j->over)
		return;
	if (!j->waits && j->s->unpublished >= UNPUBLISHED_MAX) {
		give_up(j);
		return;
	}
	j->s->unpublished += !j->waits;
	j->waits = true;
	j->retry_ns = clock_mono_ns() + RETRY_MS * NS_PER_MS;
}

static const struct exchange_ops answers = {.head = answer_head,
					    .room = answer_room,
					    .data = answer_data,
					    .restart = answer_restart,
					    .end = answer_end};

static void say(struct job *j, const struct guard_reply *r)
{
	forget_answer(j);
	answer_head(j, r->status, r->headers, r->headers_len);
	answer_data(j, r->body, r->body_len);
	answer_end(j, true);
}

/* A full disk, a directory in the way, or one that may not be written: a short answer is tried instead. */
static void retry(struct job *j)
{
	struct guard_verdict v = {.safe = j->safe};
	struct guard_reply r;

	if (++j->tries > RETRIES) {
		give_up(j);
		return;
	}
	guard_fault(&v, GUARD_RESTARTED, true, &r);
	say(j, &r);
}

/* Requests. -------------------------------------------------------------------------------- */

static struct job *new_job(struct queueserver *s, const char *id, enum job_kind kind)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->s = s;
	(void)snprintf(j->id, sizeof(j->id), "%s", id);
	j->fd = -1;
	j->out = BUF_INIT(1 << 20);
	j->next = s->jobs;
	j->prev = &s->jobs;
	if (j->next)
		j->next->prev = &j->next;
	s->jobs = j;
	j->refused = kind == JOB_TOO_MANY;
	if (j->refused)
		s->refusing++;
	else
		s->under_way++;
	return j;
}

static void free_job(struct job *j)
{
	if (j->x)
		exchange_free(j->x);
	forget_answer(j);
	*j->prev = j->next;
	if (j->next)
		j->next->prev = j->prev;
	if (j->refused)
		j->s->refusing--;
	else
		j->s->under_way--;
	j->s->unpublished -= j->waits;
	j->s->held -= j->held;
	queue_envelope_done(&j->q);
	buf_done(&j->out);
	free(j);
}

/* What could not be read has no token that an answer could go back under. */
static void malformed(struct job *j, int status, const char *why)
{
	struct guard_reply r = {.status = status, .rule = "queue.envelope"};

	queue_envelope_done(&j->q);
	j->q = (struct queue_envelope){0};
	r.headers[r.headers_len++] =
	    (struct header){{"content-type", 12}, {"application/json", 16}};
	r.headers[r.headers_len++] =
	    (struct header){{GUARD_MARKER, sizeof(GUARD_MARKER) - 1}, {r.rule, strlen(r.rule)}};
	r.body_len = (size_t)snprintf(r.body, sizeof(r.body), "{\"error\":\"%s\",\"code\":\"%s\"}",
				      why, r.rule);
	exchange_refused(j->s->b, status, r.rule);
	say(j, &r);
}

/* Let through by the guard; now its number. Taken before a byte is sent on. */
static bool may_run(struct job *j, enum job_kind kind)
{
	uint64_t seq;
	char name[QUEUE_ID_LEN + 8], id[QUEUE_ID_LEN + 1];

	if (kind == JOB_TOO_MANY) {
		exchange_fail(j->x, GUARD_OVERLOAD);
		return false;
	}
	(void)snprintf(name, sizeof(name), "%s" QUEUE_SUFFIX, j->id);
	(void)queue_name_parse(name, id, &seq);
	if (kind == JOB_CLAIMED) {
		(void)queue_window_take(&j->s->shared->window, seq);
		if (exchange_safe(j->x))
			return true;
		exchange_fail(j->x, GUARD_RESTARTED);
		return false;
	}
	if (queue_window_take(&j->s->shared->window, seq) < 0) {
		exchange_fail(j->x, GUARD_REPLAYED);
		return false;
	}
	return true;
}

static void run(struct job *j, struct buf *raw, enum job_kind kind)
{
	struct guard_request req = {.token_in = GUARD_TOKEN_BOTH,
				    .token = j->q.auth,
				    .method = j->q.method,
				    .target = j->q.target,
				    .headers = j->q.headers,
				    .headers_len = j->q.headers_len,
				    .body_len = (int64_t)j->q.body_len};
	struct buf body = BUF_INIT(BRIDGE_QUEUE_BODY_MAX + 1);

	j->x = exchange_begin(j->s->b, &req, &answers, j);
	if (!j->x) {
		struct guard_reply r;

		exchange_refused(j->s->b, 503, "bridge.memory");
		guard_fault(NULL, GUARD_MEMORY, false, &r);
		say(j, &r);
		return;
	}
	j->safe = exchange_safe(j->x);
	if (!exchange_wants_body(j->x) || !may_run(j, kind))
		return;
	if (queue_body(&j->q, &body) < 0) {
		buf_done(&body);
		exchange_fail(j->x, GUARD_MEMORY);
		return;
	}
	buf_done(raw);
	exchange_body_give(j->x, &body);
	exchange_body_end(j->x);
}

/* Claimed by a process before this one: it does not go back to requests/, for it may have run. */
static int no_memory(struct queueserver *s, const char *id, enum job_kind kind)
{
	if (kind == JOB_CLAIMED) {
		exchange_refused(s->b, 0, "bridge.memory");
		s->b->counts->unanswered++;
		queuedir_release(&s->d, id);
	}
	return -ENOMEM;
}

int queuejob_take(struct queueserver *s, const char *id, enum job_kind kind, uint64_t *ret_bytes)
{
	size_t max = (size_t)queue_envelope_max(BRIDGE_QUEUE_BODY_MAX);
	_cleanup_buf_ struct buf raw = BUF_INIT(max + 2);
	/* For its texts, which are read when it is claimed: then there must be room. */
	_cleanup_free_ char *room = NULL;
	const char *why = "";
	struct job *j;
	int r;

	*ret_bytes = 0;

	/* Answered already, by a process that did not live to clear its claim away. */
	if (kind == JOB_CLAIMED && queuedir_answered(&s->d, id)) {
		queuedir_release(&s->d, id);
		return 0;
	}
	j = new_job(s, id, kind);
	room = j ? malloc(QUEUE_TEXTS_MAX + 1) : NULL;
	r = room ? queuedir_take(&s->d, id, kind == JOB_CLAIMED, max, &raw) : -ENOMEM;
	if (r == -EBADMSG || r == -EEXIST)
		exchange_refused(s->b, 0, r == -EEXIST ? "queue.replay" : "queue.file");
	if (r == -EBADMSG || r == -EEXIST || r == -ENOENT || r == -ENOMEM) {
		if (j)
			free_job(j);
		return r == -ENOMEM ? no_memory(s, id, kind) : 0;
	}
	*ret_bytes = raw.len;
	free(room);
	room = NULL;
	if (r == 0)
		r = queue_request_parse(raw.data ? raw.data : "", raw.len, id,
					BRIDGE_QUEUE_BODY_MAX, &j->q, &why);
	else
		why = r == -E2BIG    ? "the envelope is too long"
		      : r == -EAGAIN ? "the file changed while it was read"
				     : "it cannot be read";
	if (r < 0) {
		malformed(j, r == -E2BIG ? 413 : 400, why);
		return 0;
	}
	/* Of the refused, their number is bounded and none is large. */
	j->held = j->refused ? 0 : raw.len;
	s->held += j->held;
	run(j, &raw, kind);
	return 0;
}

int64_t queuejob_tick(struct queueserver *s, int64_t now)
{
	int64_t next = INT64_MAX;

	for (struct job *j = s->jobs, *following; j; j = following) {
		following = j->next;
		if (!j->over && j->retry_ns && now >= j->retry_ns)
			retry(j);
		if (j->over)
			free_job(j);
		else if (j->retry_ns && j->retry_ns < next)
			next = j->retry_ns;
	}
	return next;
}

void queuejob_names(const struct queueserver *s, struct buf *out)
{
	for (const struct job *j = s->jobs; j; j = j->next)
		(void)buf_putf(out, "%s\n", j->id);
}

void queuejob_end_all(struct queueserver *s)
{
	for (struct job *j = s->jobs; j; j = j->next)
		if (j->x)
			exchange_fail(j->x, GUARD_STOPPED);
	while (s->jobs)
		free_job(s->jobs);
}
