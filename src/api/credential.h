/*
 * credential.h: tokens, their digests, and run JWTs.
 *
 * A token is PREFIX_ID_SECRET: "abk_" board key, "ask_" session, "aak_" agent key; 16 characters of id, 43 of a
 * 256-bit secret. What is kept is SHA-256 of the whole. A run JWT is HS256 (api.md 1.1), signed with a key
 * of its company that is made from the instance's master secret. Comparisons take constant time.
 */
#ifndef AIRLOCK_API_CREDENTIAL_H
#define AIRLOCK_API_CREDENTIAL_H

#include "base/cursor.h"
#include "policy/actor.h"
#include "store/token.h"

#define CREDENTIAL_MAX 8192 /* bytes of a bearer token that are looked at: 401 */
#define TOKEN_TEXT_MAX 96
#define MASTER_MIN 32 /* bytes of the master secret */
#define MASTER_MAX 4096
#define JWT_TTL_S 172800

/* Fills id, digest and created of the row, and out with the token itself, which nobody keeps. */
int credential_new(enum token_kind kind, struct token_row *t, char out[TOKEN_TEXT_MAX],
		   struct err *e);
/* The id in a token of ours; false: it is not one. kind is what its prefix says. */
bool credential_parse(struct view token, enum token_kind *ret_kind, char id[ID_LEN + 1]);
bool credential_matches(struct view token, const struct token_row *t);

struct jwt_claims {
	char agent_id[UUID_LEN + 1], company_id[UUID_LEN + 1], run_id[ACTOR_RUN_MAX + 1];
	char adapter[64], responsible[UUID_LEN + 1];
	int64_t issued_s, expires_s;
};

enum jwt_verdict { JWT_OK, JWT_BAD, JWT_EXPIRED };

struct jwt_keys {
	const char *master; /* the secret, MASTER_MIN bytes or more, no NUL */
	const char *instance_id;
};

/* Claims are read to find the company's key, and trusted only after the signature held. */
enum jwt_verdict jwt_verify(const struct jwt_keys *k, struct view token, int64_t now_s,
			    struct jwt_claims *ret);
/* Heap text. */
int jwt_sign(const struct jwt_keys *k, const struct jwt_claims *c, char **ret, struct err *e);

/*
 * The master secret (heap, for seal_wipe; a systemd credential airlock-jwt-key or dir/jwt.key) and the id of the
 * instance; both are made at the first use.
 */
int api_token_key(const char *dir, struct db *db, char **ret_master, char ret_instance[64],
		  struct err *e);

#endif
