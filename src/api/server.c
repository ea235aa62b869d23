#include "api/server.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/events.h"
#include "api/server_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define ACCEPTED 64	   /* connections that a turn of the loop lets in by one door */
#define MADE_ROOM 16	   /* that are cut at once where there is no room */
#define DOOR_FULL_MS 20	   /* and none could be cut */
#define DOOR_BROKEN_MS 200 /* out of descriptors, or of memory */

/* --- connections -------------------------------------------------------------------------- */

static void notify(void *cls, struct MHD_Connection *connection, void **socket_context,
		   enum MHD_ConnectionNotificationCode code)
{
	struct served *by = cls;
	struct api *a = by->a;
	struct conn *c = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *info =
		    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

		c = calloc(1, sizeof(*c));
		*socket_context = c;
		if (!c)
			return;
		c->by = by;
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
	struct MHD_Daemon *mhd = d->served[d->now].mhd;

	(void)events;
	/* Who came earlier is heard earlier: a new one is read from at once. */
	(void)MHD_run(mhd);
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
		(void)MHD_add_connection(mhd, fd, (struct sockaddr *)&sa, n);
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

/* An instance of the library; on failure s->mhd may be there all the same. */
static int start_served(struct served *s, const struct tls_pair *tls, struct err *e)
{
	const union MHD_DaemonInfo *info;
	const struct MHD_OptionItem with_tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, tls->cert},
						  {MHD_OPTION_HTTPS_MEM_KEY, 0, tls->key},
						  {MHD_OPTION_HTTPS_PRIORITIES, 0,
						   (char *)(uintptr_t)TLS_PRIORITIES},
						  {MHD_OPTION_END, 0, NULL}};
	const struct MHD_OptionItem *more = tls->cert ? with_tls : with_tls + 3;
	struct api *a = s->a;
	int r;

	s->retired = false;
	s->mhd = MHD_start_daemon(
	    MHD_USE_EPOLL | MHD_USE_TURBO | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_SUSPEND_RESUME |
		MHD_USE_ERROR_LOG | MHD_USE_PEDANTIC_CHECKS |
		(tls->cert ? MHD_USE_TLS : MHD_NO_FLAG),
	    0, NULL, NULL, transport_step, a, MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL,
	    MHD_OPTION_CONNECTION_LIMIT, (unsigned)(API_CONNECTIONS_MAX + API_CONNECTIONS_OWN),
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)API_HEADER_MAX,
	    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)API_SILENT_S, MHD_OPTION_URI_LOG_CALLBACK,
	    transport_begin, a, MHD_OPTION_NOTIFY_COMPLETED, transport_ended, a,
	    MHD_OPTION_NOTIFY_CONNECTION, notify, s, MHD_OPTION_UNESCAPE_CALLBACK, as_it_is, NULL,
	    MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
	if (!s->mhd)
		return err_set(e, ERR_UNAVAILABLE, "the HTTP library does not start%s",
			       tls->cert ? ": does the key belong to the certificate?" : "");
	info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return err_set(e, ERR_UNAVAILABLE, "the HTTP library has no epoll descriptor");
	r = loop_add(&a->loop, &s->watch, info->epoll_fd, EPOLLIN, ready);
	return r < 0 ? err_sys(e, -r, "watch connections") : 0;
}

/* It must have no suspended connection. */
static void stop_served(struct served *s)
{
	if (!s->mhd)
		return;
	loop_del(&s->a->loop, &s->watch);
	MHD_stop_daemon(s->mhd);
	s->mhd = NULL;
}

static int start_door(struct door *d, const struct tls_pair *tls, struct err *e)
{
	int r = start_served(&d->served[0], tls, e);

	d->tls = tls->cert != NULL;
	if (r < 0)
		return r;
	r = loop_add(&d->a->loop, &d->watch, d->fd, EPOLLIN, let_in);
	return r < 0 ? err_sys(e, -r, "watch connections") : 0;
}

int server_renew(struct api *a, const struct tls_pair *tls, struct err *e)
{
	struct door *d = &a->server->doors[0];
	size_t i = 0;
	int r;

	if (!d->tls || !tls->cert)
		return err_set(e, ERR_INVALID, "the daemon was started without TLS");
	while (i < SERVED_MAX && d->served[i].mhd)
		i++;
	if (i == SERVED_MAX)
		return err_set(
		    e, ERR_LIMIT,
		    "connections with %d earlier certificates are not over yet: try again in a minute",
		    SERVED_MAX - 1);
	r = start_served(&d->served[i], tls, e);
	if (r < 0) {
		stop_served(&d->served[i]);
		return r;
	}
	d->served[d->now].retired = true;
	d->now = i;
	/* Those that wait for something to happen are told. */
	transport_wake_streams(a);
	return 0;
}

/* Instances whose last connection has ended. */
static void end_retired(struct door *d)
{
	for (size_t i = 0; i < SERVED_MAX; i++) {
		struct served *s = &d->served[i];
		const union MHD_DaemonInfo *info =
		    s->mhd && s->retired
			? MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
			: NULL;

		if (info && info->num_connections == 0)
			stop_served(s);
	}
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
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		s->doors[i] = (struct door){.watch.fd = -1, .a = a, .room = room[i], .fd = fds[i]};
		for (size_t k = 0; k < SERVED_MAX; k++)
			s->doors[i].served[k] = (struct served){.watch.fd = -1, .a = a};
	}
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
		for (size_t k = 0; k < SERVED_MAX; k++)
			if (s->doors[i].served[k].mhd)
				(void)MHD_run(s->doors[i].served[k].mhd);
}

void server_stop(struct api *a)
{
	struct api_server *s = a->server;

	if (!s)
		return;
	server_quiesce(a);
	transport_wake_streams(a);
	for (struct conn *c = s->conns; c; c = c->next)
		if (c->waits)
			transport_judge_again(a, c);
	/* Answers to those who waited for jobs; it must have no suspended connection at its end. */
	run_all(s);
	for (size_t i = 0; i < ARRAY_LEN(s->doors); i++)
		for (size_t k = 0; k < SERVED_MAX; k++)
			stop_served(&s->doors[i].served[k]);
	free(s);
	a->server = NULL;
}

/* When the library wants to run again without being asked to. */
static int64_t door_next(const struct door *d, int64_t now_ns, int64_t next)
{
	unsigned long long ms;

	for (size_t i = 0; i < SERVED_MAX; i++)
		if (d->served[i].mhd && MHD_get_timeout(d->served[i].mhd, &ms) == MHD_YES &&
		    now_ns + (int64_t)ms * NS_PER_MS < next)
			next = now_ns + (int64_t)ms * NS_PER_MS;
	return next;
}

int64_t server_tick(struct api *a, int64_t now_ns)
{
	struct api_server *s = a->server;
	int64_t next, due;
	bool wake;

	next = events_look(a, now_ns, &wake);
	if (wake)
		transport_wake_streams(a);
	run_all(s);
	for (size_t i = 0; i < ARRAY_LEN(s->doors); i++)
		end_retired(&s->doors[i]);
	due = reopen(a, now_ns);
	next = due < next ? due : next;
	/* One that began just now is looked after like the others, also where nothing else wakes us. */
	if (a->streams && a->events_look_ns < next)
		next = a->events_look_ns;
	for (struct conn *c = s->conns; c; c = c->next) {
		if (c->waits && (c->judge_ns <= now_ns || a->stopping))
			transport_judge_again(a, c);
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
		next = door_next(&s->doors[i], now_ns, next);
	return next;
}
