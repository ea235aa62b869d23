/*
 * recoverer.h: work that runs of the API left when they were cut short (workKept), brought back by the daemon itself, once after it
 * started, as `POST /api/runs/ID/recover` would: through door 1, by three-way merge, into the workspace that the run's root and path
 * still name; of a run with `review` it waits for a decision.
 *
 * One at a time, behind the first sweep, the newest API_RECOVER_MAX; what fails is told and stays as it was. Each end is an event of
 * the run (`recovered`, `recover_failed`).
 */
#ifndef AIRLOCK_API_RECOVERER_H
#define AIRLOCK_API_RECOVERER_H

#include "api/api.h"

/* After a sweep: begins, the first time. */
void recoverer_begin(struct api *a);
void recoverer_done(struct api *a);

#endif
