#include "store/token.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "store/sql.h"

static const char *const kinds[TOKEN_KIND_COUNT] = {"board_key", "session", "agent_key"};

const char *token_kind_name(enum token_kind k)
{
	return kinds[k];
}

#define COLUMNS                                                                                    \
	"id, kind, digest, label, user_id, agent_id, created_ns, expires_ns, used_ns, revoked_ns," \
	" parent_id"

static void load(struct sql *q, struct token_row *t)
{
	char kind[16];

	sql_copy(q, 0, t->id, sizeof(t->id));
	sql_copy(q, 1, kind, sizeof(kind));
	t->kind = TOKEN_SESSION;
	for (int i = 0; i < TOKEN_KIND_COUNT; i++)
		if (strcmp(kinds[i], kind) == 0)
			t->kind = (enum token_kind)i;
	sql_copy(q, 2, t->digest, sizeof(t->digest));
	sql_copy(q, 3, t->label, sizeof(t->label));
	sql_copy(q, 4, t->user_id, sizeof(t->user_id));
	sql_copy(q, 5, t->agent_id, sizeof(t->agent_id));
	t->created_ns = sql_i64(q, 6);
	t->expires_ns = sql_i64(q, 7);
	t->used_ns = sql_i64(q, 8);
	t->revoked_ns = sql_i64(q, 9);
	sql_copy(q, 10, t->parent_id, sizeof(t->parent_id));
}

int token_add(struct db *s, const struct token_row *t, struct err *e)
{
	int r = sql_change(s, "add token", e,
			   "INSERT INTO tokens(" COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,0,0,?9)",
			   "ssssssiis", t->id, kinds[t->kind], t->digest, t->label,
			   t->user_id[0] ? t->user_id : NULL, t->agent_id[0] ? t->agent_id : NULL,
			   t->created_ns, t->expires_ns, t->parent_id[0] ? t->parent_id : NULL);

	return r < 0 ? r : 0;
}

int token_get(struct db *s, const char *id, struct token_row *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read token", e, "SELECT " COLUMNS " FROM tokens WHERE id=?1",
			    "s", id);

	if (r == 0)
		r = sql_step(&q, e);
	if (r > 0)
		load(&q, ret);
	return r;
}

int token_used(struct db *s, const char *id, int64_t now_ns, struct err *e)
{
	int r =
	    sql_change(s, "note use of token", e,
		       "UPDATE tokens SET used_ns=?2 WHERE id=?1 AND used_ns<?2", "si", id, now_ns);

	return r < 0 ? r : 0;
}

int token_revoke(struct db *s, const char *id, struct err *e)
{
	int r = sql_change(
	    s, "revoke token", e,
	    "UPDATE tokens SET revoked_ns=?2 WHERE (id=?1 OR parent_id=?1) AND revoked_ns=0", "si",
	    id, clock_real_ns());

	return r > 0 ? 1 : r;
}

int token_each(struct db *s, int (*cb)(void *arg, const struct token_row *t), void *arg,
	       struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	struct token_row t = {0};
	int r =
	    sql_prepare(s, &q, "list tokens", e, "SELECT " COLUMNS " FROM tokens ORDER BY id", "");

	while (r >= 0 && (r = sql_step(&q, e)) > 0) {
		load(&q, &t);
		r = cb(arg, &t);
	}
	return r;
}

int token_drop_old(struct db *s, int64_t before_ns, struct err *e)
{
	int r = sql_change(s, "remove old sessions", e,
			   "DELETE FROM tokens WHERE kind='session' AND"
			   " ((expires_ns>0 AND expires_ns<?1) OR revoked_ns>0)",
			   "i", before_ns);

	return r < 0 ? r : 0;
}

int token_drop_more(struct db *s, const char *parent_id, int64_t keep, struct err *e)
{
	int r = sql_change(
	    s, "remove sessions", e,
	    "DELETE FROM tokens WHERE id IN (SELECT id FROM tokens WHERE parent_id=?1 AND"
	    " kind='session' ORDER BY created_ns DESC, id DESC LIMIT -1 OFFSET ?2)",
	    "si", parent_id, keep);

	return r < 0 ? r : 0;
}
