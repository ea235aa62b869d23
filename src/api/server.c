#include "api/server.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/events.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define ACCEPTED 64	   /* connections that a turn of the loop lets in by one door */
#define MADE_ROOM 16	   /* that are cut at once where there is no room */
#define DOOR_FULL_MS 20	   /* and none could be cut */
#define DOOR_BROKEN_MS 200 /* out of descriptors, or of memory */

/* One connection: until when it may take for its request, or for taking the answer. */
struct conn {
	struct conn *next, *prev;
	struct peer peer;
	int64_t until_ns; /* monotonic; INT64_MAX while a request is being answered */
	struct MHD_Connection
	    *waits; /* its first request, until it can be judged who that is; NULL: none does */
	int64_t judge_ns;      /* when that is */
	struct transport *now; /* its request; NULL: none */
	bool cut;
};

/* One request: what libmicrohttpd hands back to us at each step of it. */
struct transport {
	struct call call;
	char *target; /* owned */
	struct MHD_Connection *mhd;
	struct conn *conn;
	struct buf body;
	size_t held; /* its part of api_server.held */
	bool begun, answered, waiting, queued;
	struct transport *next, *prev; /* of those that stream */
	bool streams, asleep;
	bool refused; /* answered by its head: the body is dropped as it comes */
};

/* One listening socket. We accept, and libmicrohttpd serves: it would stop at its bound, whoever holds the places. */
struct door {
	struct loop_watch watch;  /* first, so that a watch is its door */
	struct loop_watch served; /* libmicrohttpd's own epoll descriptor */
	struct MHD_Daemon *mhd;
	struct api *a;
	int fd;		   /* owned; -1: there is none, or none any more */
	size_t room;	   /* connections at once, of both doors, up to which this one lets in */
	int64_t closed_ns; /* looked at again then; 0: open */
	bool full;	   /* that is why; else it is out of descriptors */
};

struct api_server {
	struct door doors[2];
	size_t conns_n;
	struct conn *conns;
	struct transport *streams;
	size_t active;
	size_t held; /* bytes of larger bodies and answers; API_HELD_MAX */
	bool more;   /* libmicrohttpd has work that no descriptor shows */
};

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
	if (a->stopping)
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
	ssize_t k = stream_read(t->call.stream, out, n);

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

static void wake_streams(struct api *a)
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
static void *begin(void *cls, const char *uri, struct MHD_Connection *connection)
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

static void ended(void *cls, struct MHD_Connection *connection, void **con_cls,
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

static void judge_again(struct api *a, struct conn *c)
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

static enum MHD_Result step(void *cls, struct MHD_Connection *connection, const char *url,
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

/* --- connections -------------------------------------------------------------------------- */

static void notify(void *cls, struct MHD_Connection *connection, void **socket_context,
		   enum MHD_ConnectionNotificationCode code)
{
	struct api *a = cls;
	struct conn *c = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *info =
		    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

		c = calloc(1, sizeof(*c));
		*socket_context = c;
		if (!c)
			return;
		c->peer.fd = info ? info->connect_fd : -1;
		c->until_ns = clock_mono_ns() + API_REQUEST_MS * NS_PER_MS;
		c->next = a->server->conns;
		if (c->next)
			c->next->prev = c;
		a->server->conns = c;
		a->server->conns_n++;
		a->n.connections_seen++;
		return;
	}
	if (!c)
		return;
	if (c->prev)
		c->prev->next = c->next;
	else
		a->server->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	a->server->conns_n--;
	free(c);
	*socket_context = NULL;
}

static void cut(struct api *a, struct conn *c)
{
	/* libmicrohttpd sees the end of the stream and tidies up. */
	(void)shutdown(c->peer.fd, SHUT_RDWR);
	c->cut = true;
	a->server->more = true;
	a->n.cut_off++;
}

/*
 * Places for further connections: those of who has been idle longest, between two requests or with a head that does not come,
 * or sends a body that is not read. What was let in and is being served keeps its place.
 */
static void make_room(struct api *a)
{
	for (int i = 0; i < MADE_ROOM; i++) {
		struct conn *oldest = NULL;

		for (struct conn *c = a->server->conns; c; c = c->next)
			if (!c->cut && !c->waits && c->until_ns != INT64_MAX &&
			    (!c->now || c->now->refused) &&
			    (!oldest || c->until_ns < oldest->until_ns))
				oldest = c;
		if (!oldest)
			return;
		cut(a, oldest);
	}
}

static void shut(struct door *d, bool full)
{
	int64_t ms = full ? DOOR_FULL_MS : DOOR_BROKEN_MS;

	d->full = full;
	loop_del(&d->a->loop, &d->watch);
	d->closed_ns = clock_mono_ns() + ms * NS_PER_MS;
}

static void let_in(struct loop_watch *w, uint32_t events)
{
	struct door *d = (struct door *)w;
	struct api_server *s = d->a->server;

	(void)events;
	/* Who came earlier is heard earlier: a new one is read from at once. */
	(void)MHD_run(d->mhd);
	for (int i = 0; i < ACCEPTED; i++) {
		struct sockaddr_storage sa;
		socklen_t n = sizeof(sa);
		int fd;

		if (s->conns_n >= d->room) {
			make_room(d->a);
			shut(d, true);
			return;
		}
		fd = accept4(w->fd, (struct sockaddr *)&sa, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS)
				shut(d, false);
			if (errno == ECONNABORTED || errno == EINTR)
				continue;
			return;
		}
		/* Closed by it when it fails. */
		(void)MHD_add_connection(d->mhd, fd, (struct sockaddr *)&sa, n);
		s->more = true;
	}
}

/* Nothing is decoded for us: the target is judged as it was sent. */
static size_t as_it_is(void *cls, struct MHD_Connection *connection, char *s)
{
	(void)cls;
	(void)connection;
	return strlen(s);
}

static void ready(struct loop_watch *w, uint32_t events)
{
	(void)w;
	(void)events;
}

static void quiet(void *cls, const char *fmt, va_list ap)
{
	/* Its messages quote what clients sent. */
	(void)cls;
	(void)fmt;
	(void)ap;
}

static int start_door(struct door *d, const struct tls_pair *tls, struct err *e)
{
	const union MHD_DaemonInfo *info;
	const struct MHD_OptionItem with_tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, tls->cert},
						  {MHD_OPTION_HTTPS_MEM_KEY, 0, tls->key},
						  {MHD_OPTION_HTTPS_PRIORITIES, 0,
						   (char *)(uintptr_t)TLS_PRIORITIES},
						  {MHD_OPTION_END, 0, NULL}};
	const struct MHD_OptionItem *more = tls->cert ? with_tls : with_tls + 3;
	struct api *a = d->a;
	int r;

	d->mhd = MHD_start_daemon(
	    MHD_USE_EPOLL | MHD_USE_TURBO | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_SUSPEND_RESUME |
		MHD_USE_ERROR_LOG | MHD_USE_PEDANTIC_CHECKS |
		(tls->cert ? MHD_USE_TLS : MHD_NO_FLAG),
	    0, NULL, NULL, step, a, MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL,
	    MHD_OPTION_CONNECTION_LIMIT, (unsigned)(API_CONNECTIONS_MAX + API_CONNECTIONS_OWN),
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)API_HEADER_MAX,
	    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)API_SILENT_S, MHD_OPTION_URI_LOG_CALLBACK,
	    begin, a, MHD_OPTION_NOTIFY_COMPLETED, ended, a, MHD_OPTION_NOTIFY_CONNECTION, notify,
	    a, MHD_OPTION_UNESCAPE_CALLBACK, as_it_is, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
	    MHD_OPTION_ARRAY, more, MHD_OPTION_END);
	if (!d->mhd)
		return err_set(e, ERR_UNAVAILABLE, "the HTTP library does not start%s",
			       tls->cert ? ": does the key belong to the certificate?" : "");
	info = MHD_get_daemon_info(d->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return err_set(e, ERR_UNAVAILABLE, "the HTTP library has no epoll descriptor");
	r = loop_add(&a->loop, &d->served, info->epoll_fd, EPOLLIN, ready);
	if (r == 0)
		r = loop_add(&a->loop, &d->watch, d->fd, EPOLLIN, let_in);
	return r < 0 ? err_sys(e, -r, "watch connections") : 0;
}

int server_start(struct api *a, int fd, int own, const struct tls_pair *tls, struct err *e)
{
	struct api_server *s = calloc(1, sizeof(*s));
	const int fds[] = {fd, own};
	const size_t room[] = {API_CONNECTIONS_MAX, API_CONNECTIONS_MAX + API_CONNECTIONS_OWN};
	const struct tls_pair plain = {NULL, NULL};
	int r = 0;

	if (!s) {
		(void)close(fd);
		if (own >= 0)
			(void)close(own);
		return err_set(e, ERR_NOMEM, "server: out of memory");
	}
	a->server = s;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		s->doors[i] = (struct door){
		    .watch.fd = -1, .served.fd = -1, .a = a, .room = room[i], .fd = fds[i]};
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			r = start_door(&s->doors[i], i ? &plain : tls, e);
	return r;
}

void server_quiesce(struct api *a)
{
	for (size_t i = 0; i < ARRAY_LEN(a->server->doors); i++) {
		struct door *d = &a->server->doors[i];

		if (d->fd >= 0 && !d->closed_ns)
			loop_del(&a->loop, &d->watch);
		cleanup_fd(&d->fd);
		d->fd = -1;
		d->closed_ns = 0;
	}
}

/* Doors that were shut and may have room again; else when one is to be looked at. */
static int64_t reopen(struct api *a, int64_t now_ns)
{
	int64_t next = INT64_MAX;

	for (size_t i = 0; i < ARRAY_LEN(a->server->doors); i++) {
		struct door *d = &a->server->doors[i];

		if (!d->closed_ns)
			continue;
		if (d->closed_ns > now_ns && (!d->full || a->server->conns_n >= d->room)) {
			next = d->closed_ns < next ? d->closed_ns : next;
		} else if (loop_add(&a->loop, &d->watch, d->fd, EPOLLIN, let_in) == 0) {
			d->closed_ns = 0;
		}
	}
	return next;
}

size_t server_active(const struct api *a)
{
	return a->server->active;
}

static void run_all(struct api_server *s)
{
	for (size_t i = 0; i < ARRAY_LEN(s->doors); i++)
		if (s->doors[i].mhd)
			(void)MHD_run(s->doors[i].mhd);
}

void server_stop(struct api *a)
{
	struct api_server *s = a->server;

	if (!s)
		return;
	server_quiesce(a);
	wake_streams(a);
	for (struct conn *c = s->conns; c; c = c->next)
		if (c->waits)
			judge_again(a, c);
	/* Answers to those who waited for jobs; it must have no suspended connection at its end. */
	run_all(s);
	for (size_t i = 0; i < ARRAY_LEN(s->doors); i++) {
		loop_del(&a->loop, &s->doors[i].served);
		if (s->doors[i].mhd)
			MHD_stop_daemon(s->doors[i].mhd);
	}
	free(s);
	a->server = NULL;
}

int64_t server_tick(struct api *a, int64_t now_ns)
{
	struct api_server *s = a->server;
	unsigned long long ms;
	int64_t next, due;
	bool wake;

	next = events_look(a, now_ns, &wake);
	if (wake)
		wake_streams(a);
	run_all(s);
	due = reopen(a, now_ns);
	next = due < next ? due : next;
	/* One that began just now is looked after like the others, also where nothing else wakes us. */
	if (a->streams && a->events_look_ns < next)
		next = a->events_look_ns;
	for (struct conn *c = s->conns; c; c = c->next) {
		if (c->waits && (c->judge_ns <= now_ns || a->stopping))
			judge_again(a, c);
		else if (c->waits && c->judge_ns < next)
			next = c->judge_ns;
		if (c->until_ns == INT64_MAX || c->cut)
			continue;
		if (c->until_ns <= now_ns) {
			cut(a, c);
		} else if (c->until_ns < next) {
			next = c->until_ns;
		}
	}
	if (s->more) {
		s->more = false;
		return now_ns;
	}
	for (size_t i = 0; i < ARRAY_LEN(s->doors); i++)
		if (s->doors[i].mhd && MHD_get_timeout(s->doors[i].mhd, &ms) == MHD_YES &&
		    now_ns + (int64_t)ms * NS_PER_MS < next)
			next = now_ns + (int64_t)ms * NS_PER_MS;
	return next;
}
