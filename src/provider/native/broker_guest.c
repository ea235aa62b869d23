/*
 * Policy: an event is believed only if it fits the state of the id it names, is decoded, judged and encoded anew, and
 * goes only to the client that asked. A guest that says anything else, or more than was asked for, is killed by
 * the caller. Not done here: output, which goes straight from the command's pipe to whoever gave it.
 */
#include "provider/native/broker.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "wire/guest.h"

#define GUEST_FRAME_MAX 256 /* no event of a guest is longer */

static struct job *job_by_id(struct broker *b, uint32_t id)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (b->jobs[i].state != JOB_FREE && b->jobs[i].id == id)
			return &b->jobs[i];
	return NULL;
}

static void tell_oom(struct broker *b, int client)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	uint32_t n = cgroup_oom_kills(&b->l->cgroup);

	if (n == b->oom_told)
		return;
	b->oom_told = n;
	(void)buf_u32(&p, n);
	broker_to_client(b, client, GM_OOM, &p);
}

static int on_ready(struct broker *b, struct view v)
{
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	if (b->guest_ready || cursor_u32(&c) != GUEST_PROTOCOL || !cursor_end(&c))
		return -EPROTO;
	b->guest_ready = true;
	b->kill_ns = b->asked ? b->kill_ns : INT64_MAX;
	return 0;
}

static int on_pong(struct broker *b, struct view v)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct cursor c;
	uint64_t i;

	cursor_init(&c, v.p, v.n);
	i = cursor_u64(&c);
	if (!cursor_end(&c) || i >= CLIENTS_MAX)
		return -EPROTO;
	/* The client may have gone, and another may sit in its place without having asked. */
	if (!b->clients[i].ping)
		return 0;
	b->clients[i].ping = false;
	(void)buf_u64(&p, b->clients[i].nonce);
	broker_to_client(b, (int)i, GM_PONG, &p);
	return 0;
}

static int on_started(struct broker *b, struct view v)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct cursor c;
	struct job *job;
	uint32_t pid;

	cursor_init(&c, v.p, v.n);
	job = job_by_id(b, cursor_u32(&c));
	pid = cursor_u32(&c);
	if (!cursor_end(&c) || !job || job->pack || job->state != JOB_ASKED)
		return -EPROTO;
	job->state = JOB_STARTED;
	(void)buf_u32(&p, job->client_id);
	(void)buf_u32(&p, pid);
	broker_to_client(b, job->client, GM_STARTED, &p);
	return 0;
}

/* The three last events of an id: decoded, judged, encoded anew. */
static int on_last(struct broker *b, uint8_t type, struct view v)
{
	_cleanup_buf_ struct buf p = BUF_INIT(512);
	struct gm_exited x;
	struct gm_failed f;
	struct gm_packed k;
	struct job *job, done;
	int r;

	r = type == GM_EXITED	? gm_exited_get(v, &x)
	    : type == GM_FAILED ? gm_failed_get(v, &f)
				: gm_packed_get(v, &k);
	if (r < 0)
		return r;
	job = job_by_id(b, type == GM_EXITED ? x.id : type == GM_FAILED ? f.id : k.id);
	if (!job || job->pack != (type == GM_PACKED) ||
	    (type == GM_EXITED && job->state != JOB_STARTED))
		return -EPROTO;
	done = *job;
	*job = (struct job){.state = JOB_FREE};
	if (type == GM_EXITED) {
		tell_oom(b, done.client);
		x.id = done.client_id;
		(void)gm_exited_put(&p, &x);
	} else if (type == GM_FAILED) {
		f.id = done.client_id;
		(void)gm_failed_put(&p, &f);
	} else {
		k.id = done.client_id;
		(void)gm_packed_put(&p, &k);
	}
	broker_to_client(b, done.client, type, &p);
	return 0;
}

static int on_event(struct broker *b, const struct frame *f)
{
	if (f->payload.n > GUEST_FRAME_MAX || f->nfds || (f->type == GM_READY) == b->guest_ready)
		return -EPROTO;
	switch (f->type) {
	case GM_READY:
		return on_ready(b, f->payload);
	case GM_PONG:
		return on_pong(b, f->payload);
	case GM_STARTED:
		return on_started(b, f->payload);
	case GM_EXITED:
	case GM_FAILED:
	case GM_PACKED:
		return on_last(b, f->type, f->payload);
	default:
		return -EPROTO;
	}
}

/* False: the guest's side is over, by end of stream or by nonsense. */
bool broker_hear_guest(struct broker *b)
{
	struct frame f;

	for (int n = 0; n < FRAMES_A_TURN; n++) {
		int r = chan_recv(&b->l->guest, 0, &f, NULL, NULL);

		if (r == -EAGAIN)
			return true;
		if (r <= 0 || on_event(b, &f) < 0)
			return false;
	}
	return true;
}
