/*
 * envwrite.h: private to envwrite.c and envkeys.c: one write of an environment.
 *
 * Inside a transaction, from the row as it is to the row as it shall be. Functions return 0, 1 answered (a refusal, of
 * which nothing stays), or a negative errno with w->e.
 */
#ifndef AIRLOCK_API_ENVWRITE_H
#define AIRLOCK_API_ENVWRITE_H

#include "api/api.h"
#include "store/environment.h"

struct write {
	struct call *c;
	struct environment_row *row; /* changed in place */
	char company[UUID_LEN + 1];
	json_t *config, *vars, *metadata; /* owned; as stored */
	char *key;			  /* owned: a raw private key that came */
	char old_key[UUID_LEN + 1];	  /* secret that the stored configuration names; "" none */
	bool set_config, set_vars, changed_target;
	struct err e;
};

/* envkeys.c */
/* The secret that a configuration names for its private key; NULL. Borrowed. */
const char *envkeys_ref(json_t *config);
/* w->key becomes a secret of the company, and w->config names it. */
int envkeys_store(struct write *w);
/* Bindings of what was set; then the secret of a key that was replaced goes, if it was this row's own and nothing uses it. */
int envkeys_bind(struct write *w);
/* Leases of dead runs that have something on the environment's machine, which its key alone reaches. */
int envkeys_owed(struct api *a, const char *env_id, int64_t *ret, struct err *e);
/* The same when the row is gone with its bindings. 0 or negative. */
int envkeys_drop(struct call *c, const struct environment_row *row, struct err *e);

#endif
