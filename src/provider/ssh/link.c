/*
 * The life of airlock-remote.
 *
 * Policy: what comes out of ssh is foreign. The process holds the session's streams, a channel to airlock and
 * the guest program for reading; Landlock without a single path, seccomp, no capability, and bounded memory
 * are in force before the first byte is read. A frame, a channel number or a window that is wrong ends
 * the session. Not done here: judging what commands say or results hold (airlock-unpack, the engine), starting ssh.
 */
#include "provider/ssh/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "os/confine.h"
#include "provider/ssh/link_internal.h"
#include "wire/guest.h"

#define DATA_MAX (UINT64_C(96) << 20) /* private memory: windows of all channels, two frames */
#define NOFILE 512
#define UP_MAX (512u << 10) /* events that airlock has not taken yet; more is a flood */
#define END_MS 6000	    /* from GM_SHUTDOWN to the remote's last word */
#define SEEN_MAX 400	    /* bytes of a shell that is not ours, for the message */

enum { P_UP, P_ERR, P_MUX };

/* Up: to airlock. ---------------------------------------------------------------------------- */

static void flush_up(struct link *l)
{
	while (l->to_up.len > l->up_off) {
		struct iovec v = {l->to_up.data + l->up_off, l->to_up.len - l->up_off};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
		ssize_t k = sendmsg(l->up.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			l->orphan |= errno != EAGAIN;
			return;
		}
		l->up_off += (size_t)k;
	}
	buf_reset(&l->to_up);
	l->up_off = 0;
}

void link_say_up(struct link *l, uint8_t type, const void *p, size_t n)
{
	if (l->orphan)
		return;
	if (l->up_off) {
		buf_drop(&l->to_up, l->up_off);
		l->up_off = 0;
	}
	if (frame_put(&l->to_up, type, 0, p, n) < 0)
		l->how = LINK_BROKEN;
	flush_up(l);
}

/* The last message: airlock waits for it, or is gone. */
static void say_end(struct link *l)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LINK_SAID_KEEP + 64);
	struct err e = ERR_INIT;

	if (l->orphan)
		return;
	(void)buf_u32(&b, l->how);
	(void)buf_bytes(&b, l->said.data ? l->said.data : "", l->said.len);
	flush_up(l);
	/* What is left of events goes with it, whole, while airlock reads at all. */
	l->up.out = l->to_up;
	if (l->up_off)
		buf_drop(&l->up.out, l->up_off);
	l->to_up = (struct buf){0};
	(void)chan_send(&l->up, l->how == LINK_ENDED ? GM_ENDED : RM_LINK,
			l->how == LINK_ENDED ? "\0\0\0" : b.data, l->how == LINK_ENDED ? 4 : b.len,
			NULL, 0, clock_mono_ns() + END_MS * NS_PER_MS, &e);
}

void link_hear_stderr(struct link *l)
{
	char text[2048];
	ssize_t k = read(l->err, text, sizeof(text));

	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (k <= 0) {
		cleanup_fd(&l->err);
		return;
	}
	if (l->said.len + (size_t)k > LINK_SAID_KEEP)
		buf_drop(&l->said, l->said.len + (size_t)k - LINK_SAID_KEEP);
	(void)buf_put(&l->said, text, (size_t)k);
}

/* ssh says why it ends a moment before or after its stream does. */
static void last_stderr(struct link *l)
{
	int64_t until = clock_mono_ns() + 500 * NS_PER_MS;
	struct pollfd p = {.events = POLLIN};

	while (l->err >= 0) {
		p.fd = l->err;
		if (poll(&p, 1, clock_poll_ms(until, clock_mono_ns())) <= 0)
			return;
		link_hear_stderr(l);
	}
}

/* Setting up. -------------------------------------------------------------------------------- */

static int take_setup(struct link *l, struct err *e)
{
	int fds[FRAME_FDS_MAX], r;
	struct frame f;

	r = chan_recv(&l->up, clock_mono_ns() + START_TIMEOUT_MS * NS_PER_MS, &f, fds, e);
	if (r <= 0)
		return r < 0 ? r : -EPIPE;
	l->in = fds[0];
	l->out = fds[1];
	l->err = fds[2];
	l->program = fds[3];
	if (f.type != RM_SETUP || f.nfds != RM_SETUP_FDS || rm_setup_get(f.payload, &l->setup) < 0)
		return err_set(e, ERR_PROTOCOL, "airlock-remote: bad set-up");
	(void)fcntl(l->in, F_SETFL, O_NONBLOCK);
	(void)fcntl(l->out, F_SETFL, O_NONBLOCK);
	(void)fcntl(l->err, F_SETFL, O_NONBLOCK);
	return 0;
}

/* Requests of airlock. ----------------------------------------------------------------------- */

static void begin_end(struct link *l)
{
	const struct buf none = BUF_INIT(0);

	if (l->ending)
		return;
	l->ending = true;
	l->end_ns = clock_mono_ns() + END_MS * NS_PER_MS;
	(void)mux_put(&l->mux, GM_SHUTDOWN, none.data, 0);
}

static const struct carried {
	uint8_t type, fds;
	unsigned flags[3]; /* of the channel for each descriptor */
} carried[] = {
    {RM_LAND, 2, {0, MUX_TO_OPENER}},
    {GM_EXEC, 3, {0, MUX_TO_OPENER | MUX_AWAITED, MUX_TO_OPENER | MUX_AWAITED}},
    {GM_PACK, 1, {MUX_TO_OPENER | MUX_AWAITED}},
    {RM_OPEN, 0, {0}},
    {RM_START, 0, {0}},
    {RM_BOX, 0, {0}},
    {GM_SIGNAL, 0, {0}},
    {GM_WINSIZE, 0, {0}},
    {GM_PING, 0, {0}},
};

/* The remote would have said it so. */
static void refuse(struct link *l, uint8_t type, uint32_t id)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);

	mux_end_group(&l->mux, id);
	if (type == GM_PACK)
		(void)gm_packed_put(&b, &(struct gm_packed){.id = id, .error = EAGAIN});
	else
		(void)gm_failed_put(
		    &b, &(struct gm_failed){.id = id, .error = EAGAIN, .step = "limit"});
	link_say_up(l, type == GM_PACK ? GM_PACKED : GM_FAILED, b.data, b.len);
}

static int carry(struct link *l, const struct carried *c, const struct frame *f, int *fds)
{
	struct cursor cur;
	uint32_t id;
	int r = 0;

	cursor_init(&cur, f->payload.p, f->payload.n);
	id = c->fds ? cursor_u32(&cur) : 0;
	for (size_t i = 0; r == 0 && i < c->fds; i++)
		r = mux_open(&l->mux, id, c->flags[i], TAKE_FD(fds[i]));
	if (r == -EAGAIN) {
		refuse(l, c->type, id);
		return 0;
	}
	if (r < 0)
		return r;
	owed_request(&l->owed, f->type);
	return mux_put(&l->mux, f->type, f->payload.p, f->payload.n);
}

static int on_request(struct link *l, const struct frame *f, int *fds)
{
	if (f->type == GM_SHUTDOWN) {
		begin_end(l);
		return 0;
	}
	if (f->type == RM_KEEP && !f->nfds)
		return link_keep(l, f->payload);
	if (f->type == RM_DIALED && (!f->nfds || f->nfds == RM_DIALED_FDS))
		return link_dialed(l, f, fds);
	for (size_t i = 0; i < ARRAY_LEN(carried); i++)
		if (carried[i].type == f->type && carried[i].fds == f->nfds)
			return carry(l, &carried[i], f, fds);
	return -EPROTO;
}

/* What it was asked for comes behind requests for which there is no room now. */
static bool hears_up(const struct link *l)
{
	return !l->ending &&
	       (mux_roomy(&l->mux) || (l->away.on && l->away.asked && !l->away.dialed));
}

static void hear_up(struct link *l)
{
	int fds[FRAME_FDS_MAX], r = 0;
	struct frame f;

	while (r >= 0 && hears_up(l)) {
		r = chan_recv(&l->up, 0, &f, fds, NULL);
		if (r == -EAGAIN)
			return;
		if (r <= 0) {
			l->orphan = true;
			begin_end(l);
			return;
		}
		r = on_request(l, &f, fds);
		for (size_t i = 0; i < FRAME_FDS_MAX; i++)
			cleanup_fd(&fds[i]);
	}
	if (r < 0)
		l->how = LINK_BROKEN;
}

/* Events of the remote. ---------------------------------------------------------------------- */

static int on_hello(struct link *l, struct view v)
{
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	if (l->hello || cursor_u32(&c) != REMOTE_PROTOCOL || c.failed)
		return -EPROTO;
	l->hello = true;
	link_say_up(l, RM_HELLO, v.p, v.n);
	return 0;
}

static int on_event(struct link *l, const struct frame *f)
{
	struct cursor c;
	uint32_t id;

	if (f->type == RM_HELLO)
		return on_hello(l, f->payload);
	if (f->type == RM_ENDED && l->hello) {
		l->how = LINK_ENDED;
		return 0;
	}
	if (!l->hello || f->payload.n > LINK_CHUNK || !owed_event(&l->owed, f->type))
		return -EPROTO;
	if (f->type == RM_HELD)
		return link_held(l, f->payload);
	cursor_init(&c, f->payload.p, f->payload.n);
	if (f->type == GM_EXITED || f->type == GM_FAILED || f->type == GM_PACKED) {
		id = cursor_u32(&c);
		/* A pipe that something there still holds open was given up by the guest: no MX_EOF comes for it. */
		if (c.failed || mux_no_more(&l->mux, id) < 0)
			return -EPROTO;
		return mux_hold(&l->mux, id, f->type, f->payload, INT64_MAX);
	}
	link_say_up(l, f->type, f->payload.p, f->payload.n);
	return 0;
}

static void hear_mux(struct link *l)
{
	struct frame f;
	int r = 0;

	while (!l->how && r == 0 && (r = mux_next(&l->mux, &f)) > 0)
		r = on_event(l, &f);
	if (r < 0)
		l->how = LINK_BROKEN;
	else if (l->mux.eof && !l->how)
		link_lose(l, LINK_CUT);
}

void link_say_due(struct link *l)
{
	struct buf b;
	uint8_t type;

	while (mux_due(&l->mux, clock_mono_ns(), &type, &b)) {
		link_say_up(l, type, b.data, b.len);
		buf_done(&b);
	}
}

static int wait_ms(const struct link *l)
{
	int64_t due = mux_alive_ns(&l->mux);
	int64_t silent = l->mux.heard_ns + (int64_t)l->setup.silent_ms * NS_PER_MS;

	due = silent < due && !l->away.on ? silent : due;
	if (l->away.on && link_away_ns(l) < due)
		due = link_away_ns(l);
	if (l->ending && l->end_ns < due)
		due = l->end_ns;
	return clock_poll_ms(due, clock_mono_ns());
}

struct pollfd link_up_poll(const struct link *l)
{
	return (struct pollfd){.fd = l->orphan ? -1 : l->up.fd,
			       .events = (short)((hears_up(l) ? POLLIN : 0) |
						 (l->to_up.len ? POLLOUT : 0))};
}

void link_up_run(struct link *l, short revents)
{
	if (revents & POLLOUT)
		flush_up(l);
	if (revents)
		hear_up(l);
	l->orphan |= revents & (POLLHUP | POLLERR);
	/* Whoever noticed it: nobody listens to its channel any more, and the remote is still to be told. */
	if (l->orphan)
		begin_end(l);
}

static void turn(struct link *l)
{
	struct pollfd p[P_MUX + MUX_FDS];
	size_t n;

	p[P_UP] = link_up_poll(l);
	p[P_ERR] = (struct pollfd){.fd = l->err, .events = POLLIN};
	n = mux_poll(&l->mux, p + P_MUX);
	if (poll(p, P_MUX + n, wait_ms(l)) < 0)
		return;
	if (p[P_ERR].revents)
		link_hear_stderr(l);
	if (mux_run(&l->mux, p + P_MUX, n) < 0)
		link_lose(l, LINK_CUT);
	hear_mux(l);
	link_up_run(l, p[P_UP].revents);
	link_say_due(l);
	mux_alive(&l->mux, clock_mono_ns());
	link_away(l);
	/* What came with the first bytes of another stream. */
	if (!l->away.on && l->mux.rx.len > l->mux.used)
		hear_mux(l);
	/* ssh asks whether the machine is there; this asks whether the guest is. */
	if (!l->how && l->ending && clock_mono_ns() >= l->end_ns)
		l->how = LINK_SILENT;
	if (!l->how && !l->away.on &&
	    clock_mono_ns() >= l->mux.heard_ns + (int64_t)l->setup.silent_ms * NS_PER_MS)
		link_lose(l, LINK_SILENT);
}

static void serve(struct link *l)
{
	mux_init(&l->mux, TAKE_FD(l->out), TAKE_FD(l->in), true);
	(void)mux_feed(&l->mux, l->got.data, l->got.len);
	buf_done(&l->got);
	hear_mux(l);
	while (!l->how)
		turn(l);
	link_say_due(l);
	mux_done(&l->mux);
}

int link_serve(int sock)
{
	struct link *l = calloc(1, sizeof(*l));
	const struct confine_opts o = {.data_max = DATA_MAX, .nofile_max = NOFILE};
	struct err e = ERR_INIT;
	int r;

	if (!l)
		return -ENOMEM;
	chan_init(&l->up, sock, true);
	l->in = l->out = l->err = l->program = l->mux.in = l->mux.out = -1;
	buf_init(&l->to_up, UP_MAX);
	buf_init(&l->got, REMOTE_NOISE_MAX + LINK_CHUNK);
	buf_init(&l->said, LINK_SAID_KEEP);
	r = take_setup(l, &e);
	if (r == 0)
		r = link_nonce(l->nonce);
	if (r == 0)
		r = confine_self(&o, &e);
	if (r < 0) {
		l->how = LINK_BROKEN;
		(void)buf_puts(&l->said, e.text);
	} else if (link_dial(l)) {
		serve(l);
	}
	if (l->how != LINK_ENDED && l->how != LINK_REFUSED && r == 0)
		last_stderr(l);
	/* What the shell printed instead of our lines, if ssh itself has nothing to say. */
	if (!l->hello && l->how != LINK_REFUSED && !l->said.len)
		(void)buf_put(&l->said, l->got.data, l->got.len < SEEN_MAX ? l->got.len : SEEN_MAX);
	say_end(l);
	link_away_done(l);
	rm_setup_done(&l->setup);
	chan_done(&l->up);
	buf_done(&l->to_up);
	buf_done(&l->got);
	buf_done(&l->said);
	cleanup_fd(&l->in);
	cleanup_fd(&l->out);
	cleanup_fd(&l->err);
	cleanup_fd(&l->program);
	free(l);
	return r;
}
