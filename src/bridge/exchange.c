/*
 * Policy of door 2 here: nothing goes upstream that guard_judge has not allowed, nothing comes back that
 * guard_response has not filtered, and what is sent is the verdict's method, target and headers, never the request's
 * own bytes. Not done here: judging (guard.c), carrying (h2server.c, queueserver.c).
 */
#include "bridge/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define KEPT_MAX 16384 /* bytes of body */
#define KEPT_MS 50     /* of an answer that may be asked for again */

struct exchange {
	struct bridge *b;
	const struct exchange_ops *ops;
	void *arg;
	struct guard_request req; /* views of the transport's */
	struct buf body;
	struct buf kept;   /* of the answer: values of its headers, then body */
	size_t kept_heads; /* bytes of it that are values */
	bool keeping;
	int64_t headed_ns; /* since then */
	uint64_t in, out;
	struct upstream_call *call;
	bool collecting, headed, ended, sent, forwarded;
	struct exchange *held_next, **held_prev; /* held back until start_ns */
	int64_t start_ns;
	int status;
	unsigned flight;
	enum guard_cause why; /* why we gave the answer up; GUARD_CAUSE_COUNT: we did not */
	const char *rule;     /* of the audit line */
	int64_t began_real_ns, began_ns, moved_ns;
	struct guard_response answer; /* its values lie in kept */
	struct guard_verdict v;	      /* last: it is large, and guard_judge fills what counts */
};

static struct exchange_audit decision(const struct exchange *x)
{
	return (struct exchange_audit){
	    .transport = x->b->transport,
	    .route = x->v.route_id,
	    .rule = x->rule,
	    .method = x->v.method_name, /* a word of the table, or NULL */
	    .target = x->req.target,
	    .status = x->status,
	    .bytes_in = x->in,
	    .bytes_out = x->out,
	    .began_ns = x->began_real_ns,
	    .took_ns = clock_mono_ns() - x->began_ns,
	    .forwarded = x->forwarded,
	    .flight = x->flight,
	};
}

static void audit(struct exchange *x)
{
	const struct exchange_audit a = decision(x);

	x->flight = 0;
	x->b->counts->bytes_in += x->in;
	x->b->counts->bytes_out += x->out;
	if (x->b->audit)
		x->b->audit(x->b->audit_arg, &a);
}

static void drop_body(struct exchange *x)
{
	x->collecting = false;
	buf_done(&x->body);
}

static void hold(struct exchange *x)
{
	if (x->held_prev)
		return;
	x->held_next = x->b->held;
	x->held_prev = &x->b->held;
	if (x->held_next)
		x->held_next->held_prev = &x->held_next;
	x->b->held = x;
}

static void let_go(struct exchange *x)
{
	if (!x->held_prev)
		return;
	*x->held_prev = x->held_next;
	if (x->held_next)
		x->held_next->held_prev = x->held_prev;
	x->held_next = NULL;
	x->held_prev = NULL;
}

static void end(struct exchange *x, bool whole)
{
	if (x->ended)
		return;
	let_go(x);
	x->b->in_hand--;
	x->ended = true;
	drop_body(x);
	audit(x);
	x->ops->end(x->arg, whole);
}

/* An answer of the bridge's own: small enough for every transport to take at once. */
static void reply(struct exchange *x, const struct guard_reply *r)
{
	x->headed = true;
	x->status = r->status;
	x->rule = r->rule;
	x->out = r->body_len;
	x->ops->head(x->arg, r->status, r->headers, r->headers_len);
	x->ops->data(x->arg, r->body, r->body_len);
	end(x, true);
}

/* An answer that is delivered whole is no stream, and has an end. */
static void bound_whole(struct bridge_limits *l, uint64_t max)
{
	l->stream = false;
	if (l->body_max > max)
		l->body_max = max;
	if (l->response_max > max)
		l->response_max = max;
}

struct exchange *exchange_begin(struct bridge *b, const struct guard_request *req,
				const struct exchange_ops *ops, void *arg)
{
	struct exchange *x = malloc(sizeof(*x));
	bool only;

	if (!x)
		return NULL;
	memset(x, 0, offsetof(struct exchange, answer));
	x->b = b;
	x->ops = ops;
	x->arg = arg;
	x->req = *req;
	x->why = GUARD_CAUSE_COUNT;
	x->began_real_ns = clock_real_ns();
	x->began_ns = x->moved_ns = clock_mono_ns();
	b->counts->requests++;
	/* Not "only" are those that come together, though each is refused before the next is looked at. */
	only = b->in_hand++ == 0 && b->begun_look != b->loop->looks;
	b->begun_look = b->loop->looks;
	x->start_ns = pace_request(&b->pace, guard_policy(b->guard)->pace, only, x->began_ns);
	guard_judge(b->guard, req, &x->v);
	if (b->whole_max)
		bound_whole(&x->v.limits, b->whole_max);
	x->rule = x->v.rule;
	if (!x->v.allowed) {
		b->counts->refused++;
		if (x->start_ns > x->began_ns)
			hold(x);
		else
			reply(x, &x->v.reply);
		return x;
	}
	x->collecting = true;
	x->body = BUF_INIT(x->v.limits.body_max + 1);
	return x;
}

void exchange_refused(struct bridge *b, int status, const char *rule)
{
	const struct exchange_audit a = {
	    .transport = b->transport, .rule = rule, .status = status, .began_ns = clock_real_ns()};

	b->counts->requests++;
	b->counts->refused++;
	(void)pace_request(&b->pace, guard_policy(b->guard)->pace, false, clock_mono_ns());
	if (b->audit)
		b->audit(b->audit_arg, &a);
}

bool exchange_wants_body(const struct exchange *x)
{
	return x->collecting;
}

uint64_t exchange_body_max(const struct exchange *x)
{
	return x->v.limits.body_max;
}

void exchange_body(struct exchange *x, const void *p, size_t n)
{
	if (!x->collecting || n == 0)
		return;
	x->moved_ns = clock_mono_ns();
	x->in += n;
	if (guard_body(&x->v, n) < 0) {
		x->b->counts->refused++;
		reply(x, &x->v.reply);
		return;
	}
	/* Once it is more than a first window: the length it was announced with, instead of doublings. */
	if (x->body.len <= H2_WINDOW && x->body.len + n > H2_WINDOW && x->req.body_len > 0)
		(void)buf_room(&x->body, (size_t)x->req.body_len - x->body.len);
	if (buf_put(&x->body, p, n) < 0)
		exchange_fail(x, GUARD_MEMORY);
}

void exchange_body_give(struct exchange *x, struct buf *b)
{
	if (x->collecting && b->len) {
		x->in = b->len;
		if (guard_body(&x->v, b->len) < 0) {
			x->b->counts->refused++;
			reply(x, &x->v.reply);
		} else {
			buf_done(&x->body);
			x->body = *b;
			*b = BUF_INIT(b->max);
		}
	}
	buf_done(b);
}

bool exchange_safe(const struct exchange *x)
{
	return x->v.allowed && x->v.safe;
}

/* Upstream. -------------------------------------------------------------------------------- */

static void pass_head(struct exchange *x)
{
	const struct guard_response *r = &x->answer;

	x->headed = true;
	x->status = r->status;
	x->ops->head(x->arg, r->status, r->headers, r->headers_len);
}

/*
 * What has begun to pass cannot become another status. So the beginning is kept until it is whole or more than KEPT_MAX: an answer
 * that breaks off before that is what it is, 409 or 502. Of a safe method no longer than KEPT_MS, because it may be one that tells
 * what happens as it happens; of a policy that says so (stream) not at all.
 */
static bool keep_head(struct exchange *x)
{
	struct guard_response *r = &x->answer;

	if (x->ops->restart || x->v.limits.stream)
		return false;
	x->kept = BUF_INIT(KEPT_MAX + BRIDGE_UPSTREAM_HEADERS_MAX);
	for (size_t i = 0; i < r->headers_len; i++)
		(void)buf_put(&x->kept, r->headers[i].value.p, r->headers[i].value.n);
	if (x->kept.err) {
		buf_done(&x->kept);
		return false;
	}
	x->kept_heads = x->kept.len;
	x->headed_ns = clock_mono_ns();
	x->keeping = true;
	return true;
}

static bool keep_data(struct exchange *x, const char *p, size_t n)
{
	return n <= KEPT_MAX && x->kept.len - x->kept_heads <= KEPT_MAX - n &&
	       buf_put(&x->kept, p, n) == 0;
}

static void pass_kept(struct exchange *x)
{
	struct buf kept = x->kept;
	size_t at = 0;

	if (!x->keeping)
		return;
	x->keeping = false;
	x->kept = BUF_INIT(0);
	for (size_t i = 0; i < x->answer.headers_len; i++) {
		struct view *v = &x->answer.headers[i].value;

		v->p = v->n ? kept.data + at : "";
		at += v->n;
	}
	pass_head(x);
	if (kept.len > at)
		x->ops->data(x->arg, kept.data + at, kept.len - at);
	buf_done(&kept);
}

static bool on_head(void *arg, int status, const struct header *h, size_t n)
{
	struct exchange *x = arg;

	if (guard_response(&x->v, status, h, n, &x->answer) < 0) {
		x->why = GUARD_UPSTREAM_BAD;
		return false;
	}
	if (!keep_head(x))
		pass_head(x);
	return true;
}

static enum upstream_data on_data(void *arg, const char *p, size_t n)
{
	struct exchange *x = arg;

	int64_t now = clock_mono_ns();

	if (now < x->start_ns)
		hold(x);
	if (x->held_prev)
		return UPSTREAM_WAIT;
	if (!x->keeping && !x->ops->room(x->arg, n))
		return UPSTREAM_WAIT;
	/* Counted when there is room: the same bytes come again after a wait. */
	if (guard_response_body(&x->v, n) < 0) {
		x->why = GUARD_RESPONSE_SIZE;
		return UPSTREAM_ABORT;
	}
	x->out += n;
	if (!x->keeping || !keep_data(x, p, n)) {
		pass_kept(x);
		x->ops->data(x->arg, p, n);
	}
	x->start_ns = pace_bytes(&x->b->pace, x->v.policy->pace, n, now);
	return UPSTREAM_TAKEN;
}

static void on_end(void *arg, enum upstream_end how, bool sent)
{
	static const enum guard_cause causes[] = {
	    [UP_OK] = GUARD_UPSTREAM_LOST,   [UP_UNREACHABLE] = GUARD_UNREACHABLE,
	    [UP_LOST] = GUARD_UPSTREAM_LOST, [UP_TIME] = GUARD_UPSTREAM_TIME,
	    [UP_BAD] = GUARD_UPSTREAM_BAD,
	};
	struct exchange *x = arg;
	enum guard_cause cause = causes[how];

	x->call = NULL;
	x->sent = sent;
	if (how == UP_OK)
		pass_kept(x);
	if (how == UP_OK && x->headed) {
		x->b->counts->forwarded++;
		end(x, true);
		return;
	}
	if (x->why != GUARD_CAUSE_COUNT)
		cause = x->why;
	else if (how == UP_TIME && !sent)
		cause = GUARD_UNREACHABLE;
	exchange_fail(x, cause);
}

void exchange_fail(struct exchange *x, enum guard_cause cause)
{
	struct guard_reply r;

	if (x->ended)
		return;
	if (x->call) {
		x->sent = upstream_cancel(x->call);
		x->call = NULL;
	}
	x->keeping = false;
	buf_done(&x->kept);
	x->b->counts->failed++;
	guard_fault(&x->v, cause, x->sent, &r);
	if (x->headed && !x->ops->restart) {
		x->rule = r.rule;
		end(x, false);
		return;
	}
	if (x->headed)
		x->ops->restart(x->arg);
	if (r.status == 409)
		x->b->counts->indeterminate++;
	reply(x, &r);
}

/* It goes out: whoever ends this process after this finds that it did. */
static bool known(struct exchange *x)
{
	struct exchange_audit a = decision(x);

	if (!x->b->audit_begin)
		return true;
	if (!x->b->audit_begin(x->b->audit_arg, &a))
		return false;
	x->flight = a.flight;
	return true;
}

static void forward(struct exchange *x)
{
	struct upstream_request q = {
	    .method = x->v.method_name,
	    .safe = x->v.safe,
	    .target = x->v.target.all,
	    .headers = x->v.headers,
	    .headers_len = x->v.headers_len,
	    .body = {x->body.data, x->body.len},
	    .limits = x->v.limits,
	    .arg = x,
	    .head = on_head,
	    .data = on_data,
	    .end = on_end,
	};

	/* A method that may have one says so with a length of zero. */
	q.has_body = x->body.len || x->v.method == METHOD_POST || x->v.method == METHOD_PUT ||
		     x->v.method == METHOD_PATCH;
	if (!known(x)) {
		exchange_fail(x, GUARD_AUDIT);
		return;
	}
	x->forwarded = true;
	x->call = upstream_start(x->b->upstream, &q);
	if (!x->call)
		exchange_fail(x, GUARD_MEMORY);
}

void exchange_body_end(struct exchange *x)
{
	if (!x->collecting)
		return;
	x->collecting = false;
	if (x->in)
		(void)pace_bytes(&x->b->pace, x->v.policy->pace, x->in, clock_mono_ns());
	if (x->start_ns > x->began_ns && x->start_ns > clock_mono_ns())
		hold(x);
	else
		forward(x);
}

/* What it was held back from. */
static void go_on(struct exchange *x)
{
	let_go(x);
	if (x->call)
		upstream_resume(x->call);
	else if (x->v.allowed)
		forward(x);
	else
		reply(x, &x->v.reply);
}

int64_t exchange_release(struct bridge *b, int64_t now)
{
	struct exchange *x = b->held, *next;
	int64_t due = INT64_MAX;

	for (; x; x = next) {
		next = x->held_next;
		/* It frees nothing: a transport does that in a turn of its own, which is to come at once. */
		if (b->stopping || x->start_ns <= now) {
			go_on(x);
			due = now;
		} else if (x->start_ns < due) {
			due = x->start_ns;
		}
	}
	return due;
}

void exchange_resume(struct exchange *x)
{
	if (x->call)
		upstream_resume(x->call);
}

void exchange_body_waits(struct exchange *x, int64_t now)
{
	x->moved_ns = now;
}

int64_t exchange_tick(struct exchange *x, int64_t now)
{
	const struct bridge_limits *l = &x->v.limits;
	int64_t due;

	if (x->keeping && x->v.safe) {
		due = x->headed_ns + KEPT_MS * NS_PER_MS;
		if (due > now)
			return due;
		pass_kept(x);
	}
	if (!x->collecting)
		return INT64_MAX;
	due = x->moved_ns + l->idle_ns;
	if (x->began_ns + l->upload_ns < due)
		due = x->began_ns + l->upload_ns;
	if (due > now)
		return due;
	exchange_fail(x, GUARD_BODY_IDLE);
	return INT64_MAX;
}

void exchange_free(struct exchange *x)
{
	if (x->call)
		x->sent = upstream_cancel(x->call);
	/* The sandbox left before the answer: what was sent may have had its effect, and the audit says so. */
	let_go(x);
	if (!x->ended) {
		x->b->in_hand--;
		if (x->v.allowed)
			x->rule = x->sent ? "client.gone" : "client.gone_before_sent";
		else
			x->status = x->v.reply.status;
		audit(x);
	}
	buf_done(&x->body);
	buf_done(&x->kept);
	guard_verdict_done(&x->v);
	free(x);
}
