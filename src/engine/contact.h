/* contact.h: on which other machine a lease is, and how the last try to go there went: what `ps` shows without going anywhere. */
#ifndef AIRLOCK_ENGINE_CONTACT_H
#define AIRLOCK_ENGINE_CONTACT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/state.h"

struct contact {
	char *target;	     /* owned: as it was given; NULL: on no other machine */
	unsigned max_runs;   /* that may go on there at once; 0: no limit */
	unsigned reconnects; /* cuts of the connection that were got over */
	bool away;	     /* the last try failed, */
	int64_t tried_ns;    /* then, */
	char why[400];	     /* for this reason; printable */
};

/* A lease that is gone, or cannot be read, is on no other machine. */
void contact_get(struct state *st, const char *lease_id, struct contact *ret);
/* When whatever went on there without a connection has ended at the latest, in real time; 0: nothing does. */
int64_t contact_goes_on_ns(struct state *st, const char *lease_id);
void contact_done(struct contact *c);
#define _cleanup_contact_ __attribute__((cleanup(contact_done)))

#endif
