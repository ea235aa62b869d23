/* runs_internal.h: private to runs.c and runs_start.c. */
#ifndef AIRLOCK_API_RUNS_INTERNAL_H
#define AIRLOCK_API_RUNS_INTERNAL_H

#include "api/runs.h"

/* The run as an answer shows it. */
void run_view(struct call *c, const struct envrun_row *r);
/* A line of the activity log. */
void run_log(struct call *c, const char *action, const struct envrun_row *r);

#endif
