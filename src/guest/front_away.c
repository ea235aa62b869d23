/* A front whose connection was cut, and one that brings it another (front_join.h). */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "guest/front_internal.h"

#define LET_GO_MS 500 /* from the end of our input to that of the other way, where both end */
#define LET_GO_LOOK_MS 20

int front_hold(struct front *f, struct view v)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);
	struct rm_hold m;
	int r = f->join.listen >= 0 ? -EPROTO : rm_hold_get(v, &m);

	if (r < 0)
		return r;
	(void)buf_u32(&b, (uint32_t)-front_join_hold(&f->join, f->place.run, &m));
	front_put(f, RM_HELD, &b);
	return 0;
}

/* Our streams are another session's from then on, and so is the watch over them: our clock would end us, and with us the stream that we stay for. */
int front_attach(struct front *f, struct view v)
{
	char what[RM_WHAT_MAX + 1] = "";
	struct rm_attach m;
	int r = f->opened ? -EPROTO : rm_attach_get(v, &m), fd;

	if (r == 0) {
		f->opened = true;
		fd = front_join_bring(&m, f->mux.in, f->mux.out, what);
		if (fd < 0) {
			front_fault(f, fd, what);
		} else {
			mux_detach(&f->mux);
			(void)alarm(0);
			front_join_stay(fd, f->sigfd);
			f->gone = f->ending = true;
			(void)close(fd);
		}
	}
	rm_attach_done(&m);
	return r;
}

/* The stream is lost. Where nobody may bring another one, that is the end. */
void front_lose(struct front *f)
{
	if (f->ending || f->join.listen < 0) {
		f->gone = true;
	} else if (!f->mux.away) {
		mux_detach(&f->mux);
		f->away_until_ns = clock_mono_ns() + (int64_t)f->join.hold.grace_ms * NS_PER_MS;
	}
}

/* The one that we have, however alive it looks, is an old one then. */
void front_hear_join(struct front *f, const struct pollfd *p)
{
	_cleanup_buf_ struct buf said = BUF_INIT(64), b = BUF_INIT(16);
	struct front_stream s;
	int r;

	if (!front_join_hear(&f->join, p, &s))
		return;
	(void)buf_u64(&b, f->mux.came);
	r = b.err ? b.err : frame_put(&said, RM_ATTACHED, 0, b.data, b.len);
	/* One that could not go on costs us nothing that we have. */
	if (r == 0)
		r = mux_fits(&f->mux, s.came);
	if (r == 0)
		front_lose(f);
	if (r == 0 && f->mux.away)
		r = mux_attach(&f->mux, TAKE_FD(s.in), TAKE_FD(s.out), s.came, &said);
	cleanup_fd(&s.in);
	cleanup_fd(&s.out);
	front_join_answer(&f->join, -r);
}

/*
 * Our input has ended. With a connection that is lost the other way ends too; where that stays open, somebody has let go of us. The end of who
 * brought the stream looks like that as well, since sshd takes it for ours: it ends before our input does, and is a cut whatever killed it.
 */
static void judge_end(struct front *f, int64_t now)
{
	struct pollfd p = {.fd = f->mux.out};

	f->eof_ns = f->eof_ns ? f->eof_ns : now;
	if (f->join.listen < 0 || !front_join_carried(&f->join) ||
	    (poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP)))
		front_lose(f);
	else if (now >= f->eof_ns + LET_GO_MS * NS_PER_MS)
		f->gone = true;
}

void front_judge(struct front *f, int64_t now)
{
	if (f->mux.away)
		f->gone |= now >= f->away_until_ns;
	else if (f->mux.eof)
		judge_end(f, now);
	else if (now > f->mux.heard_ns + REMOTE_SILENT_MS * NS_PER_MS)
		front_lose(f);
	if (!f->mux.eof)
		f->eof_ns = 0;
}

int64_t front_away_ns(const struct front *f, int64_t now)
{
	int64_t due = now + (f->mux.eof ? LET_GO_LOOK_MS : REMOTE_SAY_MS) * NS_PER_MS;

	return f->mux.away && f->away_until_ns < due ? f->away_until_ns : due;
}
