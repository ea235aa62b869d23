#include "os/h2chan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define IN_CHUNK 65536
#define OUT_CAP 131072 /* gathered before a write; one frame more than half of it always fits */
#define IN_TURNS 4     /* reads in one turn: other descriptors get their share */
#define SMALL_DATA 64
#define BYTES_A_TOKEN 1024.0

/* The other end is to see that it is over, however long this one lives on. */
static void hang_up(struct h2chan *c)
{
	loop_del(c->loop, &c->wi);
	loop_del(c->loop, &c->wo);
	if (c->out != c->in)
		cleanup_fd(&c->out);
	cleanup_fd(&c->in);
	c->out = -1;
}

static void lose(struct h2chan *c, enum h2_loss why)
{
	if (c->loss)
		return;
	c->loss = why;
	hang_up(c);
	c->lost(c->arg, why);
}

static void settle(struct h2chan *c)
{
	bool pending = c->olen > c->ooff;

	if (c->loss)
		return;
	if (!pending && !nghttp2_session_want_read(c->s) && !nghttp2_session_want_write(c->s)) {
		lose(c, H2_DONE);
		return;
	}
	if (c->in == c->out) {
		loop_mod(c->loop, &c->wi, pending ? EPOLLOUT : EPOLLIN);
		return;
	}
	loop_mod(c->loop, &c->wi, pending ? 0 : EPOLLIN);
	if (pending && c->wo.fd < 0)
		(void)loop_add(c->loop, &c->wo, c->out, EPOLLOUT, c->wo.ready);
	else
		loop_mod(c->loop, &c->wo, pending ? EPOLLOUT : 0);
}

static bool write_out(struct h2chan *c)
{
	while (c->ooff < c->olen) {
		ssize_t n = write(c->out, c->obuf + c->ooff, c->olen - c->ooff);

		if (n > 0) {
			c->ooff += (size_t)n;
			c->noise += (double)n / BYTES_A_TOKEN;
			c->written += (uint64_t)n;
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else if (n < 0 && errno == EAGAIN) {
			return false;
		} else {
			lose(c, errno == EPIPE || errno == ECONNRESET ? H2_EOF : H2_IO);
			return false;
		}
	}
	c->ooff = c->olen = 0;
	return true;
}

static void flush_once(struct h2chan *c)
{
	const uint8_t *p;
	ssize_t n = 0;

	while (!c->loss) {
		if (c->ooff && !write_out(c))
			return;
		while (c->olen < OUT_CAP / 2 && (n = nghttp2_session_mem_send(c->s, &p)) > 0) {
			/* A frame is at most 16 KiB and its header; a header block at most twice that. */
			if ((size_t)n > OUT_CAP - c->olen) {
				lose(c, H2_BROKEN);
				return;
			}
			memcpy(c->obuf + c->olen, p, (size_t)n);
			c->olen += (size_t)n;
			c->queued += (uint64_t)n;
		}
		if (n < 0) {
			lose(c, H2_BROKEN);
			return;
		}
		if (c->olen == 0 || !write_out(c))
			return;
	}
}

void h2chan_flush(struct h2chan *c)
{
	if (c->flushing) {
		c->again = true;
		return;
	}
	c->flushing = true;
	do {
		c->again = false;
		flush_once(c);
	} while (c->again && !c->loss);
	c->flushing = false;
	settle(c);
}

/* Tokens that a frame takes. Requests are work, not noise: they earn some. */
static double cost(const uint8_t hd[9])
{
	size_t len = (size_t)hd[0] << 16 | (size_t)hd[1] << 8 | hd[2];
	bool last = hd[4] & NGHTTP2_FLAG_END_STREAM;

	switch (hd[3]) {
	case NGHTTP2_DATA:
		return last || len >= SMALL_DATA ? 0 : len ? 0.2 : 1;
	case NGHTTP2_HEADERS:
		return -2;
	case NGHTTP2_RST_STREAM:
		return 10;
	default:
		return 1;
	}
}

/* Every frame by its header alone. False: a flood. */
static bool count_frames(struct h2chan *c, const uint8_t *p, size_t n)
{
	int64_t now = clock_mono_ns();
	double left = c->noise + (double)(now - c->noise_ns) / (double)NS_PER_S * H2_NOISE_RATE;

	c->noise_ns = now;
	if (left > H2_NOISE_BURST)
		left = H2_NOISE_BURST;
	while (n) {
		size_t k = c->skip < n ? c->skip : n;

		c->skip -= k;
		p += k;
		n -= k;
		while (n && c->skip == 0 && c->hd_len < sizeof(c->hd)) {
			c->hd[c->hd_len++] = *p++;
			n--;
		}
		if (c->hd_len < sizeof(c->hd))
			continue;
		left -= cost(c->hd);
		if (left < 0)
			break;
		c->skip = (size_t)c->hd[0] << 16 | (size_t)c->hd[1] << 8 | c->hd[2];
		c->hd_len = 0;
	}
	c->noise = left;
	return left >= 0;
}

static void calm(struct h2chan *c)
{
	(void)nghttp2_session_terminate_session(c->s, NGHTTP2_ENHANCE_YOUR_CALM);
	c->flushing = true;
	flush_once(c);
	c->flushing = false;
	lose(c, H2_BROKEN);
}

void h2chan_feed(struct h2chan *c, const uint8_t *p, size_t n)
{
	ssize_t k;

	if (c->loss)
		return;
	if (c->wary && !count_frames(c, p, n)) {
		calm(c);
		return;
	}
	/* What the callbacks submit goes out in one write when the chunk is through. */
	c->flushing = true;
	k = nghttp2_session_mem_recv(c->s, p, n);
	c->flushing = false;
	c->heard_ns = clock_mono_ns();
	if (k < 0 || (size_t)k != n) {
		/* The library has queued a GOAWAY that says why; it goes out if there is room. */
		c->flushing = true;
		flush_once(c);
		c->flushing = false;
		lose(c, H2_BROKEN);
		return;
	}
	h2chan_flush(c);
}

static void on_in(struct loop_watch *w, uint32_t events)
{
	struct h2chan *c = (struct h2chan *)(void *)((char *)w - offsetof(struct h2chan, wi));

	if (events & EPOLLOUT)
		h2chan_flush(c);
	for (int i = 0; i < IN_TURNS && !c->loss && c->olen == c->ooff; i++) {
		ssize_t n = read(c->in, c->ibuf, IN_CHUNK);

		if (n > 0) {
			h2chan_feed(c, c->ibuf, (size_t)n);
			if ((size_t)n < IN_CHUNK)
				return;
		} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			return;
		} else {
			lose(c, n == 0 || errno == ECONNRESET ? H2_EOF : H2_IO);
		}
	}
	/* Unsent bytes and a peer that is gone: nobody will ever read them. */
	if (!c->loss && (events & (EPOLLHUP | EPOLLERR)) && c->olen > c->ooff)
		lose(c, H2_EOF);
}

static void on_out(struct loop_watch *w, uint32_t events)
{
	struct h2chan *c = (struct h2chan *)(void *)((char *)w - offsetof(struct h2chan, wo));

	if (events & (EPOLLERR | EPOLLHUP))
		lose(c, H2_EOF);
	else
		h2chan_flush(c);
}

static int unblock(int fd)
{
	int fl = fcntl(fd, F_GETFL);

	return fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0 ? -errno : 0;
}

int h2chan_init(struct h2chan *c, struct loop *l, int in, int out, nghttp2_session *s)
{
	int r = unblock(in);

	c->loop = l;
	c->in = in;
	c->out = out;
	c->s = s;
	c->wi.fd = c->wo.fd = -1;
	c->wo.ready = on_out;
	c->heard_ns = c->noise_ns = clock_mono_ns();
	c->noise = H2_NOISE_BURST;
	c->skip = NGHTTP2_CLIENT_MAGIC_LEN;
	c->obuf = malloc(OUT_CAP);
	c->ibuf = malloc(IN_CHUNK);
	if (!c->obuf || !c->ibuf)
		return -ENOMEM;
	if (r == 0 && out != in)
		r = unblock(out);
	return r < 0 ? r : loop_add(l, &c->wi, in, EPOLLIN, on_in);
}

void h2chan_done(struct h2chan *c)
{
	if (!c->loop)
		return;
	hang_up(c);
	nghttp2_session_del(c->s);
	c->s = NULL;
	free(c->obuf);
	free(c->ibuf);
	c->obuf = c->ibuf = NULL;
	c->loop = NULL;
}

int64_t h2chan_tick(struct h2chan *c, int64_t now)
{
	int64_t quiet = H2_PING_MS * NS_PER_MS, dead = H2_STALL_MS * NS_PER_MS;

	if (c->loss)
		return INT64_MAX;
	if (now - c->heard_ns >= dead) {
		lose(c, H2_STALL);
		return INT64_MAX;
	}
	/* Whatever comes in is a sign of life; a ping asks for one. */
	if (now - c->heard_ns >= quiet && c->pinged_ns <= c->heard_ns) {
		c->pinged_ns = now;
		(void)nghttp2_submit_ping(c->s, NGHTTP2_FLAG_NONE, NULL);
		h2chan_flush(c);
	}
	return c->pinged_ns > c->heard_ns ? c->heard_ns + dead : c->heard_ns + quiet;
}

int h2chan_session(const struct h2chan_kind *k, void *arg, nghttp2_session **ret)
{
	nghttp2_session_callbacks *cb = NULL;
	nghttp2_option *opt = NULL;
	int r = nghttp2_session_callbacks_new(&cb);

	if (r == 0)
		r = nghttp2_option_new(&opt);
	if (r == 0) {
		k->callbacks(cb);
		nghttp2_option_set_no_auto_window_update(opt, 1);
		if (k->options)
			k->options(opt);
		r = k->server ? nghttp2_session_server_new2(ret, cb, arg, opt)
			      : nghttp2_session_client_new2(ret, cb, arg, opt);
	}
	nghttp2_session_callbacks_del(cb);
	nghttp2_option_del(opt);
	return r == 0 ? 0 : -ENOMEM;
}

nghttp2_nv h2_pair(const char *name, size_t name_len, const char *value, size_t value_len)
{
	return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
			    .namelen = name_len,
			    .value = (uint8_t *)(uintptr_t)value,
			    .valuelen = value_len,
			    .flags = NGHTTP2_NV_FLAG_NONE};
}

const char *h2_loss_name(enum h2_loss l)
{
	static const char *const names[] = {"open",
					    "closed by the other end",
					    "input/output error",
					    "protocol error or flood",
					    "no answer to pings",
					    "done"};

	return (size_t)l < ARRAY_LEN(names) ? names[l] : "unknown";
}
