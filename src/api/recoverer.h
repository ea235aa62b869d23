/*
 * recoverer.h: work that runs of the API left when they were cut short (workKept), brought back by the daemon itself, after it
 * started, as `POST /api/runs/ID/recover` would: through door 1, by three-way merge, into the workspace that the run's root and path
 * still name; of a run with `review` it waits for a decision.
 *
 * One at a time, behind a sweep, the newest API_RECOVER_MAX, of runs from before it started; what a later sweep finds of those gets
 * its turn then, and what somebody else is at is tried again. What fails is told and stays as it was. Each end is an event of
 * the run (`recovered`, `recover_failed`).
 */
#ifndef AIRLOCK_API_RECOVERER_H
#define AIRLOCK_API_RECOVERER_H

#include "api/api.h"

/* After a sweep. */
void recoverer_begin(struct api *a);
void recoverer_done(struct api *a);

#endif
