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

struct event_stream;

/*
 * Begun by the handler, pumped by api/server.c: events_read gives the next bytes, 0 nothing now (events_due says when to
 * ask again), -1 the end.
 */
ssize_t events_read(struct event_stream *s, char *out, size_t n);
void events_close(struct event_stream *s);
/* Looks, if it is time: *ret_wake true when streams that wait should be read. The next time to look; INT64_MAX. */
int64_t events_look(struct api *a, int64_t now_ns, bool *ret_wake);

#endif
