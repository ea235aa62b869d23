/* A session of ssh from its first byte: the login shell, our script, the program that it may lack, until the guest speaks. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "provider/ssh/link_internal.h"

enum { P_UP, P_ERR, P_OUT, P_IN, P_MUX };

int link_nonce(char out[SCRIPT_NONCE + 1])
{
	uint8_t raw[SCRIPT_NONCE / 2];

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -EIO;
	str_hex(out, raw, sizeof(raw));
	return 0;
}

/* What the shell prints is taken whoever waits for it: one that is full of it would read nothing from us either. */
static void hear_shell(struct link *l)
{
	char *to = buf_room(&l->got, LINK_CHUNK);
	ssize_t k = to ? read(l->out, to, LINK_CHUNK) : -1;

	if (!to)
		l->how = LINK_NOISE;
	else if (k > 0)
		buf_add(&l->got, (size_t)k);
	else
		l->shut = k == 0 || (errno != EAGAIN && errno != EINTR);
}

/* It has nothing to say before we are ready: it has gone. */
static void hear_end(struct link *l, short revents)
{
	struct frame f;

	if (revents && chan_recv(&l->up, 0, &f, NULL, NULL) != -EAGAIN) {
		l->orphan = true;
		l->how = LINK_CUT;
	}
}

/* Of a session that goes on, its channels and airlock are served meanwhile. */
static void serve_rest(struct link *l, const struct pollfd *p, size_t n, short up)
{
	if (mux_run(&l->mux, p, n) < 0)
		l->how = LINK_BROKEN;
	link_say_due(l);
	link_up_run(l, up);
	if (l->ending)
		l->how = LINK_CUT;
}

/* Waits for ssh's output, and for airlock. False: l->how says what is over. */
static bool wait_shell(struct link *l, int64_t until, short more)
{
	struct pollfd p[P_MUX + MUX_FDS] = {
	    [P_UP] =
		l->away.on ? link_up_poll(l) : (struct pollfd){.fd = l->up.fd, .events = POLLIN},
	    [P_ERR] = {.fd = l->err, .events = POLLIN},
	    [P_OUT] = {.fd = l->shut ? -1 : l->out, .events = POLLIN},
	    [P_IN] = {.fd = more ? l->in : -1, .events = more}};
	size_t n = l->away.on ? mux_poll(&l->mux, p + P_MUX) : 0;
	int64_t now = clock_mono_ns();

	/* The clock itself is asked: a shell that goes on printing never lets a wait run out. */
	if (now >= until || poll(p, P_MUX + n, clock_poll_ms(until, now)) == 0) {
		l->how = LINK_SILENT;
		return false;
	}
	if (p[P_ERR].revents)
		link_hear_stderr(l);
	if (p[P_OUT].revents)
		hear_shell(l);
	if (l->how)
		return false;
	if (l->away.on)
		serve_rest(l, p + P_MUX, n, p[P_UP].revents);
	else
		hear_end(l, p[P_UP].revents);
	return !l->how;
}

/* From now on; of a try to reach a session again, no later than its end. */
static int64_t until_of(const struct link *l, uint32_t ms)
{
	int64_t until = clock_mono_ns() + (int64_t)ms * NS_PER_MS;

	return l->away.on && l->away.try_until_ns < until ? l->away.try_until_ns : until;
}

/* What the script, or the noise before it, says next. */
static enum script_word hear_script(struct link *l, int64_t until)
{
	struct view detail = {0};
	size_t used;

	do {
		enum script_word w = SCRIPT_NOTHING;

		/* What came while we wrote is there already. */
		if (l->got.len)
			w = script_find(l->got.data, l->got.len, l->nonce, &used, &detail);
		if (w == SCRIPT_FAIL) {
			buf_reset(&l->said);
			(void)buf_put(&l->said, detail.p,
				      detail.n < LINK_SAID_KEEP ? detail.n : LINK_SAID_KEEP);
			l->how = LINK_REFUSED;
			return w;
		}
		if (w != SCRIPT_NOTHING) {
			buf_drop(&l->got, used);
			return w;
		}
		if (l->shut) {
			l->how = LINK_NO_SHELL;
			return w;
		}
	} while (wait_shell(l, until, 0));
	return SCRIPT_NOTHING;
}

/* Everything, while the shell may still say that it cannot take it. */
static bool send_bytes(struct link *l, const char *p, size_t n, int64_t until)
{
	while (n) {
		ssize_t k = write(l->in, p, n);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		} else if (k < 0 && errno == EAGAIN) {
			if (!wait_shell(l, until, POLLOUT))
				return false;
		} else if (k < 0 && errno != EINTR) {
			l->how = LINK_NO_SHELL;
			return false;
		}
	}
	return true;
}

static bool send_program(struct link *l, int64_t until)
{
	char chunk[LINK_CHUNK];
	uint64_t at = 0;

	while (at < l->setup.size) {
		ssize_t k = pread(l->program, chunk, sizeof(chunk), (off_t)at);

		if (k <= 0 || (uint64_t)k > l->setup.size - at) {
			l->how = LINK_BROKEN;
			return false;
		}
		if (!send_bytes(l, chunk, (size_t)k, until))
			return false;
		at += (uint64_t)k;
	}
	return true;
}

bool link_dial(struct link *l)
{
	int64_t until = until_of(l, l->setup.shell_ms);
	char line[512];
	enum script_word w;
	int n = snprintf(line, sizeof(line), "%s %s %llu %s\n", l->nonce, l->setup.hash,
			 (unsigned long long)l->setup.size, l->setup.machine);

	if (n >= (int)sizeof(line)) {
		l->how = LINK_BROKEN;
		return false;
	}
	/* Where ssh cannot connect this may find nobody who reads: what it says later is the reason. */
	(void)send_bytes(l, line, (size_t)n, until);
	l->how = 0;
	w = hear_script(l, until);
	/* What it has may be removed under it: then it asks for it. */
	for (int i = 0; !l->how && w != SCRIPT_READY && i < SCRIPT_TURNS; i++) {
		until = until_of(l, l->setup.upload_ms);
		if (!send_bytes(l, "go\n", 3, until))
			return false;
		if (w == SCRIPT_NEED && !send_program(l, until))
			return false;
		w = hear_script(l, until);
	}
	if (!l->how && w != SCRIPT_READY)
		l->how = LINK_BROKEN;
	return !l->how;
}

bool link_dial_frame(struct link *l, struct frame *ret)
{
	int64_t until = until_of(l, l->setup.silent_ms);
	long n;

	while ((n = frame_parse(l->got.data, l->got.len, ret)) == 0)
		if (l->shut || !wait_shell(l, until, 0)) {
			l->how = l->how ? l->how : LINK_CUT;
			return false;
		}
	if (n < 0)
		l->how = LINK_BROKEN;
	return n > 0;
}

bool link_dial_send(struct link *l, const char *p, size_t n)
{
	return send_bytes(l, p, n, until_of(l, l->setup.silent_ms));
}
