/*
 * secrets.h: company secrets: sealed when they come, opened only for a use that a binding allows.
 *
 * What is opened is written down: who, for what, which version, and whether it was allowed. A value never appears in an
 * answer, a log, an argument vector or a file.
 */
#ifndef AIRLOCK_API_SECRETS_H
#define AIRLOCK_API_SECRETS_H

#include "api/api.h"

/* A new secret in the caller's transaction. id (UUID_LEN + 1) is filled. */
struct secret_new {
	const char *company_id, *name, *description, *value;
	const char *made_for; /* NULL: nothing */
};
int secret_store(struct api *a, const struct secret_new *s, char id[UUID_LEN + 1], struct err *e);

/* A use by environment `target_id` at `path`. */
struct secret_use {
	const char *company_id, *secret_id, *target_id, *path, *consumer, *actor;
	int64_t version; /* 0: latest */
};
/*
 * Heap value for seal_wipe. On failure *ret_code is the static code of api.md 2.6, or NULL when it is ours. The use is written
 * down either way. For the daemon and its jobs alike: keys are opened by whoever needs them, when they are needed.
 */
int secret_resolve(struct db *db, const struct seal *keys, const struct secret_use *u, char **ret,
		   const char **ret_code, struct err *e);

#endif
