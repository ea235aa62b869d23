#include "api/reseal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROTATE_CREDENTIAL                                                                   \
	"give the service a new key as the credential airlock-seal-key and the old one as " \
	"airlock-seal-key-old, and restart it: it seals every secret anew and says so in its log"

struct all {
	const struct seal *s;
	bool what_opens; /* what no key opens stays as it is; else that is an error */
};

static int one(void *arg, const char *id, int64_t version, const char *sealed, char **ret,
	       struct err *e)
{
	const struct all *all = arg;
	_cleanup_secret_ char *plain = NULL;
	struct err why = ERR_INIT;
	int r = seal_get(all->s, id, version, sealed, &plain, &why);

	if (r == 0)
		return seal_put(all->s, id, version, plain, ret, e);
	if (all->what_opens && why.code == ERR_UNAVAILABLE)
		return 1;
	*e = why;
	return r;
}

/* Every version that is not sealed with the first key: how many. One transaction. */
static int reseal_all(const struct all *all, struct db *db, int64_t *ret_n, struct err *e)
{
	const struct secret_reseal how = {one, (void *)(uintptr_t)all, all->s->v[0].id};

	*ret_n = 0;
	return secret_reseal(db, &how, ret_n, e);
}

/* --- which keys the database wants -------------------------------------------------------- */

struct wanted {
	const struct seal *s;
	int64_t strangers,
	    old; /* sealed with a key that is not there; with one that is not the first */
	char id[SECRET_KEY_ID_LEN + 1];
};

static int count(void *arg, const char *key_id, int64_t n)
{
	struct wanted *w = arg;

	for (size_t i = 0; i < w->s->n; i++)
		if (strcmp(w->s->v[i].id, key_id) == 0) {
			w->old += i ? n : 0;
			return 0;
		}
	w->strangers += n;
	(void)snprintf(w->id, sizeof(w->id), "%s", key_id);
	return 0;
}

static int reseal(struct seal *s, struct db *db, const char *dir, struct err *e)
{
	struct err why = ERR_INIT;
	int64_t n = 0;
	/* A job of an earlier daemon may have the old keys open: it would read what only the new one opens. */
	int r = seal_alone(s, dir, &why), k = 0;

	if (r < 0 && r != -EBUSY) {
		*e = why;
		return r;
	}
	if (r == 0) {
		r = reseal_all(&(struct all){s, true}, db, &n, &why);
		k = seal_shared(s, dir, e);
	}
	if (r == 0)
		(void)fprintf(
		    stderr,
		    "airlockd: %lld values of secrets are sealed with the new key (%s); older keys "
		    "(further lines, " SEAL_CREDENTIAL_OLD ") open nothing here any more\n",
		    (long long)n, s->v[0].id);
	else
		(void)fprintf(
		    stderr,
		    "airlockd: secrets stay sealed with the older key until the next start: %s\n",
		    why.text);
	return k;
}

int reseal_start(struct seal *s, struct db *db, const char *dir, struct err *e)
{
	struct wanted w = {.s = s};
	int r = secret_keys(db, count, &w, e);

	if (r < 0)
		return r;
	if (w.strangers)
		(void)fprintf(
		    stderr,
		    "airlockd: %lld values of secrets are sealed with a key (%s) that is not here and "
		    "cannot be opened: give it back, as a further line of the sealing key or as the "
		    "credential " SEAL_CREDENTIAL_OLD ", and restart, or delete those secrets\n",
		    (long long)w.strangers, w.id);
	return w.old ? reseal(s, db, dir, e) : 0;
}

/* --- the command line --------------------------------------------------------------------- */

struct keys {
	const struct seal *s;
	char id[SEAL_KEYS_MAX][SECRET_KEY_ID_LEN + 1]; /* those that open something */
	size_t n;
};

static bool used(void *arg, const char *key_id)
{
	const struct keys *k = arg;

	for (size_t i = 0; i < k->n; i++)
		if (strcmp(k->id[i], key_id) == 0)
			return true;
	return false;
}

/* With which key it was tried, not what its row says of it: none goes that opens something. */
static int opens(void *arg, const char *id, int64_t version, const char *sealed, struct err *e)
{
	struct keys *k = arg;
	struct err why = ERR_INIT;

	for (size_t i = 0; i < k->s->n; i++) {
		_cleanup_secret_ char *plain = NULL;
		const struct seal only = {.v = k->s->v + i, .n = 1};

		if (seal_get(&only, id, version, sealed, &plain, &why) < 0)
			continue;
		if (!used(k, only.v->id))
			memcpy(k->id[k->n++], only.v->id, sizeof(k->id[0]));
		return 0;
	}
	return err_set(
	    e, why.code,
	    "%s. Nothing was changed: give its key back, as a further line of the sealing key, or delete "
	    "the secret (DELETE /api/secrets/%s), and rotate then",
	    why.text, id);
}

int reseal_rotate(struct seal *s, struct db *db, const char *dir, int64_t *ret_n, struct err *e)
{
	struct keys keys = {.s = s};
	int r = seal_alone(s, dir, e);

	if (r == 0)
		r = secret_sealed_each(db, opens, &keys, e);
	if (r == 0)
		r = seal_add_key(s, dir, used, &keys, e);
	if (r == 0)
		r = reseal_all(&(struct all){s, false}, db, ret_n, e);
	return r < 0 ? r : seal_drop_old(s, dir, e);
}

int reseal_may_rotate(struct db *db, const char *dir, struct err *e)
{
	const struct seal none = {.n = 0};
	struct wanted w = {.s = &none};
	int r;

	if (seal_of_systemd())
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the sealing key is a systemd credential, which is not changed here: " ROTATE_CREDENTIAL);
	if (seal_has_file(dir))
		return 0;
	r = secret_keys(db, count, &w, e);
	if (r < 0 || !w.strangers)
		return r;
	return err_set(
	    e, ERR_UNAVAILABLE,
	    "%lld values of secrets are sealed with a key (%s) that is not in %s; where it is a "
	    "credential of the service: " ROTATE_CREDENTIAL,
	    (long long)w.strangers, w.id, dir);
}
