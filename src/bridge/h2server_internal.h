/*
 * h2server_internal.h: what the two files of the HTTP/2 server share: h2server.c is the session and makes requests of its streams,
 * h2stream.c is what a stream carries: room for its upload, its answer, the limits of both.
 */
#ifndef AIRLOCK_BRIDGE_H2SERVER_INTERNAL_H
#define AIRLOCK_BRIDGE_H2SERVER_INTERNAL_H

#include "bridge/h2server.h"
#include "bridge/room.h"

struct field { /* offsets: the text moves while it grows */
	uint32_t name, name_len, value, value_len;
};

struct stream {
	struct h2server *s;
	struct stream *next, **prev;
	int32_t id;
	struct buf text; /* names and values of the request */
	struct field *field;
	size_t fields, fields_cap;
	struct header *headers; /* views into text, once it is whole */
	struct view method, path;
	int64_t content_length; /* -1: not said */
	bool oversize, malformed, judged, request_done, answered, cut;
	struct exchange *x;
	uint64_t got, consumed; /* body bytes that came; those whose room was given back */
	struct room_share share;
	struct buf out; /* the answer's body, waiting for the session */
	size_t out_off;
	bool out_end, out_broken, deferred, waiting;
	int64_t moved_ns; /* last progress of the answer */
};

struct h2server {
	struct bridge *b;
	struct h2chan ch;
	struct stream *streams;
	unsigned under_way;
	struct room room;
	bool goaway, more;
	int64_t now_ns; /* of the last turn; what is measured with it is seconds */
	enum h2_loss loss;
};

/* How the exchange of a stream (its arg) answers. */
extern const struct exchange_ops h2stream_answers;
/* Asks for room for the whole upload; it comes at once or with h2stream_share_room. */
void h2stream_give_room(struct stream *st);
/* Those who asked first are served first, and nobody is passed over: a large upload is not starved by small ones. */
void h2stream_share_room(struct h2server *s);
/* After a refusal the rest is let in and dropped, so that the answer is read; up to a bound. */
void h2stream_drop_rest(struct stream *st);
/* A stream may be neither half done nor unread for ever: each is one of few. Returns when to ask again. */
int64_t h2stream_tick(struct stream *st, int64_t now);

#endif
