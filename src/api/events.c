#include "api/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/view.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "store/event.h"

#define BATCH 64
#define TEXT_MAX 65536 /* of one batch: an event has some 300 bytes */

struct event_stream {
	struct call_stream base; /* first */
	int64_t last;		 /* number of the last event that was looked at */
};

static void put(struct buf *b, const struct event_row *v)
{
	(void)buf_putf(b, "id: %lld\nevent: %s\ndata: ", (long long)v->id, v->kind);
	view_text(b, "{\"type\":", v->kind);
	view_text(b, ",\"id\":", v->entity_id);
	view_text_or_null(b, ",\"companyId\":", v->company_id ? v->company_id : "");
	view_text_or_null(b, ",\"environmentId\":", v->environment_id ? v->environment_id : "");
	view_text(b, ",\"status\":", v->status);
	view_time(b, ",\"at\":", v->at_ns);
	(void)buf_puts(b, "}\n\n");
}

static int take(void *arg, const struct event_row *v)
{
	struct event_stream *s = arg;
	const struct actor *a = &s->base.c->actor;

	s->last = v->id;
	if (!v->company_id || actor_is_admin(a) || actor_in_company(a, v->company_id))
		put(&s->base.out, v);
	return 0;
}

/* The next batch; nothing else. */
static int fill(struct call_stream *base)
{
	struct event_stream *s = (struct event_stream *)base;
	struct api *a = base->c->api;
	struct buf *b = &base->out;
	int64_t first, last;
	struct err e = ERR_INIT;
	int r = event_range(a->db, &first, &last, &e);

	if (r == 0 && s->last + 1 < first) {
		/* Some were dropped before it came for them. */
		s->last = first - 1;
		(void)buf_puts(b, "event: gap\ndata: {}\n\n");
	}
	/* What is not for this actor is passed over, a batch at a time. */
	while (r == 0 && b->len == 0 && s->last < last)
		r = event_each(a->db, s->last, BATCH, take, s, &e);
	if (r < 0)
		(void)fprintf(stderr, "airlockd: events: %s\n", e.text);
	return r;
}

/* --- all streams -------------------------------------------------------------------------- */

static size_t watched_by(const struct api *a, const char *who)
{
	size_t n = 0;

	for (const struct call_stream *s = a->watching; s; s = s->next)
		n += strcmp(actor_id(&s->c->actor), who) == 0;
	return n;
}

bool stream_admit(struct call *c)
{
	if (c->api->streams >= API_STREAMS_MAX)
		(void)reply_errorf(c, 503, "%d clients watch already", API_STREAMS_MAX);
	else if (watched_by(c->api, actor_id(&c->actor)) >= API_STREAMS_OWN_MAX)
		(void)reply_errorf(c, 503, "You have %d streams open already", API_STREAMS_OWN_MAX);
	else
		return true;
	return false;
}

int stream_begin(struct call *c, struct call_stream *s)
{
	s->c = c;
	s->ping_ns = clock_mono_ns() + EVENTS_PING_MS * NS_PER_MS;
	s->next = c->api->watching;
	c->api->watching = s;
	c->api->streams++;
	c->stream = s;
	c->status = 200;
	c->type = "text/event-stream; charset=utf-8";
	return API_STREAM;
}

void stream_end(struct call_stream *s)
{
	struct call_stream **at = &s->c->api->watching;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->c->api->streams--;
	if (s->done)
		s->done(s);
	buf_done(&s->out);
	free(s);
}

/* Proves the actor again, also as long as nothing happens: who may not watch any more does not. */
static int ping(struct call_stream *s, int64_t now)
{
	if (api_authorise(s->c->api, s->c) || s->c->denied || (s->may && !s->may(s)))
		return -1;
	s->ping_ns = now + EVENTS_PING_MS * NS_PER_MS;
	(void)buf_puts(&s->out, ":\n\n");
	return 0;
}

static int refill(struct call_stream *s)
{
	int64_t now = clock_mono_ns();

	buf_reset(&s->out);
	s->taken = 0;
	if (now >= s->ping_ns && ping(s, now) < 0)
		return -1;
	return s->fill(s) < 0 || s->out.err ? -1 : 0;
}

ssize_t stream_read(struct call_stream *s, char *out, size_t n)
{
	size_t left;

	if (s->c->api->stopping || (s->taken == s->out.len && refill(s) < 0))
		return -1;
	left = s->out.len - s->taken;
	if (n > left)
		n = left;
	if (n)
		memcpy(out, s->out.data + s->taken, n);
	s->taken += n;
	return (ssize_t)n;
}

int64_t events_look(struct api *a, int64_t now_ns, bool *ret_wake)
{
	int64_t first, last = 0;
	struct err e = ERR_INIT;

	*ret_wake = a->stopping;
	if (!a->streams)
		return INT64_MAX;
	if (now_ns < a->events_look_ns && !a->stopping)
		return a->events_look_ns;
	a->events_look_ns = now_ns + EVENTS_LOOK_MS * NS_PER_MS;
	if (event_range(a->db, &first, &last, &e) < 0)
		return a->events_look_ns;
	*ret_wake =
	    a->stopping || a->following || last != a->events_last || now_ns >= a->events_ping_ns;
	a->events_last = last;
	if (now_ns >= a->events_ping_ns)
		a->events_ping_ns = now_ns + EVENTS_PING_MS / 4 * NS_PER_MS;
	return a->events_look_ns;
}

int h_events(struct call *c)
{
	const char *after = call_query(c, "after") ? call_query(c, "after") : c->head.last_event;
	struct event_stream *s;
	struct err e = ERR_INIT;
	int64_t first, last;
	uint64_t from = 0;

	if (after && after[0] && str_to_u64(after, INT64_MAX, &from) < 0)
		return reply_error(c, 400, "after is the number of an event");
	if (!stream_admit(c))
		return 0;
	if (event_range(c->api->db, &first, &last, &e) < 0)
		return reply_failed(c, &e);
	if (c->method == METHOD_HEAD)
		return reply_json(c, 200, json_object());
	s = calloc(1, sizeof(*s));
	if (!s)
		return reply_error(c, 503, "Out of memory, try again");
	s->base.fill = fill;
	s->base.out = BUF_INIT(TEXT_MAX);
	/* A number that was never given is of another database: from now on, then. */
	s->last = after && after[0] && (int64_t)from <= last ? (int64_t)from : last;
	/* At once, so that the client knows that from here on it misses nothing. */
	(void)buf_putf(&s->base.out, "retry: 2000\nid: %lld\n: watching\n\n", (long long)s->last);
	return stream_begin(c, &s->base);
}
