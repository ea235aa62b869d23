/*
 * server_internal.h: what server.c (doors, connections, their time) and transport.c (requests, answers, streams on them) share.
 *
 * Of the library there is one instance a door, and where a door speaks TLS one more for each renewal of its certificate that has
 * connections yet: those end with their next answer, and then it ends.
 */
#ifndef AIRLOCK_API_SERVER_INTERNAL_H
#define AIRLOCK_API_SERVER_INTERNAL_H

#include <microhttpd.h>

#include "api/server.h"

#define SERVED_MAX 4 /* the current instance, and earlier ones whose connections end */

/* One connection: until when it may take for its request, or for taking the answer. */
struct conn {
	struct conn *next, *prev;
	const struct served *by;
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

/* One instance of the library, with one certificate. */
struct served {
	struct loop_watch watch; /* its own epoll descriptor */
	struct MHD_Daemon *mhd;	 /* NULL: none */
	struct api *a;
	bool retired; /* another one took over: lets nobody in, and its connections end */
};

/* One listening socket. We accept, and libmicrohttpd serves: it would stop at its bound, whoever holds the places. */
struct door {
	struct loop_watch watch; /* first, so that a watch is its door */
	struct served served[SERVED_MAX];
	size_t now; /* which of them lets in */
	struct api *a;
	int fd;		   /* owned; -1: there is none, or none any more */
	size_t room;	   /* connections at once, of both doors, up to which this one lets in */
	int64_t closed_ns; /* looked at again then; 0: open */
	bool full;	   /* that is why; else it is out of descriptors */
	bool tls;
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

/* transport.c: what the library calls; cls is the struct api. */
void *transport_begin(void *cls, const char *uri, struct MHD_Connection *connection);
enum MHD_Result transport_step(void *cls, struct MHD_Connection *connection, const char *url,
			       const char *method, const char *version, const char *upload_data,
			       size_t *upload_data_size, void **con_cls);
void transport_ended(void *cls, struct MHD_Connection *connection, void **con_cls,
		     enum MHD_RequestTerminationCode code);
/* The first request of a connection whose asker can be seen now. */
void transport_judge_again(struct api *a, struct conn *c);
void transport_wake_streams(struct api *a);

#endif
