/* environments.h: what the handlers of environments share. */
#ifndef AIRLOCK_API_ENVIRONMENTS_H
#define AIRLOCK_API_ENVIRONMENTS_H

#include "api/api.h"
#include "store/environment.h"

/* The row that path parameter 0 names: 0, or 1: answered (404, or our failure). */
int env_find(struct call *c, struct environment_row *ret);
/*
 * The company whose secrets and audit a request concerns (api.md 3.4, step 5): query companyId, the only company of
 * the environment's bindings, the actor's only one, the instance's only one. 0 with "" when none can be told;
 * 1: answered.
 */
int env_company(struct call *c, const char *env_id, char ret[UUID_LEN + 1]);

#endif
