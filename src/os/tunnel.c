#include "os/tunnel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define ROUNDS 4 /* buffers moved at a time, so that one tunnel does not hold up the others */

static struct tunnel_side *other(struct tunnel_side *s)
{
	return &s->t->side[s == &s->t->side[0]];
}

static bool read_some(struct tunnel_side *s)
{
	ssize_t n = recv(s->watch.fd, s->buf, TUNNEL_BUF, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	/* Also a reset: what came before it is still passed on. */
	s->eof = n <= 0;
	s->at = 0;
	s->len = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static bool write_some(struct tunnel_side *s)
{
	ssize_t n = send(other(s)->watch.fd, s->buf + s->at, s->len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0) {
		s->t->broken = true;
		return false;
	}
	s->at += (size_t)n;
	s->len -= (size_t)n;
	s->bytes += (uint64_t)n;
	s->t->active_ns = clock_mono_ns();
	return s->len == 0;
}

static void move(struct tunnel_side *s)
{
	for (int i = 0; i < ROUNDS && !s->t->broken; i++) {
		if (s->len == 0 && (s->eof || !read_some(s)))
			break;
		if (!write_some(s))
			break;
	}
	if (s->eof && s->len == 0 && !s->shut && !s->t->broken) {
		s->shut = true;
		(void)shutdown(other(s)->watch.fd, SHUT_WR);
	}
}

static void on_ready(struct loop_watch *w, uint32_t events);

/* A hang-up is reported whether it is asked for or not: what is not waited for is not watched. */
static void want(struct tunnel_side *s)
{
	uint32_t events = (!s->eof && s->len == 0 ? EPOLLIN : 0u) | (other(s)->len ? EPOLLOUT : 0u);
	int fd = s->watch.fd;

	if (s->watch.events == events)
		return;
	if (s->watch.events)
		loop_del(s->t->loop, &s->watch);
	s->watch.fd = fd;
	s->watch.events = 0;
	if (events && loop_add(s->t->loop, &s->watch, fd, events, on_ready) < 0)
		s->t->broken = true;
	s->watch.fd = fd;
	s->watch.events = s->t->broken ? 0 : events;
}

static void turn(struct tunnel *t)
{
	move(&t->side[0]);
	move(&t->side[1]);
	want(&t->side[0]);
	want(&t->side[1]);
}

static bool finished(const struct tunnel *t)
{
	return t->broken || (t->side[0].shut && t->side[1].shut);
}

static void on_ready(struct loop_watch *w, uint32_t events)
{
	struct tunnel_side *s =
	    (struct tunnel_side *)(void *)((char *)w - offsetof(struct tunnel_side, watch));
	struct tunnel *t = s->t;

	(void)events;
	turn(t);
	if (finished(t))
		t->over(t);
}

int tunnel_start(struct tunnel *t, struct loop *loop, int fd0, int fd1,
		 void (*over)(struct tunnel *t))
{
	const int fds[2] = {fd0, fd1};
	int r = 0;

	*t = (struct tunnel){
	    .loop = loop, .over = over, .started = true, .active_ns = clock_mono_ns()};
	for (int i = 0; i < 2; i++) {
		int fl = fcntl(fds[i], F_GETFL);

		t->side[i].t = t;
		t->side[i].watch.fd = fds[i];
		t->side[i].buf = malloc(TUNNEL_BUF);
		if (!t->side[i].buf)
			r = -ENOMEM;
		else if (fl < 0 || fcntl(fds[i], F_SETFL, fl | O_NONBLOCK) < 0)
			r = -errno;
	}
	if (r == 0) {
		want(&t->side[0]);
		want(&t->side[1]);
		r = t->broken ? -ENOMEM : 0;
	}
	if (r < 0)
		tunnel_done(t);
	return r;
}

int tunnel_preload(struct tunnel *t, int i, const void *p, size_t n)
{
	struct tunnel_side *s = &t->side[i];

	if (n > TUNNEL_BUF || s->len)
		return -ENOBUFS;
	memcpy(s->buf, p, n);
	s->at = 0;
	s->len = n;
	return 0;
}

void tunnel_mute(struct tunnel *t, int i)
{
	t->side[i].eof = t->side[i].shut = true;
}

void tunnel_kick(struct tunnel *t)
{
	turn(t);
	if (finished(t))
		t->over(t);
}

bool tunnel_half(const struct tunnel *t)
{
	return t->side[0].eof || t->side[1].eof;
}

void tunnel_done(struct tunnel *t)
{
	if (!t->started)
		return;
	t->started = false;
	for (int i = 0; i < 2; i++) {
		struct tunnel_side *s = &t->side[i];
		int fd = s->watch.fd;

		if (s->watch.events)
			loop_del(t->loop, &s->watch);
		if (fd >= 0)
			(void)close(fd);
		s->watch.fd = -1;
		free(s->buf);
		s->buf = NULL;
	}
}
