/*
 * daemon.h: the command line as a client of airlockd.
 *
 * Where it is: AIRLOCK_DAEMON (http://127.0.0.1:PORT, http://[::1]:PORT or unix:/PATH; "none": not asked), else the socket of a daemon of
 * the same state directory in there, which nobody else can take over. Who asks: the key in AIRLOCK_TOKEN, else the first line of the
 * file that AIRLOCK_TOKEN_FILE names, else nobody but the user itself (local_trusted).
 *
 * Only loopback and unix sockets: a key never leaves this machine. And it is told to nobody before the kernel has said who the
 * other end is (daemonpeer.h), with each connection anew. Every wait but that of a stream has a limit, and a stream's reader
 * chooses when it waits.
 */
#ifndef AIRLOCK_CLI_DAEMON_H
#define AIRLOCK_CLI_DAEMON_H

#include <jansson.h>

#include "policy/origin.h"
#include "wire/http1.h"

struct daemon {
	struct origin at;
	char *token; /* owned, wiped; NULL: none */
	char *
	    dir; /* owned: the state directory with its socket, used instead of `at`; NULL: that of no daemon */
	int64_t wait_ms; /* for an answer; 0: a minute */
	bool explicit;	 /* AIRLOCK_DAEMON named it: that it does not answer is an error */
};

void daemon_done(struct daemon *d);
#define _cleanup_daemon_ __attribute__((cleanup(daemon_done)))
/* 1 there is one, and it answers; 0 there is none; negative: it is named and does not answer, or what names it is wrong. */
int daemon_find(const char *state_dir, struct daemon *ret, struct err *e);

/*
 * One request. body may be NULL (borrowed). 0 with the status and the JSON of the answer (owned; NULL: none); negative: no answer.
 */
int daemon_ask(const struct daemon *d, const char *method, const char *path, const json_t *body,
	       int *ret_status, json_t **ret, struct err *e);
/* An answer that is no 2xx, as an error: the daemon's own words. Takes j over. Negative. */
int daemon_refused(int status, json_t *j, const char *what, struct err *e);

/* An answer that comes bit by bit. */
struct daemon_stream {
	int fd; /* owned, does not block; to be polled for reading */
	struct http1 http;
	char buf[16384]; /* what was read and is not parsed yet */
	size_t at, len;
	bool head; /* the head was seen, with status 200 */
};

int daemon_stream_open(const struct daemon *d, const char *path, struct daemon_stream *ret,
		       struct err *e);
void daemon_stream_done(struct daemon_stream *s);
/*
 * The next piece of the body: 1; 0 nothing more now; negative: the end, as the daemon says (-ENODATA), or broken off (-EPIPE);
 * refused (-EPERM with e; -EAGAIN: only now, 503).
 */
int daemon_stream_next(struct daemon_stream *s, struct view *ret, struct err *e);

#endif
