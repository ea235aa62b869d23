/*
 * leasemove.h: the transition table of the API's leases (api.md 2.3).
 *
 * Pure. Whoever moves a lease names why; a pair that the table does not have is refused, whatever the caller thinks.
 */
#ifndef AIRLOCK_STORE_LEASEMOVE_H
#define AIRLOCK_STORE_LEASEMOVE_H

#include <stdbool.h>

#include "store/envlease.h"

enum lease_cause {
	MOVED_ACQUIRED,	  /* the sandbox is there */
	MOVED_RESUMED,	  /* used again on the same row */
	MOVED_RELEASED,	  /* run succeeded, or none */
	MOVED_RUN_FAILED, /* run failed or timed out */
	MOVED_RUN_CANCELLED,
	MOVED_KEEP_RUNNING,   /* a reusable lease stays warm */
	MOVED_CLEANUP_FAILED, /* release or destroy failed or could not be proved */
	MOVED_DELETE_CLAIMED, /* a consented deletion of the environment takes it */
	MOVED_SUPERSEDED,     /* another run resumed the same resource, or it is obsolete */
	MOVED_SWEPT,	      /* teardown succeeded */
	MOVED_COUNT
};

bool lease_may_move(enum envlease_status from, enum envlease_status to, enum lease_cause why);

#endif
