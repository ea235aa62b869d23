/*
 * h1server.h: the direct way from a sandbox to door 2: HTTP/1.1 on a listening socket of the sandbox's own network.
 *
 * The socket was made in that network before anything foreign ran there (provider/native/beside.c) or, without a sandbox, by the user's
 * own program. Every connection is somebody inside, and so is what it says: os/gate.h reads it, exchange.h judges it. There
 * is no program of the sandbox's between, and no channel that could be lost: a helper that ends takes its connections with it (what they
 * hear then: lastword.h), those that had not been accepted wait for the next one.
 */
#ifndef AIRLOCK_BRIDGE_H1SERVER_H
#define AIRLOCK_BRIDGE_H1SERVER_H

#include "bridge/exchange.h"

struct h1server;

/* Takes the listening socket. words (borrowed, or NULL): what is true of each connection, os/gate.h. */
int h1server_new(struct bridge *b, int listener, unsigned char *words, int words_len,
		 struct h1server **ret, struct err *e);
/* After each loop turn; returns when it wants to be called next. */
int64_t h1server_tick(struct h1server *s, int64_t now);
/* Something is to be done since the last tick. */
bool h1server_pending(const struct h1server *s);
/* No new requests; those under way may end. */
void h1server_stop(struct h1server *s);
unsigned h1server_under_way(const struct h1server *s);
void h1server_free(struct h1server *s);

#endif
