/*
 * env.h: rows of named environments: a name and default options for `run --env NAME`.
 *
 * `options` is a JSON array of command-line words that the CLI has parsed before it stored them.
 * Names: 1..NAME_MAX_LEN of letters, digits, '.', '_', '-'; the first a letter or digit. "native" and
 * "local" are built in and cannot be taken.
 */
#ifndef AIRLOCK_STORE_ENV_H
#define AIRLOCK_STORE_ENV_H

#include <stdbool.h>

#include "base/limits.h"
#include "store/store.h"

struct env_row {
	char name[NAME_MAX_LEN + 1];
	char *options; /* owned */
	int64_t created_ns, updated_ns;
};

/* 0 or ERR_INVALID that says what a name may be. */
int env_check_name(const char *name, struct err *e);
void env_row_done(struct env_row *r);
/* replace false: ERR_EXISTS when the name is taken. */
int env_put(struct db *s, const char *name, const char *options, bool replace, struct err *e);
int env_get(struct db *s, const char *name, struct env_row *ret, struct err *e);
int env_list(struct db *s, struct env_row **ret, size_t *ret_n, struct err *e);
void env_list_free(struct env_row *v, size_t n);
int env_remove(struct db *s, const char *name, struct err *e);

#endif
