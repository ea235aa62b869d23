/*
 * sweeper.h: the sweep of leases, as a job, every API_SWEEP_MS and once at the start.
 */
#ifndef AIRLOCK_API_SWEEPER_H
#define AIRLOCK_API_SWEEPER_H

#include "api/api.h"

/* Starts one when it is time and none runs. When the next one is due (monotonic). */
int64_t sweeper_tick(struct api *a, int64_t now_ns);
/* A lease became due (a clean-up failed, a deletion claimed it): sweep soon. */
void sweeper_hurry(struct api *a);

#endif
