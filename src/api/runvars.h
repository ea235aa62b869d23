/*
 * runvars.h: the variables of a run. Plain ones are the environment's; references to secrets are opened in the run's own job,
 * when its turn has come, and reach the command alone: not the request of the job, a row, an argument or a log.
 *
 * What the command itself prints is its output, and is kept as such.
 */
#ifndef AIRLOCK_API_RUNVARS_H
#define AIRLOCK_API_RUNVARS_H

#include <jansson.h>

#include "base/err.h"
#include "base/id.h"
#include "engine/state.h"
#include "store/store.h"

struct runvars_use {
	const char *company_id, *environment_id, *run_id, *actor; /* actor: actor_text */
};

/*
 * Whether each reference may be used by that environment for that company: 1, or 0 and *ret_name, the first (borrowed of
 * vars) that may not. Opens nothing, and so is no use of a secret.
 */
int runvars_bound(struct db *db, const struct runvars_use *u, json_t *vars, const char **ret_name,
		  struct err *e);
/* NAME=VALUE of all; on failure *ret_reason is a word for the run's row. */
int runvars_make(struct state *st, struct db *db, const struct runvars_use *u, json_t *vars,
		 char ***ret, const char **ret_reason, struct err *e);
/* With every value gone from memory. */
void runvars_free(char ***vars);
#define _cleanup_runvars_ __attribute__((cleanup(runvars_free)))

/* Who it is that opens a secret, for the log of their uses. */
#define RUN_CONSUMER_MAX 64
void runvars_consumer(const char *run_id, char out[RUN_CONSUMER_MAX]);

#endif
