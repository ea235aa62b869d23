/*
 * h2server.h: transport http2_v1 on the host: an HTTP/2 server on the byte stream of one sandbox.
 *
 * Wire: as the peer's, so its gateway works with this host. Each stream carries the bridge token; the guard
 * judges it first. A stream may send H2_WINDOW bytes of body at once; more room is given to one upload after
 * the other, as far as BRIDGE_HELD_MAX allows, each as much as it needs, so a large body costs one round trip and
 * memory stays bounded. Floods of cheap frames end the channel.
 */
#ifndef AIRLOCK_BRIDGE_H2SERVER_H
#define AIRLOCK_BRIDGE_H2SERVER_H

#include "bridge/exchange.h"
#include "os/h2chan.h"

struct h2server;

/* Takes in and out (the same number for a socket). h2server_feed then gets what was read already. */
int h2server_new(struct bridge *b, int in, int out, unsigned streams_max, struct h2server **ret,
		 struct err *e);
void h2server_feed(struct h2server *s, const void *early, size_t n);
/* After each loop turn; returns when it wants to be called next. */
int64_t h2server_tick(struct h2server *s, int64_t now);
/* Something was submitted since the last tick. */
bool h2server_pending(const struct h2server *s);
/* GOAWAY; requests under way may end. */
void h2server_stop(struct h2server *s);
/* H2_OPEN while it lives. */
enum h2_loss h2server_state(const struct h2server *s);
unsigned h2server_under_way(const struct h2server *s);
void h2server_free(struct h2server *s);

#endif
