/*
 * front_join.h: how a session whose connection was cut gets another one (wire/rejoin.h).
 *
 * The front that waits listens on a socket of mode 0600 in <run>/join, a directory of mode 0700, under a drawn name. Another front, which the new
 * ssh has started, brings its streams and the token; it stays for the sake of sshd, which would take its end for that of the
 * session, until the one that waited ends or has got another stream. Nobody else is let in: another account does not reach the socket, and one that
 * does is asked for its account and for the token, which is in memory alone, here and in airlock-remote.
 */
#ifndef AIRLOCK_GUEST_FRONT_JOIN_H
#define AIRLOCK_GUEST_FRONT_JOIN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/rejoin.h"

#define FRONT_JOIN_FDS 2

struct front_join {
	int dir, listen; /* owned; -1: nobody can come */
	int asks;	 /* who has connected and has not spoken yet; -1 */
	int carrier;	 /* who brought the stream that we have; -1: it is our own */
	struct rm_hold hold;
};

struct front_stream {
	int in, out; /* owned */
	uint64_t came;
};

void front_join_init(struct front_join *j);
/* From now on. 0 or negative errno. */
int front_join_hold(struct front_join *j, int run, const struct rm_hold *m);
/* Fills v with what to wait for: FRONT_JOIN_FDS entries. */
void front_join_poll(const struct front_join *j, struct pollfd *v);
/* True: somebody with the token has brought a stream; an answer is due. */
bool front_join_hear(struct front_join *j, const struct pollfd *v, struct front_stream *ret);
/* error 0: it was taken. */
void front_join_answer(struct front_join *j, int error);
/* False: who brought the stream that we have has ended. */
bool front_join_carried(const struct front_join *j);
void front_join_done(struct front_join *j);

/* The other side: brings our streams there. A descriptor to stay by, or negative errno and what (RM_WHAT_MAX + 1). */
int front_join_bring(const struct rm_attach *m, int in, int out, char *what);
/* Until that one lets go, or a signal other than SIGCHLD comes. */
void front_join_stay(int fd, int sigfd);

#endif
