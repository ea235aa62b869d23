#include "api/reseal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROTATE_CREDENTIAL                                                                   \
	"give the service a new key as the credential airlock-seal-key and the old one as " \
	"airlock-seal-key-old, and restart it: it seals every secret anew and says so in its log"

static int one(void *arg, const char *id, int64_t version, const char *sealed, char **ret,
	       struct err *e)
{
	_cleanup_secret_ char *plain = NULL;
	int r = seal_get(arg, id, version, sealed, &plain, e);

	return r < 0 ? r : seal_put(arg, id, version, plain, ret, e);
}

int reseal_all(const struct seal *s, struct db *db, int64_t *ret_n, struct err *e)
{
	const struct secret_reseal how = {one, (void *)(uintptr_t)s, s->v[0].id};

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
		r = reseal_all(s, db, &n, &why);
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
		    "credential " SEAL_CREDENTIAL_OLD ", and restart\n",
		    (long long)w.strangers, w.id);
	/* With some of them out of reach it would be none. */
	return w.strangers || !w.old ? 0 : reseal(s, db, dir, e);
}

/* --- the command line --------------------------------------------------------------------- */

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
