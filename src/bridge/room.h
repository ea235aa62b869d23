/*
 * room.h: room for the sandbox's request bodies in one bridge: BRIDGE_HELD_MAX bytes, first come, first served.
 *
 * Each upload may send H2_WINDOW bytes at once. More is granted to one after the other, each as much as it needs, so that a large body
 * is not starved by small ones and memory stays bounded. The only upload may always have its room, whatever a policy
 * allows. Whose turn it is, and how the sandbox hears of it, is the transport's.
 */
#ifndef AIRLOCK_BRIDGE_ROOM_H
#define AIRLOCK_BRIDGE_ROOM_H

#include "base/clock.h"
#include "bridge/exchange.h"

struct room {
	uint64_t held;
	bool wanted; /* somebody waits, or may have something now */
};

struct room_share {
	uint64_t granted; /* beyond H2_WINDOW */
	bool wants;
	int64_t since_ns; /* when it asked first */
};

/* True: s->granted is there for all that x may still send. False: it waits; to be asked again. */
static inline bool room_take(struct room *r, struct room_share *s, const struct exchange *x,
			     int64_t content_length)
{
	uint64_t max = exchange_body_max(x);
	/* One byte more than is allowed: an upload that is too large must be seen to be. */
	uint64_t need = content_length >= 0 && (uint64_t)content_length < max
			    ? (uint64_t)content_length
			    : max + 1;
	uint64_t room = need > H2_WINDOW ? need - H2_WINDOW : 0;

	s->wants = true;
	if (!s->since_ns)
		s->since_ns = clock_mono_ns();
	if (r->held && r->held + room > BRIDGE_HELD_MAX) {
		r->wanted = true;
		return false;
	}
	s->wants = false;
	s->granted = room;
	r->held += room;
	return true;
}

static inline void room_return(struct room *r, struct room_share *s)
{
	r->held -= s->granted;
	if (s->granted)
		r->wanted = true;
	s->granted = 0;
	s->wants = false;
}

#endif
