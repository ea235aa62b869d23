/*
 * airlock-remote without a connection (wire/rejoin.h).
 *
 * Policy: the name and the token of the session are drawn here and are in memory alone, here and in the guest that waits. Another machine
 * that answers in its place learns them only if ssh trusts its host key, and has no stream to go on with. What it says before the
 * stream goes on is looked at as strictly as at the begin. Not done here: starting ssh (airlock's), what the guest lets in (guest/front_join.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "provider/ssh/link_internal.h"

#define PAUSE_MS 250
#define PAUSE_MAX_MS 8000

static int draw(struct rm_hold *h)
{
	uint8_t raw[RM_JOIN_ID / 2];

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw) ||
	    getrandom(h->token, sizeof(h->token), 0) != (ssize_t)sizeof(h->token))
		return -EIO;
	str_hex(h->id, raw, sizeof(raw));
	return 0;
}

static int64_t longer(int64_t pause_ms)
{
	return 2 * pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
}

int link_keep(struct link *l, struct view v)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	struct rm_attach *a = &l->away.attach;
	int r = a->place.root ? -EPROTO : rm_keep_get(v, &a->place);

	if (r == 0)
		r = draw(&a->hold);
	if (r < 0)
		return r;
	a->hold.grace_ms = a->place.grace_ms;
	r = rm_hold_put(&b, &a->hold);
	if (r < 0)
		return r;
	owed_request(&l->owed, RM_HOLD);
	return mux_put(&l->mux, RM_HOLD, b.data, b.len);
}

int link_held(struct link *l, struct view v)
{
	struct cursor c;
	uint32_t error;

	cursor_init(&c, v.p, v.n);
	error = cursor_u32(&c);
	if (!cursor_end(&c))
		return -EPROTO;
	l->away.held = error == 0;
	if (error)
		link_say_up(l, RM_HELD, v.p, v.n);
	return 0;
}

/*
 * A session that was reached again is no progress as long as none of its stream has come: a machine that takes it up and hangs up is asked
 * less and less often. One that goes on in between is asked at once, but for a pause between two of its cuts.
 */
static void plan_first(struct link *l, int64_t now)
{
	struct link_away *a = &l->away;
	int64_t half;

	/* The grace is one for all of them, or who only says that it goes on would never be given up. */
	if (l->mux.came != a->came || !a->pause_ms) {
		a->pause_ms = PAUSE_MS;
		a->until_ns = now + (int64_t)a->attach.place.grace_ms * NS_PER_MS;
	}
	half = now + (a->until_ns - now) / 2;
	a->came = l->mux.came;
	a->next_ns = a->asked_ns ? a->asked_ns + a->pause_ms * NS_PER_MS : now;
	if (a->next_ns < now)
		a->next_ns = now;
	/* A short grace has a try in it all the same. */
	if (a->next_ns > half)
		a->next_ns = half;
	a->pause_ms = longer(a->pause_ms);
}

void link_lose(struct link *l, enum link_end how)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LINK_SAID_KEEP + 64);
	int64_t now = clock_mono_ns();

	if (!l->away.held || l->ending || l->orphan) {
		l->how = how;
		return;
	}
	if (l->err >= 0)
		link_hear_stderr(l);
	mux_detach(&l->mux);
	cleanup_fd(&l->err);
	l->away.on = true;
	l->away.asked = l->away.dialed = false;
	plan_first(l, now);
	(void)buf_u32(&b, how);
	(void)buf_bytes(&b, buf_text(&l->said), l->said.len);
	link_say_up(l, RM_AWAY, b.data, b.len);
}

static void wait_for_next(struct link *l)
{
	l->away.asked = false;
	l->away.next_ns = clock_mono_ns() + l->away.pause_ms * NS_PER_MS;
	l->away.pause_ms = longer(l->away.pause_ms);
}

int link_dialed(struct link *l, const struct frame *f, int *fds)
{
	if (!l->away.on || !l->away.asked || l->away.dialed)
		return -EPROTO;
	if (!f->nfds) {
		wait_for_next(l);
		return 0;
	}
	l->in = TAKE_FD(fds[0]);
	l->out = TAKE_FD(fds[1]);
	l->err = TAKE_FD(fds[2]);
	(void)fcntl(l->in, F_SETFL, O_NONBLOCK);
	(void)fcntl(l->out, F_SETFL, O_NONBLOCK);
	(void)fcntl(l->err, F_SETFL, O_NONBLOCK);
	l->away.dialed = true;
	return 0;
}

/* One who waits nowhere is waited for in vain; everything else may be better the next time. */
static void on_fault(struct link *l, struct view v)
{
	static const int final[] = {ENOENT, ECONNREFUSED, EACCES, EPROTO};
	struct rm_fault fault;

	l->how = LINK_BROKEN;
	if (rm_fault_get(v, &fault) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(final); i++)
		if (fault.error == (uint32_t) final[i])
			l->how = LINK_GONE;
	buf_reset(&l->said);
	(void)buf_putf(&l->said, "%s: %s", fault.what, strerror((int)fault.error));
}

/* Of the guest that was just started. */
static bool hear(struct link *l, uint8_t type, struct view *ret)
{
	struct frame f;

	if (!link_dial_frame(l, &f))
		return false;
	*ret = f.payload;
	if (f.type == type && !f.nfds)
		return true;
	if (f.type == RM_FAULT)
		on_fault(l, f.payload);
	else
		l->how = LINK_BROKEN;
	return false;
}

static void used(struct link *l, struct view v)
{
	buf_drop(&l->got, FRAME_HEADER + v.n);
}

static bool ask(struct link *l)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8192), frame = BUF_INIT(8192 + FRAME_HEADER);

	l->away.attach.came = l->mux.came;
	if (rm_attach_put(&b, &l->away.attach) == 0 &&
	    frame_put(&frame, RM_ATTACH, 0, b.data, b.len) == 0)
		return link_dial_send(l, frame.data, frame.len);
	l->how = LINK_BROKEN;
	return false;
}

static bool attach(struct link *l)
{
	struct view v;
	struct cursor c;
	uint32_t protocol;
	uint64_t had;

	if (!hear(l, RM_HELLO, &v))
		return false;
	cursor_init(&c, v.p, v.n);
	protocol = cursor_u32(&c);
	used(l, v);
	if (protocol != REMOTE_PROTOCOL) {
		l->how = LINK_BROKEN;
		return false;
	}
	if (!ask(l) || !hear(l, RM_ATTACHED, &v))
		return false;
	cursor_init(&c, v.p, v.n);
	had = cursor_u64(&c);
	if (!cursor_end(&c) ||
	    mux_attach(&l->mux, TAKE_FD(l->out), TAKE_FD(l->in), had, NULL) < 0) {
		l->how = LINK_GONE;
		return false;
	}
	used(l, v);
	/* The stream has moved on, so no other one can go on from where it was. */
	if (mux_feed(&l->mux, l->got.data, l->got.len) < 0)
		l->how = LINK_GONE;
	return !l->how;
}

static void try_again(struct link *l)
{
	l->away.dialed = false;
	l->away.try_until_ns = clock_mono_ns() + REMOTE_AGAIN_MS * NS_PER_MS;
	if (l->away.until_ns < l->away.try_until_ns)
		l->away.try_until_ns = l->away.until_ns;
	buf_reset(&l->said);
	buf_reset(&l->got);
	l->shut = false;
	if (link_nonce(l->nonce) == 0 && link_dial(l) && attach(l)) {
		l->away.on = false;
		link_say_up(l, RM_BACK, NULL, 0);
	} else {
		if (l->err >= 0)
			link_hear_stderr(l);
		cleanup_fd(&l->in);
		cleanup_fd(&l->out);
		cleanup_fd(&l->err);
		wait_for_next(l);
		if (l->how != LINK_GONE && !l->ending)
			l->how = 0;
	}
	buf_done(&l->got);
}

void link_away(struct link *l)
{
	if (!l->away.on || l->how)
		return;
	if (l->ending)
		l->how = LINK_CUT;
	else if (l->away.dialed)
		try_again(l);
	else if (clock_mono_ns() >= l->away.until_ns)
		l->how = LINK_LATE;
	else if (!l->away.asked && clock_mono_ns() >= l->away.next_ns) {
		l->away.asked = true;
		l->away.asked_ns = clock_mono_ns();
		link_say_up(l, RM_DIAL, NULL, 0);
	}
}

int64_t link_away_ns(const struct link *l)
{
	const struct link_away *a = &l->away;

	return !a->asked && a->next_ns < a->until_ns ? a->next_ns : a->until_ns;
}

void link_away_done(struct link *l)
{
	rm_attach_done(&l->away.attach);
}
