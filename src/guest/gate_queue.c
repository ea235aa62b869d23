#include "guest/gate_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/gate_queue_internal.h"

#define ALIVE_MAX (256 << 10) /* bytes of the host's sign of life */
#define LOOK_MS 1000	      /* between two looks at it */

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
			(void)gate_queuecall_look(k);
		else
			gate_queuecall_away(q->responses, ev->name);
	}
}

/* Signs of life. --------------------------------------------------------------------------- */

/* What the host says now, if it is another word than the last. */
static bool host_spoke(struct gate_queue *q)
{
	_cleanup_buf_ struct buf b = BUF_INIT(ALIVE_MAX);
	bool other;

	if (gate_queuecall_read(q->root, "alive", ALIVE_MAX - 1, &b) < 0 || b.len == 0)
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
		char name[GATE_QUEUE_NAME];
		struct stat st;

		next = k->next;
		if (k->state != CALL_PUBLISHED && k->state != CALL_TAKEN)
			continue;
		gate_queuecall_name(k->id, name);
		if (k->state == CALL_PUBLISHED &&
		    fstatat(q->requests, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			k->state = CALL_TAKEN;
			k->alive_ns = now;
		}
		if (spoke && named(q, k->id))
			k->alive_ns = now;
		if (!q->last && now - k->alive_ns < QUEUE_STALL_MS * NS_PER_MS)
			continue;
		/* Its answer may have come by this very moment. */
		if (gate_queuecall_look(k))
			continue;
		if (k->state == CALL_PUBLISHED && gate_queuecall_take_back(k))
			gate_queuecall_fail(k, GATE_UNAVAILABLE);
		else
			gate_queuecall_fail(k, GATE_LOST);
	}
}

static void look_at_all(struct gate_queue *q)
{
	for (struct gate_call *k = q->list, *next; k; k = next) {
		next = k->next;
		if (k->state == CALL_PUBLISHED || k->state == CALL_TAKEN)
			(void)gate_queuecall_look(k);
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
			       loop_add(q->g->loop, &q->watch, q->notify, EPOLLIN, on_notify) < 0))
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
	g->carrier = &gate_queuecall_carrier;
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
		gate_queuecall_free(q->list);
	if (q->watch.fd >= 0)
		loop_del(q->g->loop, &q->watch);
	cleanup_fd(&q->notify);
	cleanup_fd(&q->requests);
	cleanup_fd(&q->responses);
	cleanup_fd(&q->root);
	free(q->token);
	free(q->alive);
	free(q);
}
