#include "guest/forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/tunnel.h"

struct forward {
	struct loop loop;
	struct loop_watch accept_watch, channel_watch;
	int waiting[FORWARD_WAITING_MAX]; /* a ring: the host answers in order */
	unsigned first, n;
};

static void on_over(struct tunnel *t)
{
	tunnel_done(t);
	free(t);
}

static void on_accept(struct loop_watch *w, uint32_t events)
{
	struct forward *f =
	    (struct forward *)(void *)((char *)w - offsetof(struct forward, accept_watch));
	const char word = FORWARD_CONNECT;
	int fd;

	(void)events;
	fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	if (send(f->channel_watch.fd, &word, 1, MSG_NOSIGNAL) != 1) {
		(void)close(fd);
		return;
	}
	f->waiting[(f->first + f->n++) % FORWARD_WAITING_MAX] = fd;
	if (f->n == FORWARD_WAITING_MAX)
		loop_mod(&f->loop, w, 0);
}

/* One answer. -1: the channel is over. *ret_fd: the descriptor, or -1. */
static int answer(int channel, int *ret_fd)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	char word = 0;
	struct iovec iov = {&word, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.space,
			   .msg_controllen = sizeof(control.space)};
	ssize_t k = recvmsg(channel, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	struct cmsghdr *h;

	*ret_fd = -1;
	if (k < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (k == 0)
		return -1;
	h = CMSG_FIRSTHDR(&m);
	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
	    h->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(h), sizeof(int));
	return word == FORWARD_YES || word == FORWARD_NO ? 1 : -1;
}

static void on_channel(struct loop_watch *w, uint32_t events)
{
	struct forward *f =
	    (struct forward *)(void *)((char *)w - offsetof(struct forward, channel_watch));
	struct tunnel *t;
	int fd, client, k = answer(w->fd, &fd);

	(void)events;
	if (k < 0)
		f->loop.stop = true;
	if (k <= 0 || f->n == 0) {
		cleanup_fd(&fd);
		return;
	}
	client = f->waiting[f->first];
	f->first = (f->first + 1) % FORWARD_WAITING_MAX;
	if (f->n-- == FORWARD_WAITING_MAX)
		loop_mod(&f->loop, &f->accept_watch, EPOLLIN);
	t = fd >= 0 ? calloc(1, sizeof(*t)) : NULL;
	if (!t) {
		cleanup_fd(&fd);
		(void)close(client);
	} else if (tunnel_start(t, &f->loop, client, fd, on_over) < 0) {
		free(t);
	}
}

static void on_turn(void *arg, int64_t now)
{
	struct forward *f = arg;

	(void)now;
	f->loop.wake_ns = INT64_MAX;
}

static int listen_on(const char *host, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;

	if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
		return -EINVAL;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, SOMAXCONN) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int forward_serve(const char *host, uint16_t port, int channel)
{
	struct forward f = {.accept_watch.fd = -1, .channel_watch.fd = -1};
	const char word = FORWARD_READY;
	_cleanup_fd_ int listener = listen_on(host, port);
	struct err e = ERR_INIT;
	int r = listener < 0 ? listener : loop_init(&f.loop, &e);

	if (r == 0)
		r = loop_add(&f.loop, &f.accept_watch, listener, EPOLLIN, on_accept);
	if (r == 0)
		r = loop_add(&f.loop, &f.channel_watch, channel, EPOLLIN, on_channel);
	if (r == 0 && send(channel, &word, 1, MSG_NOSIGNAL) != 1)
		r = -errno;
	if (r < 0) {
		(void)fprintf(stderr, "airlock-gateway: listen on %s port %u: %s\n", host, port,
			      strerror(-r));
		return 1;
	}
	return loop_run(&f.loop, on_turn, &f, &e) < 0 ? 1 : 0;
}
