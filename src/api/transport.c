#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/events.h"
#include "api/server_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

/* --- answers ------------------------------------------------------------------------------ */

static void header(struct MHD_Response *r, const char *name, const char *value)
{
	if (value && value[0])
		(void)MHD_add_response_header(r, name, value);
}

static bool fits(const struct api *a, size_t n)
{
	return n <= API_BODY_SMALL || a->server->held == 0 || a->server->held + n <= API_HELD_MAX;
}

/* A quarter for each: nobody's bodies that do not come, or answers that are not taken, keep everybody else's out. */
static bool fits_own(const struct api *a, const struct transport *t, size_t n, bool answers)
{
	size_t sum = 0;

	if (n <= API_BODY_SMALL)
		return true;
	for (const struct conn *c = a->server->conns; c; c = c->next)
		if (c->now && c->now != t && (answers || !c->now->queued) &&
		    strcmp(actor_id(&c->now->call.actor), actor_id(&t->call.actor)) == 0)
			sum += c->now->held;
	return !sum || sum + n <= API_HELD_OWN_MAX;
}

/* Of a transport only one thing is held at a time: its body, then its answer. */
static void hold(struct api *a, struct transport *t, size_t n)
{
	a->server->held -= t->held;
	t->held = n > API_BODY_SMALL ? n : 0;
	a->server->held += t->held;
}

static void allow_ms(struct transport *t, int64_t ms)
{
	if (t->conn)
		t->conn->until_ns = clock_mono_ns() + ms * NS_PER_MS;
}

/* Its certificate is an old one: the next request comes with the new one. */
static bool retired(const struct transport *t)
{
	return t->conn && t->conn->by->retired;
}

static enum MHD_Result queue(struct api *a, struct transport *t)
{
	struct call *c = &t->call;
	char *text, total[24] = "";
	struct MHD_Response *r;
	enum MHD_Result ok;
	size_t n;

	/* Nothing that changed something is answered as if it had not. */
	if ((c->method & METHODS_SAFE) &&
	    (!fits(a, c->out.len) || !fits_own(a, t, c->out.len, true))) {
		buf_done(&c->out);
		(void)reply_error(c, 503, "Too many large answers wait to be taken, try again");
	}
	n = c->out.len;
	text = buf_take(&c->out);
	hold(a, t, n);
	if (!text) {
		c->status = 500;
		n = 0;
	}
	r = MHD_create_response_from_buffer(n, text ? (void *)text : (void *)(uintptr_t) "",
					    text ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	if (!r) {
		free(text);
		return MHD_NO;
	}
	if (c->total >= 0)
		(void)snprintf(total, sizeof(total), "%lld", (long long)c->total);
	header(r, "Content-Type", c->type);
	header(r, "Cache-Control", "no-store");
	header(r, "X-Content-Type-Options", "nosniff");
	header(r, "Allow", c->allow);
	header(r, "Set-Cookie", c->cookie);
	header(r, "X-Total-Count", total);
	header(r, "Retry-After", c->status == 503 ? "1" : NULL);
	if (a->stopping || retired(t))
		header(r, "Connection", "close");
	ok = MHD_queue_response(t->mhd, c->status, r);
	MHD_destroy_response(r);
	t->queued = true;
	allow_ms(t, API_ANSWER_MS);
	a->n.requests++;
	a->n.by_class[c->status / 100 < 6 ? c->status / 100 : 5]++;
	return ok;
}

void call_finish(struct call *c)
{
	struct transport *t = c->transport;

	t->answered = true;
	t->waiting = false;
	MHD_resume_connection(t->mhd);
	c->api->server->more = true;
}

/* --- streams ------------------------------------------------------------------------------ */

static ssize_t read_stream(void *cls, uint64_t pos, char *out, size_t n)
{
	struct transport *t = cls;
	/* Whoever watches comes back with the number of the last event, and misses nothing. */
	ssize_t k = retired(t) ? -1 : stream_read(t->call.stream, out, n);

	(void)pos;
	if (k < 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	allow_ms(t, API_ANSWER_MS);
	if (k == 0) {
		t->asleep = true;
		if (t->conn)
			t->conn->until_ns = INT64_MAX;
		MHD_suspend_connection(t->mhd);
	}
	return k;
}

static enum MHD_Result begin_stream(struct api *a, struct transport *t)
{
	struct MHD_Response *r =
	    MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, t, NULL);
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	header(r, "Content-Type", t->call.type);
	header(r, "Cache-Control", "no-store");
	header(r, "X-Content-Type-Options", "nosniff");
	/* A proxy that collects before it passes on would make a stream of nothing. */
	header(r, "X-Accel-Buffering", "no");
	ok = MHD_queue_response(t->mhd, t->call.status, r);
	MHD_destroy_response(r);
	t->queued = true;
	t->streams = true;
	t->next = a->server->streams;
	if (t->next)
		t->next->prev = t;
	a->server->streams = t;
	allow_ms(t, API_ANSWER_MS);
	a->n.requests++;
	a->n.by_class[t->call.status / 100]++;
	return ok;
}

static void end_stream(struct api *a, struct transport *t)
{
	if (t->streams) {
		if (t->prev)
			t->prev->next = t->next;
		else
			a->server->streams = t->next;
		if (t->next)
			t->next->prev = t->prev;
	}
	if (t->call.stream)
		stream_end(t->call.stream);
	t->call.stream = NULL;
}

void transport_wake_streams(struct api *a)
{
	for (struct transport *t = a->server->streams; t; t = t->next) {
		if (!t->asleep)
			continue;
		t->asleep = false;
		MHD_resume_connection(t->mhd);
		a->server->more = true;
	}
}

/* --- requests ----------------------------------------------------------------------------- */

/*
 * The library takes "Authorization : x" and control bytes in a value, which who stands before us may have read otherwise. It
 * also joins folded lines, ends one at a bare LF and a value at a NUL; of those nothing is left to see here.
 */
static bool line_ok(const char *name, size_t name_len, const char *value, size_t value_len)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	for (size_t i = 0; i < name_len; i++)
		if (!name[i] || !strchr(token, name[i]))
			return false;
	for (size_t i = 0; i < value_len; i++)
		if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
			return false;
	return name_len > 0;
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *name,
				   size_t name_len, const char *value, size_t value_len)
{
	struct call_head *h = cls;
	const struct {
		const char *name, **at;
	} known[] = {
	    {"Host", &h->host},
	    {"Origin", &h->origin},
	    {"Referer", &h->referer},
	    {"Authorization", &h->authorization},
	    {"Cookie", &h->cookie},
	    {"Content-Type", &h->content_type},
	    {"Content-Encoding", &h->content_encoding},
	    {"Content-Length", &h->content_length},
	    {"Transfer-Encoding", &h->transfer_encoding},
	    {"X-Paperclip-Run-Id", &h->run_id},
	    {"X-Forwarded-Host", &h->forwarded_host},
	    {"Last-Event-ID", &h->last_event},
	};

	(void)kind;
	if (!line_ok(name, name_len, value ? value : "", value_len)) {
		h->malformed = true;
		return MHD_NO;
	}
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcasecmp(known[i].name, name) != 0)
			continue;
		/* Two of them: whatever stands before us may have judged the other one. */
		h->repeated |= *known[i].at != NULL;
		*known[i].at = value ? value : "";
	}
	return MHD_YES;
}

/* The target as it was sent: called once, before the headers are there. */
void *transport_begin(void *cls, const char *uri, struct MHD_Connection *connection)
{
	struct api *a = cls;
	struct transport *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->mhd = connection;
	t->target = strdup(uri);
	t->call = (struct call){.api = a,
				.status = 500,
				.total = -1,
				.out = BUF_INIT(API_RESPONSE_MAX),
				.transport = t};
	a->server->active++;
	return t;
}

void transport_ended(void *cls, struct MHD_Connection *connection, void **con_cls,
		     enum MHD_RequestTerminationCode code)
{
	struct api *a = cls;
	struct transport *t = *con_cls;

	(void)connection;
	(void)code;
	if (!t)
		return;
	a->server->active--;
	hold(a, t, 0);
	end_stream(a, t);
	allow_ms(t, API_REQUEST_MS);
	if (t->conn)
		t->conn->now = NULL;
	call_done(&t->call);
	buf_done(&t->body);
	free(t->target);
	free(t);
	*con_cls = NULL;
}

/* Whether who asks is to be seen first, and cannot be yet (peer.h): then the request waits, and the others do not. */
static bool waits_for_judge(struct api *a, struct transport *t)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(t->mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	int64_t due;

	t->conn = info ? info->socket_context : NULL;
	if (!t->conn || t->conn->cut || a->stopping || a->cfg.mode != MODE_LOCAL_TRUSTED ||
	    MHD_lookup_connection_value(t->mhd, MHD_HEADER_KIND, "Authorization"))
		return false;
	due = peer_due(&a->judge, &t->conn->peer, clock_mono_ns());
	if (!due)
		return false;
	t->conn->judge_ns = due;
	t->conn->waits = t->mhd;
	MHD_suspend_connection(t->mhd);
	return true;
}

void transport_judge_again(struct api *a, struct conn *c)
{
	MHD_resume_connection(c->waits);
	c->waits = NULL;
	a->server->more = true;
}

static enum MHD_Result first(struct api *a, struct transport *t, const char *method)
{
	int m = method_parse((struct view){method, strlen(method)});
	size_t len;

	t->begun = true;
	if (t->conn)
		t->conn->now = t;
	t->call.peer = t->conn ? &t->conn->peer : NULL;
	t->call.method = m > 0 ? (enum method)m : 0;
	(void)MHD_get_connection_values_n(t->mhd, MHD_HEADER_KIND, take_header, &t->call.head);
	t->refused = !t->target || api_admit(a, &t->call, t->target);
	len = t->call.body_len;
	if (!t->refused && (!fits(a, len) || !fits_own(a, t, len, false))) {
		(void)reply_error(&t->call, 503, "Too many large requests at once, try again");
		t->refused = true;
	}
	if (!t->refused) {
		hold(a, t, len);
		t->body = BUF_INIT(len ? len : 1);
		/* At once, so that it never grows by copies; memory comes with the bytes. */
		if (len && !buf_room(&t->body, len))
			t->body.err = -ENOMEM;
	}
	if (!t->refused || (len && len <= API_BODY_SMALL))
		return MHD_YES;
	/* Answered before the body is read: the connection ends with it. */
	return queue(a, t);
}

enum MHD_Result transport_step(void *cls, struct MHD_Connection *connection, const char *url,
			       const char *method, const char *version, const char *upload_data,
			       size_t *upload_data_size, void **con_cls)
{
	struct api *a = cls;
	struct transport *t = *con_cls;
	int64_t from;
	int r = 0;

	(void)url;
	(void)version;
	(void)connection;
	if (!t)
		return MHD_NO;
	if (!t->begun)
		return waits_for_judge(a, t) ? MHD_YES : first(a, t, method);
	if (*upload_data_size) {
		if (!t->queued && !t->refused)
			(void)buf_put(&t->body, upload_data, *upload_data_size);
		*upload_data_size = 0;
		return MHD_YES;
	}
	if (t->queued)
		return MHD_YES;
	if (t->answered || t->refused)
		return queue(a, t);
	if (t->waiting)
		return MHD_YES;
	if (t->conn)
		t->conn->until_ns = INT64_MAX;
	from = clock_mono_ns();
	if (t->body.err)
		(void)reply_error(&t->call, 503, "Out of memory, try again");
	else
		r = api_dispatch(a, &t->call, t->body.data, t->body.len);
	t->waiting = r == API_LATER;
	a->n.busy_ns += clock_mono_ns() - from;
	buf_done(&t->body);
	hold(a, t, 0);
	if (t->waiting) {
		MHD_suspend_connection(t->mhd);
		return MHD_YES;
	}
	/* Not with the connection: its client may be slow to take the answer. */
	json_decref(t->call.body);
	t->call.body = NULL;
	return r == API_STREAM ? begin_stream(a, t) : queue(a, t);
}
