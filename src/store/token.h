/*
 * token.h: rows of credentials: board keys, sessions, agent keys. Digests only, never a token.
 *
 * A token is "PREFIX_ID_SECRET". The row is found by its id, which is no secret; what is compared, in constant time, is
 * SHA-256 of the whole token (api/credential.h). So the time of a look-up tells nothing about a digest.
 */
#ifndef AIRLOCK_STORE_TOKEN_H
#define AIRLOCK_STORE_TOKEN_H

#include "base/id.h"
#include "store/store.h"

#define TOKEN_DIGEST_LEN 64 /* hexadecimal digits of SHA-256 */
#define TOKEN_LABEL_MAX 120
#define TOKEN_USED_EVERY_NS (INT64_C(60) * 1000000000) /* last use is noted once in so long */

enum token_kind { TOKEN_BOARD_KEY, TOKEN_SESSION, TOKEN_AGENT_KEY, TOKEN_KIND_COUNT };

struct token_row {
	char id[ID_LEN + 1];
	enum token_kind kind;
	char digest[TOKEN_DIGEST_LEN + 1], label[TOKEN_LABEL_MAX + 1];
	char user_id[UUID_LEN + 1], agent_id[UUID_LEN + 1]; /* one of them is "" */
	char parent_id[ID_LEN +
		       1]; /* of a session: the key that opened it; it ends with that. "" none */
	int64_t created_ns, expires_ns, used_ns, revoked_ns; /* 0: never */
};

const char *token_kind_name(enum token_kind k);
/* Everything but used and revoked is the caller's. */
int token_add(struct db *s, const struct token_row *t, struct err *e);
/* 1 and the row, 0 none. */
int token_get(struct db *s, const char *id, struct token_row *ret, struct err *e);
int token_used(struct db *s, const char *id, int64_t now_ns, struct err *e);
/* With the sessions that it opened. 1 revoked now, 0 there is none or it was revoked before. */
int token_revoke(struct db *s, const char *id, struct err *e);
int token_each(struct db *s, int (*cb)(void *arg, const struct token_row *t), void *arg,
	       struct err *e);
/* Sessions that ended before, or were ended. */
int token_drop_old(struct db *s, int64_t before_ns, struct err *e);
/* Sessions of a key but for its newest ones. */
int token_drop_more(struct db *s, const char *parent_id, int64_t keep, struct err *e);

#endif
