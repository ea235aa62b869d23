#include "os/chan.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/*
 * One read's worth. Most frames are far smaller, and a process that starts with each sandbox meets no other: its first
 * buffers share pages.
 */
#define READ_CHUNK 16384
#define READ_FIRST 2000
#define READ_LEAST 512
#define QUEUE_BYTES (32 << 10)

void chan_init(struct chan *c, int fd, bool accept_fds)
{
	*c = (struct chan){.fd = fd, .accept_fds = accept_fds};
	buf_init(&c->in, FRAME_MAX + FRAME_HEADER + READ_CHUNK);
	buf_init(&c->out, FRAME_MAX + FRAME_HEADER + QUEUE_BYTES);
}

void chan_done(struct chan *c)
{
	for (size_t i = 0; i < c->nfds; i++)
		(void)close(c->fds[i]);
	c->nfds = 0;
	if (c->fd >= 0)
		(void)close(c->fd);
	c->fd = -1;
	buf_done(&c->in);
	buf_done(&c->out);
}

void chan_forget(struct chan *c)
{
	size_t max = c->in.max;

	if (c->used)
		explicit_bzero(c->in.data, c->used);
	buf_drop(&c->in, c->used);
	c->used = 0;
	if (c->in.len)
		return;
	buf_done(&c->in);
	buf_init(&c->in, max);
}

/* 0 when ready, -ETIMEDOUT, or a negative errno. */
static int wait_ready(int fd, short events, int64_t deadline_ns)
{
	struct pollfd p = {.fd = fd, .events = events};
	int r;

	do {
		r = poll(&p, 1, clock_poll_ms(deadline_ns, clock_mono_ns()));
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	return r == 0 ? -ETIMEDOUT : 0;
}

static ssize_t send_some(int fd, const char *p, size_t n, const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)];
		struct cmsghdr align;
	} u;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		struct cmsghdr *h;

		memset(&u, 0, sizeof(u));
		m.msg_control = u.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		h = CMSG_FIRSTHDR(&m); /* never NULL: there is room; the compiler does not know */
		if (!h)
			abort();
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(h), fds, sizeof(int) * nfds);
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int send_all(struct chan *c, const struct buf *b, const int *fds, size_t nfds,
		    int64_t deadline_ns, struct err *e)
{
	size_t off = 0;

	while (off < b->len) {
		ssize_t k = send_some(c->fd, b->data + off, b->len - off, fds, off ? 0 : nfds);
		int r;

		if (k >= 0) {
			off += (size_t)k;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN && errno != ENOBUFS)
			return err_sys(e, errno, "send to helper");
		r = wait_ready(c->fd, POLLOUT, deadline_ns);
		if (r < 0)
			return err_sys(e, -r, "send to helper");
	}
	return 0;
}

static int put(struct buf *b, uint8_t type, const void *payload, size_t n, size_t nfds,
	       struct err *e)
{
	int r = frame_put(b, type, (uint8_t)nfds, payload, n);

	return r < 0 ? err_set(e, r == -ENOMEM ? ERR_NOMEM : ERR_LIMIT,
			       "a message of %zu bytes is over the limit of %d bytes", n, FRAME_MAX)
		     : 0;
}

int chan_flush(struct chan *c, int64_t deadline_ns, struct err *e)
{
	int r = c->out.len ? send_all(c, &c->out, NULL, 0, deadline_ns, e) : 0;

	buf_reset(&c->out);
	return r;
}

int chan_queue(struct chan *c, uint8_t type, const void *payload, size_t n, struct err *e)
{
	int r = put(&c->out, type, payload, n, 0, e);

	return r < 0 || c->out.len < QUEUE_BYTES ? r : chan_flush(c, INT64_MAX, e);
}

int chan_send(struct chan *c, uint8_t type, const void *payload, size_t n, const int *fds,
	      size_t nfds, int64_t deadline_ns, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX + FRAME_HEADER);
	int r;

	if (nfds > FRAME_FDS_MAX)
		return err_set(e, ERR_INTERNAL, "%zu descriptors in one frame", nfds);
	r = chan_flush(c, deadline_ns, e);
	if (r == 0)
		r = put(&b, type, payload, n, nfds, e);
	return r < 0 ? r : send_all(c, &b, fds, nfds, deadline_ns, e);
}

/* What is there already, if that is worth a read. */
static size_t chunk(const struct chan *c)
{
	size_t left = c->in.cap ? c->in.cap - c->in.len - 1 : 0;

	if (left >= READ_LEAST)
		return left < READ_CHUNK ? left : READ_CHUNK;
	return c->in.cap ? READ_CHUNK : READ_FIRST;
}

/* Reads once. >0 bytes, 0 end of stream, negative errno (-EAGAIN: nothing there). */
static int read_some(struct chan *c)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)];
		struct cmsghdr align;
	} u;
	size_t n = chunk(c);
	char *to = buf_room(&c->in, n);
	struct iovec iov = {.iov_base = to, .iov_len = n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *h;
	ssize_t k;

	if (!to)
		return c->in.err;
	if (c->accept_fds) {
		m.msg_control = u.buf;
		m.msg_controllen = sizeof(u.buf);
	}
	k = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (k < 0)
		return -errno;
	for (h = c->accept_fds ? CMSG_FIRSTHDR(&m) : NULL; h; h = CMSG_NXTHDR(&m, h)) {
		size_t cnt = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < cnt; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
			if (c->nfds < sizeof(c->fds) / sizeof(c->fds[0]))
				c->fds[c->nfds++] = fd;
			else
				(void)close(fd);
		}
	}
	buf_add(&c->in, (size_t)k);
	return (int)k;
}

static int take_fds(struct chan *c, size_t want, int fds[FRAME_FDS_MAX])
{
	if (!c->accept_fds)
		want = 0;
	if (want > c->nfds)
		return -EPROTO;
	for (size_t i = 0; i < FRAME_FDS_MAX; i++) {
		if (i >= want) {
			if (fds)
				fds[i] = -1;
		} else if (fds) {
			fds[i] = c->fds[i];
		} else {
			(void)close(c->fds[i]);
		}
	}
	c->nfds -= want;
	memmove(c->fds, c->fds + want, c->nfds * sizeof(int));
	return 0;
}

int chan_reserve(struct chan *c)
{
	buf_drop(&c->in, c->used);
	c->used = 0;
	/* What has come of the frame when chunk asks leaves more than READ_LEAST. */
	return buf_room(&c->in, READ_FIRST + FRAME_HEADER) ? 0 : c->in.err;
}

int chan_recv(struct chan *c, int64_t deadline_ns, struct frame *ret, int fds[FRAME_FDS_MAX],
	      struct err *e)
{
	long total;
	int r;

	buf_drop(&c->in, c->used);
	c->used = 0;
	for (;;) {
		total = frame_parse(c->in.data, c->in.len, ret);
		if (total < 0)
			return err_set(e, ERR_PROTOCOL, "a helper sent a malformed frame");
		if (total > 0) {
			c->used = (size_t)total;
			if (take_fds(c, ret->nfds, fds) < 0)
				return err_set(e, ERR_PROTOCOL,
					       "a helper's frame lacks its descriptors");
			return 1;
		}
		if (c->eof)
			return c->in.len
				   ? err_set(e, ERR_PROTOCOL, "a helper's frame was cut short")
				   : 0;
		r = read_some(c);
		if (r == 0 || r == -ECONNRESET) {
			c->eof = true;
			continue;
		}
		if (r > 0 || r == -EINTR)
			continue;
		if (r != -EAGAIN)
			return err_sys(e, -r, "receive from helper");
		/* 0 never waits: the clock, which is a system call in the static programs, need not say so. */
		if (deadline_ns == 0 ||
		    (deadline_ns != INT64_MAX && clock_mono_ns() >= deadline_ns))
			return -EAGAIN;
		r = wait_ready(c->fd, POLLIN, deadline_ns);
		if (r == -ETIMEDOUT)
			return -EAGAIN;
		if (r < 0)
			return err_sys(e, -r, "receive from helper");
	}
}
