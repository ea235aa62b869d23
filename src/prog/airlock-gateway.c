/*
 * airlock-gateway: HTTP/1.1 on a sandbox's loopback, carried to the host over a byte stream, or over files.
 *
 * Takes no arguments (but --version). Environment, as the peer's gateway: PAPERCLIP_API_BRIDGE_MODE (http2_v1, queue_v2),
 * PAPERCLIP_BRIDGE_HOST, _PORT, _NONCE; for a queue _QUEUE_DIR and _TOKEN. It binds exactly that port or exits with 1,
 * then says READY on standard output, which with standard input is the stream; only the standard error is for people.
 *
 * PAPERCLIP_BRIDGE_CONTROL=1: standard input is a unix socket instead, over which streams come as descriptors: a byte 'C' and
 * a number with each. When one is lost, the byte 'L' and its number ask for another. Its end says that none follows.
 *
 * Without a stream, and without hope of one, it goes on answering 503 for a while, so that clients hear why; when the host ends
 * it in order, so does this program.
 *
 * With the mode "forward" it is the port of the network proxy instead (guest/forward.h): standard input is that channel.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/nodump.h"
#include "base/str.h"
#include "base/version.h"
#include "guest/forward.h"
#include "guest/gate_h2.h"
#include "guest/gate_queue.h"
#include "os/gate.h"

#define PORT_MAX 65535
#define NONCE_MAX 128

struct gateway {
	struct loop loop;
	struct gate gate;
	struct gate_h2 *h2;
	struct gate_queue *queue;
	const char *nonce;
	struct loop_watch control; /* fd -1: streams are not handed over */
	struct loop_watch stream;  /* of a queue: tells only that the host is there */
	unsigned char number;	   /* of the stream that there is */
	bool controlled, up;
	int64_t end_ns; /* when a gateway without a channel ends */
};

static int bad(const char *name, const char *what)
{
	(void)fprintf(stderr, "airlock-gateway: %s: %s\n", name, what);
	return 2;
}

/* One line of JSON: nothing that would end the string may be in it. */
static bool is_nonce(const char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == '"' || s[i] == '\\')
			return false;
	return n > 0 && n <= NONCE_MAX;
}

static int say_ready(int fd, const char *nonce)
{
	char line[NONCE_MAX + 64];
	size_t at = 0, n;

	(void)snprintf(line, sizeof(line), "{\"version\":2,\"type\":\"ready\",\"nonce\":\"%s\"}\n",
		       nonce);
	n = strlen(line);
	while (at < n) {
		ssize_t k = write(fd, line + at, n - at);

		if (k < 0 && errno != EINTR)
			return -errno;
		if (k > 0)
			at += (size_t)k;
	}
	return 0;
}

/* Streams. --------------------------------------------------------------------------------- */

static void no_more(struct gateway *w)
{
	if (w->h2)
		gate_h2_last(w->h2);
	else
		gate_queue_last(w->queue);
}

static void lost(struct gateway *w, bool in_order)
{
	const unsigned char word[2] = {'L', w->number};

	w->up = false;
	if (w->control.fd >= 0) {
		(void)!send(w->control.fd, word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
		return;
	}
	no_more(w);
	w->end_ns = clock_mono_ns();
	if (!in_order)
		w->end_ns += GATE_LINGER_LOST_MS * NS_PER_MS;
}

/* Nothing is said on a queue's stream but READY. */
static void on_stream(struct loop_watch *l, uint32_t events)
{
	struct gateway *w =
	    (struct gateway *)(void *)((char *)l - offsetof(struct gateway, stream));
	int fd = l->fd;
	char c;
	ssize_t n = read(fd, &c, 1);

	(void)events;
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	loop_del(w->gate.loop, l);
	(void)close(fd);
	lost(w, false);
}

static int attach(struct gateway *w, int in, int out)
{
	int r = say_ready(out, w->nonce);

	if (r == 0 && w->h2)
		r = gate_h2_attach(w->h2, in, out);
	if (r == 0 && w->queue) {
		if (w->stream.fd >= 0) {
			int old = w->stream.fd;

			loop_del(w->gate.loop, &w->stream);
			(void)close(old);
		}
		r = loop_add(w->gate.loop, &w->stream, in, EPOLLIN, on_stream);
	}
	w->up = r == 0;
	return r;
}

static void on_control(struct loop_watch *l, uint32_t events)
{
	struct gateway *w =
	    (struct gateway *)(void *)((char *)l - offsetof(struct gateway, control));
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} u;
	unsigned char word[2];
	struct iovec iov = {word, sizeof(word)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = u.buf,
			   .msg_controllen = sizeof(u.buf)};
	ssize_t n = recvmsg(l->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	int fd = -1;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	if (n <= 0) {
		loop_del(w->gate.loop, l);
		no_more(w);
		if (!w->up && w->end_ns == INT64_MAX)
			w->end_ns = clock_mono_ns() + GATE_LINGER_LOST_MS * NS_PER_MS;
		return;
	}
	if (n != sizeof(word) || word[0] != 'C' || fd < 0) {
		cleanup_fd(&fd);
		return;
	}
	w->number = word[1];
	if (attach(w, fd, fd) < 0)
		lost(w, false);
}

/* Life. ------------------------------------------------------------------------------------ */

static int64_t carry(struct gateway *w, int64_t now)
{
	return w->h2 ? gate_h2_tick(w->h2, now) : gate_queue_tick(w->queue, now);
}

static void on_turn(void *arg, int64_t now)
{
	struct gateway *w = arg;
	int64_t next, due;

	(void)carry(w, now);
	if (w->h2 && w->up && !gate_h2_up(w->h2)) {
		lost(w, gate_h2_in_order(w->h2));
		(void)carry(w, now);
	}
	next = gate_tick(&w->gate, now);
	/* What clients sent meanwhile, and the room that they made; and what that in turn woke. */
	due = carry(w, now);
	if (w->gate.pending || (w->h2 ? gate_h2_pending(w->h2) : gate_queue_pending(w->queue)))
		next = 0;
	if (now >= w->end_ns)
		w->gate.loop->stop = true;
	next = due < next ? due : next;
	w->gate.loop->wake_ns = w->end_ns < next ? w->end_ns : next;
}

static int open_carrier(struct gateway *w, const char *mode)
{
	const struct gate_queue_config c = {.dir = getenv("PAPERCLIP_BRIDGE_QUEUE_DIR"),
					    .token = getenv("PAPERCLIP_BRIDGE_TOKEN")};
	int r;

	if (strcmp(mode, "queue_v2") != 0)
		return gate_h2_new(&w->gate, &w->h2);
	r = gate_queue_open(&w->gate, &c, &w->queue);
	if (r < 0)
		(void)fprintf(stderr, "airlock-gateway: queue %s: %s\n", c.dir, strerror(-r));
	return r;
}

static int serve(struct gateway *w, const char *mode, const struct gate_config *c)
{
	struct err e = ERR_INIT;
	int r = loop_init(&w->loop, &e);

	if (r < 0)
		return bad("start", e.text);
	w->gate.loop = &w->loop;
	r = gate_listen(&w->gate, c);
	if (r < 0) {
		(void)fprintf(stderr, "airlock-gateway: listen on %s port %u: %s\n", c->host,
			      c->port, strerror(-r));
		return 1;
	}
	r = open_carrier(w, mode);
	/* One socket on both descriptors counts once: the second is a copy of the first. */
	if (r == 0)
		r = w->controlled
			? loop_add(w->gate.loop, &w->control, STDIN_FILENO, EPOLLIN, on_control)
			: attach(w, STDIN_FILENO, STDOUT_FILENO);
	if (r < 0) {
		(void)fprintf(stderr, "airlock-gateway: channel: %s\n", strerror(-r));
		return 1;
	}
	r = loop_run(&w->loop, on_turn, w, &e);
	return r < 0 ? bad("loop", e.text) : 0;
}

int main(int argc, char **argv)
{
	const char *mode = getenv("PAPERCLIP_API_BRIDGE_MODE"),
		   *host = getenv("PAPERCLIP_BRIDGE_HOST"), *port = getenv("PAPERCLIP_BRIDGE_PORT"),
		   *nonce = getenv("PAPERCLIP_BRIDGE_NONCE"),
		   *control = getenv("PAPERCLIP_BRIDGE_CONTROL");
	struct gateway w = {.end_ns = INT64_MAX, .control.fd = -1, .stream.fd = -1};
	struct gate_config c = {.host = host && *host ? host : "127.0.0.1"};
	uint64_t p = 0;

	nodump();
	if (version_asked(argc, argv, "airlock-gateway", AIRLOCK_VERSION))
		return 0;
	(void)signal(SIGPIPE, SIG_IGN);
	if (!mode || (strcmp(mode, "http2_v1") != 0 && strcmp(mode, "queue_v2") != 0 &&
		      strcmp(mode, GATEWAY_MODE_FORWARD) != 0))
		return bad("PAPERCLIP_API_BRIDGE_MODE", "give http2_v1 or queue_v2");
	if (!port || str_to_u64(port, PORT_MAX, &p) < 0 || p == 0)
		return bad("PAPERCLIP_BRIDGE_PORT", "give a port, 1 to 65535");
	if (strcmp(mode, GATEWAY_MODE_FORWARD) == 0)
		return forward_serve(host && *host ? host : "127.0.0.1", (uint16_t)p, STDIN_FILENO);
	if (!nonce || !is_nonce(nonce))
		return bad("PAPERCLIP_BRIDGE_NONCE", "give the nonce of the run");
	if (strcmp(mode, "queue_v2") == 0 && !getenv("PAPERCLIP_BRIDGE_QUEUE_DIR"))
		return bad("PAPERCLIP_BRIDGE_QUEUE_DIR", "give the directory of the queue");
	if (strcmp(mode, "queue_v2") == 0 && !getenv("PAPERCLIP_BRIDGE_TOKEN"))
		return bad("PAPERCLIP_BRIDGE_TOKEN", "give the token of the run's bridge");
	w.controlled = control && strcmp(control, "1") == 0;
	w.nonce = nonce;
	c.port = (uint16_t)p;
	return serve(&w, mode, &c);
}
