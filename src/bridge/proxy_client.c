#include "bridge/proxy_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "bridge/hear.h"

#define WAIT_MS 15000
#define STOP_MS 3000

static void lose(void *client, const char *why)
{
	struct proxy_client *c = client;

	if (c->lost)
		return;
	c->lost = true;
	(void)snprintf(c->why, sizeof(c->why), "%s", why);
}

static void take_refused(struct proxy_client *c, struct cursor cur)
{
	_cleanup_free_ char *place = cursor_strdup(&cur, 512), *rule = cursor_strdup(&cur, 64);

	if (place && rule && strv_len(c->refused) < 2 * (size_t)PROXY_REFUSED_MAX &&
	    strv_add(&c->refused, place) == 0)
		(void)strv_add(&c->refused, rule);
}

static void take(void *client, const struct frame *f)
{
	struct proxy_client *c = client;
	_cleanup_free_ char *text = NULL;
	struct cursor cur;

	cursor_init(&cur, f->payload.p, f->payload.n);
	if (f->type == PF_READY) {
		c->ready = true;
	} else if (f->type == PF_REFUSED) {
		take_refused(c, cur);
	} else if (f->type == PF_DONE) {
		c->done = proxy_get_counts(f->payload, &c->counts) == 0;
		lose(c, "stopped");
	} else if (f->type == PF_LOST || f->type == PF_ERROR) {
		if (f->type == PF_ERROR)
			(void)cursor_u32(&cur);
		text = cursor_strdup(&cur, 4096);
		lose(c, text ? text : "airlock-proxy sent a malformed message");
	}
}

static struct hear ear(struct proxy_client *c)
{
	return (struct hear){&c->ch, "airlock-proxy", c, take, lose, &c->ready, &c->lost};
}

int proxy_client_start(struct proxy_client *c, const struct proxy_setup *s, int channel, int audit,
		       struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	const int fds[2] = {channel, audit};
	int64_t deadline = clock_mono_ns() + WAIT_MS * NS_PER_MS;
	const struct hear ears = ear(c);
	struct frame f;
	int r;

	*c = (struct proxy_client){0};
	chan_init(&c->ch, -1, false);
	r = helper_start(&c->helper, "airlock-proxy", &c->ch, e);
	if (r == 0)
		r = proxy_put_setup(&b, s);
	if (r == 0)
		r = chan_send(&c->ch, PF_SETUP, b.data, b.len, fds, audit >= 0 ? 2 : 1, deadline,
			      e);
	if (r < 0)
		return r;
	if (!hear_frame(&ears, deadline, &f) && !c->lost)
		return err_set(e, ERR_TIMEOUT, "airlock-proxy was not ready within %d ms", WAIT_MS);
	if (c->lost)
		return err_set(e, ERR_UNAVAILABLE, "network proxy: %s", c->why);
	return f.type == PF_CONFINED
		   ? 0
		   : err_set(e, ERR_PROTOCOL,
			     "airlock-proxy speaks another version: install Airlock again");
}

int proxy_client_ready(struct proxy_client *c, struct err *e)
{
	int64_t deadline = clock_mono_ns() + WAIT_MS * NS_PER_MS;
	const struct hear ears = ear(c);

	return hear_ready(&ears, deadline, "the port inside was not ready in time")
		   ? 0
		   : err_set(e, ERR_UNAVAILABLE, "network proxy: %s", c->why);
}

void proxy_client_poll(struct proxy_client *c)
{
	const struct hear ears = ear(c);
	struct frame f;

	while (c->helper.started && hear_frame(&ears, 0, &f))
		;
}

void proxy_client_stop(struct proxy_client *c)
{
	int64_t deadline = clock_mono_ns() + STOP_MS * NS_PER_MS;
	const struct hear ears = ear(c);
	struct frame f;

	if (!c->helper.started)
		return;
	if (chan_send(&c->ch, PF_STOP, NULL, 0, NULL, 0, deadline, NULL) == 0)
		while (!c->done && hear_frame(&ears, deadline, &f))
			;
	chan_done(&c->ch);
	helper_kill(&c->helper);
}

void proxy_client_done(struct proxy_client *c)
{
	proxy_client_stop(c);
	strv_free(c->refused);
	c->refused = NULL;
}
