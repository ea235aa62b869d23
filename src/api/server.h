/*
 * server.h: HTTP for the API (libmicrohttpd, in our loop, without threads).
 *
 * Bounds: API_CONNECTIONS_MAX connections, API_HEADER_MAX bytes of head, API_BODY_MAX of body, API_REQUEST_MS until a
 * request is whole (a client that drips is cut off), API_ANSWER_MS until its answer is taken, API_SILENT_S without a byte. A
 * connection beyond the bound takes the place of the one that has been idle longest; API_CONNECTIONS_OWN more are for DAEMON_SOCKET.
 *
 * Memory: a body is kept only after its head was admitted (api_admit). Bodies above API_BODY_SMALL and answers that
 * wait for slow readers count against API_HELD_MAX of all connections, bodies that are on their way also against API_HELD_OWN_MAX of who sends
 * them; what would pass it is 503 with Retry-After. What is
 * refused by its head is read and dropped when it is small, so that the connection goes on, and not read when it is not.
 */
#ifndef AIRLOCK_API_SERVER_H
#define AIRLOCK_API_SERVER_H

#include "api/api.h"
#include "api/tls.h"

/* fd: a listening socket, own: a second one without TLS, or -1; both are taken over. tls: read by the library before this returns. */
int server_start(struct api *a, int fd, int own, const struct tls_pair *tls, struct err *e);
/*
 * Another certificate for whoever connects from now on. Connections that are there keep the one that they began with: requests are
 * answered, and then, or as soon as a stream has told what it has, they end. On failure everything is as it was.
 */
int server_renew(struct api *a, const struct tls_pair *tls, struct err *e);
/* No new connections; requests under way go on. */
void server_quiesce(struct api *a);
/* Requests under way. */
size_t server_active(const struct api *a);
void server_stop(struct api *a);
/* After each turn of the loop; the deadline of the next one. */
int64_t server_tick(struct api *a, int64_t now_ns);

/* listen.c: "ADDRESS:PORT" with an address of this host as numbers ("[::1]"), or localhost; "unix:PATH". */
struct listen_at {
	bool tcp;
	bool loopback;	   /* or a unix socket: nobody of another host comes by it */
	int fd;		   /* owned */
	char text[200];	   /* for people: where it listens */
	char *path;	   /* owned; unix: its file; NULL */
	uint64_t dev, ino; /* of that file */
};
enum listen_how {
	LISTEN_PLAIN,
	LISTEN_TLS, /* loopback all the same */
	LISTEN_FAR  /* TLS, and what tls.h asks for: any address */
};
int listen_open(const char *where, enum listen_how how, struct listen_at *ret, struct err *e);
/* DAEMON_SOCKET in the state directory. Nobody but its owner reaches it, a sandbox with the host's network neither. */
int listen_state(const char *dir, struct listen_at *ret, struct err *e);
/* Closes it, and removes its file unless that is another's by now. */
void listen_done(struct listen_at *at);
/* The socket that systemd handed over: 1, 0 there is none, negative: several, or not a stream socket. */
int listen_inherited(enum listen_how how, struct listen_at *ret, struct err *e);
/* A unix socket that nobody but its owner can connect to: what local_trusted takes for proof. 0, or negative. */
int listen_private(int fd, struct err *e);
/* One line to the service manager's socket; a failure is nobody's. */
void listen_notify(const char *path, const char *text);

#endif
