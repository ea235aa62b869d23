/* A run of the daemon while it goes on: its log, as it comes, to standard output and error; Ctrl-C; a daemon that is away. */
#include "cli/daemonrun_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "engine/interrupt.h"

#define LOOK_MS 50    /* between two looks whether a run is over */
#define ROOM_MS 500   /* between two tries for its log, when too many watch */
#define AWAY_MS 60000 /* a daemon that is started again is waited for that long */

/* A stream that cannot be written any more gets nothing further; the run's log has all. */
static void put_out(struct watch *w, int fd, const void *p, size_t n)
{
	bool *mute = &w->mute[fd == STDERR_FILENO];

	for (const char *at = p; n && !*mute;) {
		ssize_t k = write(fd, at, n);

		if (k < 0 && errno != EINTR && errno != EAGAIN)
			*mute = true;
		at += k > 0 ? k : 0;
		n -= (size_t)(k > 0 ? k : 0);
	}
}

static void put_bytes(struct watch *w, int fd, const json_t *j)
{
	const json_t *text = json_object_get(j, "text");
	const char *b64 = daemonrun_member(j, "base64");
	size_t n = strlen(b64), got = 0;
	_cleanup_free_ unsigned char *bin = NULL;

	if (text) {
		put_out(w, fd, json_string_value(text), json_string_length(text));
		return;
	}
	bin = malloc(n + 1);
	if (bin && sodium_base642bin(bin, n, b64, n, NULL, &got, NULL,
				     sodium_base64_VARIANT_ORIGINAL) == 0)
		put_out(w, fd, bin, got);
}

static void on_event(struct watch *w)
{
	json_t *j = w->data.len ? json_loadb(w->data.data, w->data.len, 0, NULL) : NULL;

	if (strcmp(w->event, "stdout") == 0)
		put_bytes(w, STDOUT_FILENO, j);
	else if (strcmp(w->event, "stderr") == 0)
		put_bytes(w, STDERR_FILENO, j);
	else if (strcmp(w->event, "end") == 0)
		w->ended = true;
	/* Notes are for the log: what of them a person must know is in the record. */
	json_decref(j);
	buf_reset(&w->data);
	w->event[0] = '\0';
}

static void on_line(struct watch *w, const char *p)
{
	if (!*p)
		on_event(w);
	else if (str_starts(p, "event: "))
		(void)snprintf(w->event, sizeof(w->event), "%s", p + 7);
	else if (str_starts(p, "id: "))
		(void)snprintf(w->at, sizeof(w->at), "%s", p + 4);
	else if (str_starts(p, "data: "))
		(void)buf_puts(&w->data, p + 6);
}

static int take(struct watch *w, struct view v)
{
	while (v.n) {
		const char *nl = memchr(v.p, '\n', v.n);
		size_t n = nl ? (size_t)(nl - v.p) : v.n;

		if (buf_put(&w->line, v.p, n) < 0)
			return -EPROTO;
		if (!nl)
			return 0;
		on_line(w, buf_text(&w->line));
		buf_reset(&w->line);
		v.p += n + 1;
		v.n -= n + 1;
	}
	return 0;
}

static int reopen(struct watch *w, struct err *e)
{
	char path[96];
	int r;

	(void)snprintf(path, sizeof(path), "/api/runs/%s/log%s%s", w->id, w->at[0] ? "?after=" : "",
		       w->at);
	buf_reset(&w->line);
	buf_reset(&w->data);
	w->event[0] = '\0';
	r = daemon_stream_open(w->d, path, &w->s, e);
	w->open = r == 0;
	return r;
}

/* What a signal asks for. 1: nobody watches any more. */
static int judge(struct watch *w, struct err *e)
{
	char path[64];
	json_t *answer = NULL;
	int status = 0;

	interrupt_ack();
	if (*interrupt_second())
		return 1;
	if (!*interrupt_first() || w->cancelled)
		return 0;
	w->cancelled = true;
	(void)snprintf(path, sizeof(path), "/api/runs/%s/cancel", w->id);
	if (daemon_ask(w->d, "POST", path, NULL, &status, &answer, e) < 0)
		return -1;
	json_decref(answer);
	if (status == 200 && !w->o->quiet)
		cli_say(
		    "cancelled; what it did is brought back. Ctrl-C again: stop watching, the run goes on");
	return 0;
}

static void pause_ms(int ms)
{
	struct pollfd p = {.fd = interrupt_fd(), .events = POLLIN};

	(void)poll(&p, 1, ms);
}

/* The daemon does not answer: it may be on its way back, and the run goes on without it. */
static int away(struct watch *w, struct err *e)
{
	int64_t now = clock_mono_ns();

	if (!w->lost_ns)
		w->lost_ns = now;
	if (now - w->lost_ns < AWAY_MS * NS_PER_MS) {
		pause_ms(LOOK_MS * 4);
		return 0;
	}
	return err_set(e, ERR_UNAVAILABLE,
		       "the daemon at %s went away; run %s goes on: 'airlock logs %s' on its side",
		       w->d->at.text, w->id, w->id);
}

/* The run as the daemon has it (owned), once it is over. */
static int look(struct watch *w, json_t **ret, struct err *e)
{
	char path[64];
	int status = 0, r;

	(void)snprintf(path, sizeof(path), "/api/runs/%s", w->id);
	r = daemon_ask(w->d, "GET", path, NULL, &status, ret, e);
	if (r < 0)
		return away(w, e);
	w->lost_ns = 0;
	if (status != 200)
		return daemon_refused(status, TAKE_PTR(*ret), "to tell of the run", e);
	if (json_is_string(json_object_get(*ret, "endedAt")))
		return 1;
	json_decref(TAKE_PTR(*ret));
	return 0;
}

/* What the stream has now. 1: that was all of it, 0: there may be more. */
static int drain(struct watch *w, struct err *e)
{
	struct view v;
	int r;

	while ((r = daemon_stream_next(&w->s, &v, e)) > 0)
		if (take(w, v) < 0)
			return err_set(e, ERR_PROTOCOL,
				       "the daemon's log of the run is no event stream");
	if (r == -ENODATA || r == -EPIPE || r == -EAGAIN) {
		daemon_stream_done(&w->s);
		w->open = false;
		w->crowded = r == -EAGAIN;
		return r == -ENODATA;
	}
	return r;
}

/*
 * So many watch that the daemon refuses the log for now (503): the run goes on all the same, so it is waited for, and its log read
 * when there is room. 0, or as look().
 */
static int wait_for_room(struct watch *w, json_t **ret, struct err *e)
{
	int r = look(w, ret, e);

	w->crowded = false;
	if (r < 0 || (r > 0 && !json_is_string(json_object_get(*ret, "startedAt"))))
		return r;
	if (r > 0) {
		/* A log that was not seen; whoever keeps the streams may keep them for days. */
		w->over_ns = w->over_ns ? w->over_ns : clock_mono_ns();
		if (clock_mono_ns() - w->over_ns > AWAY_MS * NS_PER_MS) {
			cli_say(
			    "too many watch at the daemon: 'airlock logs %s' on its side shows the rest",
			    w->id);
			return 1;
		}
		json_decref(TAKE_PTR(*ret));
	}
	pause_ms(ROOM_MS);
	return 0;
}

int daemonrun_follow(struct watch *w, json_t **ret, struct err *e)
{
	int r = 0;

	*ret = NULL;
	while (r == 0) {
		struct pollfd p[2] = {{.fd = interrupt_fd(), .events = POLLIN}, {.fd = -1}};
		bool all = w->ended;

		if (w->crowded && (r = wait_for_room(w, ret, e)) != 0)
			break;
		if (!w->open && !w->ended && reopen(w, e) < 0)
			r = away(w, e);
		p[1] = (struct pollfd){.fd = w->open ? w->s.fd : -1, .events = POLLIN};
		if (r == 0)
			(void)poll(p, 2, w->ended ? LOOK_MS : w->open ? -1 : 0);
		if (r == 0 && w->open && p[1].revents) {
			r = drain(w, e);
			/* The log of a run that never began has no end, its stream has. */
			all |= r > 0;
			r = r > 0 ? 0 : r;
		}
		if (r == 0 && (r = judge(w, e)) > 0)
			return 2;
		if (r == 0 && all)
			r = look(w, ret, e);
	}
	return r;
}
