#include "os/loop.h"

#include <errno.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

int loop_init(struct loop *l, struct err *e)
{
	*l = (struct loop){.ep = epoll_create1(EPOLL_CLOEXEC)};
	return l->ep < 0 ? err_sys(e, errno, "event loop") : 0;
}

void loop_done(struct loop *l)
{
	if (l->ep > 0)
		(void)close(l->ep);
	l->ep = -1;
}

int loop_add(struct loop *l, struct loop_watch *w, int fd, uint32_t events,
	     void (*ready)(struct loop_watch *w, uint32_t events))
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	*w = (struct loop_watch){.fd = fd, .events = events, .ready = ready};
	return 0;
}

void loop_mod(struct loop *l, struct loop_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (w->fd < 0 || w->events == events)
		return;
	w->events = events;
	(void)epoll_ctl(l->ep, EPOLL_CTL_MOD, w->fd, &ev);
}

void loop_del(struct loop *l, struct loop_watch *w)
{
	if (w->fd < 0)
		return;
	(void)epoll_ctl(l->ep, EPOLL_CTL_DEL, w->fd, NULL);
	w->fd = -1;
	for (int i = l->batch_at; i < l->batch_len; i++)
		if (l->batch[i].data.ptr == w)
			l->batch[i].data.ptr = NULL;
}

int loop_run(struct loop *l, void (*tick)(void *arg, int64_t now_ns), void *arg, struct err *e)
{
	while (!l->stop) {
		int n = epoll_wait(l->ep, l->batch, LOOP_BATCH,
				   clock_poll_ms(l->wake_ns, clock_mono_ns()));

		if (n < 0 && errno != EINTR)
			return err_sys(e, errno, "event loop");
		l->batch_len = n < 0 ? 0 : n;
		/* A full batch leaves the rest to the next turn. */
		l->looks += n >= 0 && n < LOOP_BATCH;
		for (l->batch_at = 0; l->batch_at < l->batch_len;) {
			struct epoll_event *ev = &l->batch[l->batch_at++];
			struct loop_watch *w = ev->data.ptr;

			if (w)
				w->ready(w, ev->events);
		}
		l->batch_at = l->batch_len = 0;
		l->wake_ns = INT64_MAX;
		tick(arg, clock_mono_ns());
	}
	return 0;
}
