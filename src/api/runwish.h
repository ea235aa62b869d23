/*
 * runwish.h: how a run of the API wants its workspace copied, from the body of its request to what the engine is asked for: strict,
 * onConflict, exclude, git, syncOut.
 *
 * What the host holds back (ignored files, files with credentials) stays held back: there is no include. Who may manage environments is
 * not always who may read every file below a workspace root.
 */
#ifndef AIRLOCK_API_RUNWISH_H
#define AIRLOCK_API_RUNWISH_H

#include <jansson.h>

#include "api/runhost.h"

/* The name of a wish that a run in the workspace itself (driver local) cannot be granted; NULL: none. */
const char *runwish_in_place(const json_t *body);
/* From a body to a job's request. 0 or -ENOMEM. */
int runwish_put(json_t *request, const json_t *body);
/* From a job's request; exclude is the caller's, strv. */
int runwish_get(const json_t *request, struct runhost_want *w, char ***ret_exclude, struct err *e);
/* An array of texts as strv, the caller's. */
int runwish_texts(const json_t *texts, char ***ret, struct err *e);

#endif
