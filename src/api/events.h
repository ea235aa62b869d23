/*
 * events.h: the event stream (text/event-stream): what happens to leases and probes while somebody watches.
 *
 * Nothing is kept for a watcher but the number of the last event that it got: a slow one reads later, and one that comes
 * back names that number (Last-Event-ID, or after=N). Whom an event's company does not concern does not get it. The
 * actor is proved again every EVENTS_PING_MS: a key that is revoked ends its streams.
 */
#ifndef AIRLOCK_API_EVENTS_H
#define AIRLOCK_API_EVENTS_H

#include <sys/types.h>

#include "api/api.h"

#define EVENTS_PING_MS 15000 /* a comment, so that both sides see that the other one lives */
#define EVENTS_LOOK_MS \
	200 /* how often the database is asked while somebody watches: other processes write to it */

/* Whether one more may be begun by that actor; false: answered. */
bool stream_admit(struct call *c);
/* The next bytes, 0 nothing now, -1 the end. */
ssize_t stream_read(struct call_stream *s, char *out, size_t n);
/* s is taken over: read by api/server.c as it is asked for, freed at the end. API_STREAM. */
int stream_begin(struct call *c, struct call_stream *s);
void stream_end(struct call_stream *s);
/* Looks, if it is time: *ret_wake true when streams that wait should be read. The next time to look; INT64_MAX. */
int64_t events_look(struct api *a, int64_t now_ns, bool *ret_wake);

#endif
