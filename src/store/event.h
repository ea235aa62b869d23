/*
 * event.h: rows of what happened, for those who watch: numbered, the newest EVENTS_KEPT.
 *
 * Those of leases are written by triggers of the database (schema.c), in the transaction that moves a lease, whichever
 * process that is; others by event_add. A number is never used twice, so a watcher that names the last one that it saw misses
 * none, or can be told that it does.
 */
#ifndef AIRLOCK_STORE_EVENT_H
#define AIRLOCK_STORE_EVENT_H

#include "store/store.h"

#define EVENTS_KEPT 10000 /* as in schema.c */

struct event_row {
	int64_t id, at_ns;
	/* Borrowed for the callback; NULL: none. company_id NULL: of the instance. */
	const char *company_id, *kind, *entity_id, *environment_id, *status;
};

/* id and at_ns are filled by the database. */
int event_add(struct db *s, const struct event_row *v, struct err *e);
/* Numbers of the oldest and the newest; 0 and 0 when there is none. */
int event_range(struct db *s, int64_t *ret_first, int64_t *ret_last, struct err *e);
/* Those after a number, oldest first. */
int event_each(struct db *s, int64_t after, int64_t limit,
	       int (*cb)(void *arg, const struct event_row *v), void *arg, struct err *e);

#endif
