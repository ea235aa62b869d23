/*
 * airlock-gateway: HTTP/1.1 on a sandbox's loopback, carried to the host over standard input and output.
 *
 * Takes no arguments (but --version). Environment, as the peer's gateway: PAPERCLIP_API_BRIDGE_MODE,
 * PAPERCLIP_BRIDGE_HOST, _PORT, _NONCE. It binds exactly that port or exits with 1, then says READY on standard output;
 * from there on these are the bytes of the channel, and only the standard error is for people. When the channel is lost it
 * goes on answering 503 for a while, so that clients hear why; when the host ends it in order, so does this program.
 *
 * With the mode "forward" it is the port of the network proxy instead (guest/forward.h): standard input is that channel.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/version.h"
#include "guest/forward.h"
#include "guest/gate.h"
#include "guest/gate_h2.h"

#define PORT_MAX 65535
#define NONCE_MAX 128

struct gateway {
	struct gate gate;
	struct gate_h2 *h2;
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

static int say_ready(const char *nonce)
{
	char line[NONCE_MAX + 64];
	size_t at = 0, n;

	(void)snprintf(line, sizeof(line), "{\"version\":2,\"type\":\"ready\",\"nonce\":\"%s\"}\n",
		       nonce);
	n = strlen(line);
	while (at < n) {
		ssize_t k = write(STDOUT_FILENO, line + at, n - at);

		if (k < 0 && errno != EINTR)
			return -errno;
		if (k > 0)
			at += (size_t)k;
	}
	return 0;
}

static void on_turn(void *arg, int64_t now)
{
	struct gateway *w = arg;
	int64_t next, due;

	(void)gate_h2_tick(w->h2, now);
	if (gate_h2_lost(w->h2) && w->end_ns == INT64_MAX) {
		gate_h2_fail_all(w->h2);
		w->end_ns = gate_h2_in_order(w->h2) ? now : now + GATE_LINGER_LOST_MS * NS_PER_MS;
	}
	next = gate_tick(&w->gate, now);
	/* What clients sent meanwhile, and the room that they made; and what that in turn woke. */
	due = gate_h2_tick(w->h2, now);
	if (w->gate.pending || gate_h2_pending(w->h2))
		next = 0;
	if (now >= w->end_ns)
		w->gate.loop.stop = true;
	next = due < next ? due : next;
	w->gate.loop.wake_ns = w->end_ns < next ? w->end_ns : next;
}

static int serve(struct gateway *w, const char *host, uint16_t port, const char *nonce)
{
	const struct gate_config c = {.host = host, .port = port};
	struct err e = ERR_INIT;
	int r = loop_init(&w->gate.loop, &e);

	if (r < 0)
		return bad("start", e.text);
	r = gate_listen(&w->gate, &c);
	if (r < 0) {
		(void)fprintf(stderr, "airlock-gateway: listen on %s port %u: %s\n", host, port,
			      strerror(-r));
		return 1;
	}
	r = say_ready(nonce);
	/* One socket on both descriptors counts once: the second is a copy of the first. */
	if (r == 0)
		r = gate_h2_open(&w->gate, STDIN_FILENO, STDOUT_FILENO, &w->h2);
	if (r < 0) {
		(void)fprintf(stderr, "airlock-gateway: channel: %s\n", strerror(-r));
		return 1;
	}
	r = loop_run(&w->gate.loop, on_turn, w, &e);
	return r < 0 ? bad("loop", e.text) : 0;
}

int main(int argc, char **argv)
{
	const char *mode = getenv("PAPERCLIP_API_BRIDGE_MODE"),
		   *host = getenv("PAPERCLIP_BRIDGE_HOST"), *port = getenv("PAPERCLIP_BRIDGE_PORT"),
		   *nonce = getenv("PAPERCLIP_BRIDGE_NONCE");
	struct gateway w = {.end_ns = INT64_MAX};
	uint64_t p = 0;

	if (version_asked(argc, argv, "airlock-gateway", AIRLOCK_VERSION))
		return 0;
	(void)signal(SIGPIPE, SIG_IGN);
	if (!mode || (strcmp(mode, "http2_v1") != 0 && strcmp(mode, GATEWAY_MODE_FORWARD) != 0))
		return bad("PAPERCLIP_API_BRIDGE_MODE", "give http2_v1");
	if (!port || str_to_u64(port, PORT_MAX, &p) < 0 || p == 0)
		return bad("PAPERCLIP_BRIDGE_PORT", "give a port, 1 to 65535");
	if (strcmp(mode, GATEWAY_MODE_FORWARD) == 0)
		return forward_serve(host && *host ? host : "127.0.0.1", (uint16_t)p, STDIN_FILENO);
	if (!nonce || !is_nonce(nonce))
		return bad("PAPERCLIP_BRIDGE_NONCE", "give the nonce of the run");
	return serve(&w, host && *host ? host : "127.0.0.1", (uint16_t)p, nonce);
}
