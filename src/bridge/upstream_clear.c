/* Policy of door 2 here: none; in clear a connection is its descriptor. Not done here: https (upstream_tls.c). */
#include "bridge/upstream_wire.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int wire_new(const struct origin *o, struct view ca, struct wire **ret, struct err *e)
{
	(void)ca;
	*ret = NULL;
	if (o->scheme == ORIGIN_HTTPS)
		return err_set(e, ERR_INVALID, "upstream %s: https is airlock-bridge-tls's",
			       o->text);
	return 0;
}

void wire_free(struct wire *w)
{
	(void)w;
}

int wire_begin(struct wire *w, int fd, struct wire_end **ret)
{
	(void)w;
	(void)fd;
	*ret = NULL;
	return 0;
}

void wire_end_free(struct wire_end *t)
{
	(void)t;
}

int wire_greet(struct wire_end *t, uint32_t *ret_events)
{
	(void)t;
	(void)ret_events;
	return 0;
}

ssize_t wire_send(struct wire_end *t, int fd, const struct iovec *v, size_t n, uint32_t *ret_events)
{
	const struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = n};
	ssize_t k;

	(void)t;
	*ret_events = EPOLLOUT;
	do
		k = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : k;
}

ssize_t wire_recv(struct wire_end *t, int fd, char *p, size_t n, uint32_t *ret_events)
{
	ssize_t k;

	(void)t;
	*ret_events = EPOLLIN;
	do
		k = recv(fd, p, n, 0);
	while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : k;
}

bool wire_quiet(struct wire_end *t, int fd)
{
	char byte;

	(void)t;
	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}
