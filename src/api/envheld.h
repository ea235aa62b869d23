/*
 * envheld.h: what holds the machine of an environment of driver ssh, or a key of one: runs that go on there, work or storage that dead ones
 * left, leases in use. Until they are gone neither driver nor machine nor key may be another: nobody else could go there.
 */
#ifndef AIRLOCK_API_ENVHELD_H
#define AIRLOCK_API_ENVHELD_H

#include <jansson.h>

#include "api/api.h"

/* Either an environment, or a secret of a company that is the private key of environments. */
struct envheld_of {
	const char *environment_id;
	const char *company_id, *secret_id;
};

/* Of what sweep_owed_each tells: the environment, by its key or else by the run's row; "": no environment's. */
int envheld_owner(struct api *a, const char *name, const char *run_id, char out[UUID_LEN + 1],
		  struct err *e);
/* 409 that names who holds it and what to do about each. what: "change ...", "delete ...". 0 nobody, 1 answered, negative. */
int envheld_refuse(struct call *c, const struct envheld_of *of, const char *what, struct err *e);
/* Whether two configurations of driver ssh are of another machine, account, directory or key. */
bool envheld_moves(const json_t *was, const json_t *is);

#endif
