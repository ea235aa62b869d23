/*
 * Policy of door 2 here: what a sandbox puts into the queue waits there until it is its turn, and a turn is short: the rest of
 * this process, its audit lines and its end above all, never waits for more than one file. Not done here: what may be
 * opened (queuedir.c), how a request is read and answered (queuejob.c).
 */
#include "bridge/queueserver.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "bridge/queueserver_internal.h"

#define ENTRIES_TURN 1024    /* directory entries looked at in one turn */
#define FILES_TURN 64	     /* requests read in one turn, */
#define BYTES_TURN (4 << 20) /* and bytes after which no further one is */
#define LARGE \
	65536 /* bytes; they begin after the others, one a turn, and are not read for a refusal */
#define SHORT_MS 100  /* until those for which there was no memory are tried again */
#define REFUSE_MAX 64 /* that wait for their 503; more of them wait in the directory */
#define CLAIMED_MAX \
	(BRIDGE_PENDING_CEILING + 64) /* of the processes before; there can be no more */

/* Which ones. ------------------------------------------------------------------------------ */

static int ids_new(struct queue_ids *q, unsigned max)
{
	q->max = max;
	q->id = calloc(max, sizeof(*q->id));
	return q->id ? 0 : -ENOMEM;
}

static bool ids_has(const struct queue_ids *q, const char *id)
{
	for (unsigned i = 0; i < q->n; i++)
		if (strcmp(q->id[i], id) == 0)
			return true;
	return false;
}

static bool ids_put(struct queue_ids *q, unsigned most, const char *id)
{
	if (q->n >= most || q->n >= q->max)
		return false;
	(void)snprintf(q->id[q->n++], sizeof(q->id[0]), "%s", id);
	return true;
}

static uint64_t take_first(struct queueserver *s, struct queue_ids *q, enum job_kind kind)
{
	char id[QUEUE_ID_LEN + 1];
	uint64_t bytes;

	memcpy(id, q->id[0], sizeof(id));
	memmove(q->id[0], q->id[1], --q->n * sizeof(q->id[0]));
	if (queuejob_take(s, id, kind, &bytes) < 0 && s->short_ns == INT64_MAX)
		s->short_ns = clock_mono_ns() + SHORT_MS * NS_PER_MS;
	return bytes;
}

static unsigned waiting(const struct queueserver *s)
{
	return s->wait.n + s->large.n;
}

/* May wait: as many as the policy says, and those that begin with this turn. */
static unsigned places(const struct queueserver *s)
{
	const struct bridge_policy *p = guard_policy(s->b->guard);
	unsigned taken = s->under_way + s->claimed.n;

	return p->queue_max + (p->streams_max > taken ? p->streams_max - taken : 0);
}

static void consider(void *arg, const char *id)
{
	struct queueserver *s = arg;
	bool large;

	s->poll_gap_ns = 0;
	if (s->stopping || ids_has(&s->wait, id) || ids_has(&s->large, id) ||
	    ids_has(&s->refuse, id))
		return;
	large = queuedir_size(&s->d, id, false) > LARGE;
	if (waiting(s) < places(s) && ids_put(large ? &s->large : &s->wait, UINT_MAX, id))
		return;
	/* It lies well where it is, and is found again, or its gateway takes it back: to be read only to be refused it is too large. */
	if (large)
		s->left = true;
	else if (!ids_put(&s->refuse, REFUSE_MAX, id))
		s->stale = true;
}

static void recover(void *arg, const char *id)
{
	struct queueserver *s = arg;

	if (!ids_put(&s->claimed, CLAIMED_MAX, id))
		s->b->counts->unanswered++;
}

/* Those to be refused as well: a pace may hold back what the guard refuses, and each keeps its envelope until then. */
static bool may_refuse(const struct queueserver *s)
{
	return s->refuse.n && s->refusing < REFUSE_MAX;
}

static bool may_begin(const struct queueserver *s, const struct queue_ids *q, bool claimed)
{
	if (q->n == 0 || s->under_way >= guard_policy(s->b->guard)->streams_max)
		return false;
	return s->held == 0 || s->held + queuedir_size(&s->d, q->id[0], claimed) <= BRIDGE_HELD_MAX;
}

/* True: more could begin, in the next turn. */
static bool begin_some(struct queueserver *s)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < FILES_TURN && bytes < BYTES_TURN; i++) {
		if (may_refuse(s))
			bytes += take_first(s, &s->refuse, JOB_TOO_MANY);
		else if (may_begin(s, &s->claimed, true))
			bytes += take_first(s, &s->claimed, JOB_CLAIMED);
		else if (may_begin(s, &s->wait, false))
			bytes += take_first(s, &s->wait, JOB_NEW);
		else
			break;
	}
	if (may_begin(s, &s->large, false))
		(void)take_first(s, &s->large, JOB_NEW);
	return may_refuse(s) || may_begin(s, &s->large, false) || may_begin(s, &s->claimed, true) ||
	       may_begin(s, &s->wait, false);
}

static void on_notify(struct loop_watch *w, uint32_t events)
{
	struct queueserver *s =
	    (struct queueserver *)(void *)((char *)w - offsetof(struct queueserver, watch));
	_Alignas(struct inotify_event) char buf[8192];
	ssize_t n = read(s->d.notify, buf, sizeof(buf));
	char id[QUEUE_ID_LEN + 1];
	uint64_t seq;

	(void)events;
	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *ev = (const void *)(buf + at);

		at += (ssize_t)(sizeof(*ev) + ev->len);
		if (ev->mask & IN_Q_OVERFLOW)
			s->stale = true;
		else if (ev->len && queue_name_parse(ev->name, id, &seq))
			consider(s, id);
	}
}

/* Life. ------------------------------------------------------------------------------------ */

int queueserver_new(struct bridge *b, int dir, struct bridge_shared *shared,
		    struct queueserver **ret, struct err *e)
{
	struct queueserver *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		cleanup_fd(&dir);
		return err_set(e, ERR_NOMEM, "queue: out of memory");
	}
	s->b = b;
	s->shared = shared;
	s->watch.fd = -1;
	s->alive_ns = s->short_ns = INT64_MAX;
	r = queuedir_open(&s->d, dir, e);
	if (r == 0 &&
	    (ids_new(&s->wait, BRIDGE_PENDING_CEILING) < 0 ||
	     ids_new(&s->large, BRIDGE_PENDING_CEILING) < 0 ||
	     ids_new(&s->refuse, REFUSE_MAX) < 0 || ids_new(&s->claimed, CLAIMED_MAX) < 0))
		r = err_set(e, ERR_NOMEM, "queue: out of memory");
	if (r < 0) {
		queueserver_free(s);
		return r;
	}
	b->whole_max = BRIDGE_QUEUE_BODY_MAX;
	/* A13: a request that lies there before its run has begun is another run's, or nobody's. */
	if (!shared->begun)
		queuedir_purge(&s->d);
	*ret = s;
	return 0;
}

int queueserver_begin(struct queueserver *s)
{
	bool again = s->shared->begun;
	int r =
	    s->d.notify < 0 ? 0 : loop_add(s->b->loop, &s->watch, s->d.notify, EPOLLIN, on_notify);

	s->begun = s->stale = true;
	s->shared->begun = 1;
	/* A sandbox of the same user may have put more there than there can be. */
	if (r == 0 && again)
		(void)queuedir_list(&s->d, true, false, 4 * CLAIMED_MAX, recover, s);
	return r;
}

static bool busy(const struct queueserver *s)
{
	return s->jobs || waiting(s) || s->claimed.n || s->refuse.n;
}

static void put_names(const struct queue_ids *q, struct buf *out)
{
	for (unsigned i = 0; i < q->n; i++)
		(void)buf_putf(out, "%s\n", q->id[i]);
}

/* Only what takes longer than a moment costs a write. */
static void alive(struct queueserver *s, int64_t now)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256 << 10);

	if (!busy(s)) {
		s->alive_ns = INT64_MAX;
		return;
	}
	if (s->alive_ns == INT64_MAX)
		s->alive_ns = now + QUEUE_ALIVE_MS * NS_PER_MS;
	if (now < s->alive_ns)
		return;
	s->alive_ns = now + QUEUE_ALIVE_MS * NS_PER_MS;
	(void)buf_putf(&b, "%llu %lld\n", (unsigned long long)++s->alive_count,
		       (long long)clock_mono_ns());
	queuejob_names(s, &b);
	put_names(&s->claimed, &b);
	put_names(&s->wait, &b);
	put_names(&s->large, &b);
	put_names(&s->refuse, &b);
	queuedir_alive(&s->d, (struct view){b.data, b.len});
}

/* Where nothing notifies: soon after something came, then less and less often. */
static void poll_again(struct queueserver *s, int64_t now)
{
	const int64_t least = QUEUE_POLL_MIN_MS * NS_PER_MS, most = QUEUE_POLL_MAX_MS * NS_PER_MS;

	if (s->d.notify >= 0) {
		s->poll_ns = INT64_MAX;
		return;
	}
	if (now >= s->poll_ns)
		s->stale = true;
	else
		return;
	s->poll_gap_ns = s->poll_gap_ns * 5 / 4;
	if (s->poll_gap_ns < least || busy(s))
		s->poll_gap_ns = least;
	if (s->poll_gap_ns > most)
		s->poll_gap_ns = most;
	s->poll_ns = now + s->poll_gap_ns;
}

/* Only while there is room for what is found. */
static void list(struct queueserver *s)
{
	bool from_start;

	if (s->left && waiting(s) <= guard_policy(s->b->guard)->queue_max / 2)
		s->stale = true;
	from_start = s->stale;
	if (s->stopping || !(s->stale || s->more) || s->refuse.n >= REFUSE_MAX)
		return;
	if (from_start)
		s->stale = s->left = false;
	s->more = queuedir_list(&s->d, false, from_start, ENTRIES_TURN, consider, s);
}

int64_t queueserver_tick(struct queueserver *s, int64_t now)
{
	int64_t next = INT64_MAX, due;
	bool again;

	if (!s->begun)
		return INT64_MAX;
	poll_again(s, now);
	if (now >= s->short_ns) {
		s->stale = true;
		s->short_ns = INT64_MAX;
	}
	list(s);
	due = queuejob_tick(s, now);
	again = begin_some(s);
	/* Those that were answered at once are done with at once. */
	next = queuejob_tick(s, now);
	alive(s, now);
	/* As list(): where that waits for room, whoever is held back by a pace is waited for. */
	if (again || ((s->stale || s->more) && s->refuse.n < REFUSE_MAX))
		return now;
	if (due < next)
		next = due;
	if (s->poll_ns < next)
		next = s->poll_ns;
	if (s->short_ns < next)
		next = s->short_ns;
	return s->alive_ns < next ? s->alive_ns : next;
}

/* What was not read stays where it is: the gateway takes it back, and says that it was not sent. */
void queueserver_stop(struct queueserver *s)
{
	s->stopping = true;
	s->stale = s->more = s->left = false;
	s->claimed.n = s->wait.n = s->large.n = s->refuse.n = 0;
	s->short_ns = INT64_MAX;
}

unsigned queueserver_under_way(const struct queueserver *s)
{
	return s->under_way + s->refusing + s->claimed.n + waiting(s) + s->refuse.n;
}

void queueserver_free(struct queueserver *s)
{
	queuejob_end_all(s);
	if (s->watch.fd >= 0)
		loop_del(s->b->loop, &s->watch);
	free(s->claimed.id);
	free(s->wait.id);
	free(s->large.id);
	free(s->refuse.id);
	queuedir_done(&s->d);
	free(s);
}
