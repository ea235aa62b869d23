/*
 * vault.h: rows of secrets: sealed versions, the bindings that let somebody use them, and who did.
 *
 * What is stored of a value is what api/seal.h made of it: base64 of a sealed box, and the id of the key.
 */
#ifndef AIRLOCK_STORE_VAULT_H
#define AIRLOCK_STORE_VAULT_H

#include <stdbool.h>

#include "base/id.h"
#include "store/store.h"

#define SECRET_NAME_MAX 160
#define SECRET_KEY_ID_LEN 16

struct secret_row {
	char id[UUID_LEN + 1], company_id[UUID_LEN + 1], name[SECRET_NAME_MAX + 1], status[12];
	char description[256];
	char made_for[UUID_LEN + 1]; /* environment whose raw key it was; "": a company's own */
	int64_t latest, created_ns, updated_ns;
};

/* With version 1. id, company, name and description are the caller's. */
int secret_add(struct db *s, struct secret_row *r, const char *key_id, const char *sealed,
	       struct err *e);
/* 1 and the row, 0 none. */
int secret_get(struct db *s, const char *id, struct secret_row *ret, struct err *e);
int secret_each(struct db *s, const char *company_id,
		int (*cb)(void *arg, const struct secret_row *r), void *arg, struct err *e);
/* One version more, which becomes the latest: its number. */
int secret_renew(struct db *s, const char *id, const char *key_id, const char *sealed,
		 int64_t *ret_version, struct err *e);
/* If it was made for that environment and nothing uses it any more. 1 gone, 0 it stays. */
int secret_drop_unused(struct db *s, const char *id, const char *made_for, struct err *e);
/* With versions and bindings. */
int secret_remove(struct db *s, const char *id, struct err *e);
/* version 0: the latest. Heap text in *ret_sealed, *ret_version its number. 1, or 0 none. */
int secret_sealed(struct db *s, const char *id, int64_t version, char key_id[SECRET_KEY_ID_LEN + 1],
		  char **ret_sealed, int64_t *ret_version, struct err *e);
/* Every version that is sealed with another key; the callback gives the new text (heap), or 1: it stays as it is. */
struct secret_reseal {
	int (*cb)(void *arg, const char *secret_id, int64_t version, const char *sealed,
		  char **ret_sealed, struct err *e);
	void *arg;
	const char *key_id; /* the new one */
};
/* Each key that versions are sealed with, and how many of them. */
int secret_keys(struct db *s, int (*cb)(void *arg, const char *key_id, int64_t n), void *arg,
		struct err *e);
/* Every version, until the callback returns other than 0, which is returned. */
int secret_sealed_each(struct db *s,
		       int (*cb)(void *arg, const char *secret_id, int64_t version,
				 const char *sealed, struct err *e),
		       void *arg, struct err *e);
int secret_reseal(struct db *s, const struct secret_reseal *how, int64_t *ret_n, struct err *e);

/* Bindings: target_type is "environment" here, target_id its id. */
int binding_put(struct db *s, const char *company_id, const char *secret_id, const char *target_id,
		const char *path, const char *version, struct err *e);
/* prefix "env.": only those; else all that do not begin with "env.". */
int binding_clear(struct db *s, const char *target_id, bool env, struct err *e);
int binding_clear_all(struct db *s, const char *target_id, struct err *e);
/* 1 when exactly this one is there, 0 not. */
int binding_exists(struct db *s, const char *company_id, const char *secret_id,
		   const char *target_id, const char *path, struct err *e);
struct binding_row {
	const char *path, *secret_id, *name, *status, *company_id, *company_name;
};
int binding_each(struct db *s, const char *target_id,
		 int (*cb)(void *arg, const struct binding_row *b), void *arg, struct err *e);
/* The only company whose secrets the target's bindings use; "" when none or several. *ret_several. */
int binding_company(struct db *s, const char *target_id, char ret[UUID_LEN + 1], bool *ret_several,
		    struct err *e);
/* *ret: the company has one of the target's bindings, or nobody has any. */
int binding_allows(struct db *s, const char *target_id, const char *company_id, bool *ret,
		   struct err *e);

struct secret_event {
	const char *company_id, *secret_id, *consumer, *actor, *path, *version, *outcome,
	    *error_code; /* error_code may be NULL */
};
int secret_event_add(struct db *s, const struct secret_event *v, struct err *e);

#endif
