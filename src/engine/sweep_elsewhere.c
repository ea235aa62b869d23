#include "engine/sweep_elsewhere.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "engine/sweep.h"
#include "provider/provider.h"
#include "store/run.h"

#define AWAY_S 600 /* between two tries of a sweep to reach another machine */

bool sweep_keeps(const struct lease_row *l, const struct lease_spec *s)
{
	const struct provider_ops *ops = provider_find(l->provider);

	if (l->state == LEASE_CLEANUP)
		return false;
	return l->state == LEASE_RECOVERING || (s->executed && ops && !ops->in_place);
}

void sweep_newest_run(struct state *st, const struct lease_row *l, char out[ID_LEN + 1])
{
	struct run_row *v = NULL;
	size_t n = 0;

	out[0] = '\0';
	if (run_list(st->store, true, l->id, &v, &n, NULL) == 0 && n)
		memcpy(out, v[0].id, ID_LEN + 1);
	run_list_free(v, n);
}

bool sweep_away(struct state *st, const struct lease_row *l)
{
	_cleanup_free_ char *tried = state_path(st, "leases", l->id, "tried");
	struct stat s;

	return tried && stat(tried, &s) == 0 && time(NULL) - s.st_mtime < AWAY_S;
}

void sweep_note_try(struct state *st, const struct lease_row *l)
{
	_cleanup_free_ char *tried = state_path(st, "leases", l->id, "tried");
	_cleanup_fd_ int fd =
	    tried ? open(tried, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;

	if (fd >= 0)
		(void)futimens(fd, NULL);
}

bool sweep_lacks_key(const struct state *st, const struct lease_spec *s)
{
	for (char *const *w = s->remote; w && *w; w++) {
		const char *name = *w + strlen("secret=");
		bool have = false;

		if (!str_starts(*w, "secret="))
			continue;
		for (char *const *i = st->identities; i && *i; i++)
			have |= str_starts(*i, name) && (*i)[strlen(name)] == '=';
		return !have;
	}
	return false;
}

bool sweep_needs_key(struct state *st, const struct lease_row *l)
{
	const struct provider_ops *ops = provider_find(l->provider);
	_cleanup_leasespec_ struct lease_spec s = {0};

	return ops && ops->elsewhere && sweep_unsettled(l) && !proc_alive(&l->owner) &&
	       leasespec_get(l->spec, &s, NULL) == 0 && !sweep_keeps(l, &s) && !sweep_away(st, l);
}

/* --- whose keys are owed ------------------------------------------------------------------ */

struct owed {
	bool living;
	int (*cb)(void *arg, const char *name, const char *run_id);
	void *arg;
};

static int owed_by(struct state *st, const struct lease_row *l, const struct owed *o, struct err *e)
{
	_cleanup_leasespec_ struct lease_spec s = {0};
	const struct provider_ops *ops = provider_find(l->provider);
	bool over = l->state == LEASE_RECOVERABLE || l->state == LEASE_CLEANUP;
	const char *name = NULL;
	char run[ID_LEN + 1];

	if (!ops || !ops->elsewhere || l->state == LEASE_RELEASED ||
	    (!o->living && !over && proc_alive(&l->owner)))
		return 0;
	if (leasespec_get(l->spec, &s, e) < 0)
		return -EINVAL;
	for (char *const *w = s.remote; w && *w && !name; w++)
		if (str_starts(*w, "secret="))
			name = *w + strlen("secret=");
	sweep_newest_run(st, l, run);
	return o->cb(o->arg, name, run);
}

int sweep_owed_each(struct state *st, bool living,
		    int (*cb)(void *arg, const char *name, const char *run_id), void *arg,
		    struct err *e)
{
	const struct owed o = {living, cb, arg};
	struct lease_row *v = NULL;
	size_t n = 0;
	int r = lease_list(st->store, &v, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++)
		r = owed_by(st, &v[i], &o, e);
	lease_list_free(v, n);
	return r;
}

static int add_name(void *arg, const char *name, const char *run_id)
{
	(void)run_id;
	return name ? strv_add(arg, name) : 0;
}

int sweep_owed(struct state *st, char ***ret, struct err *e)
{
	int r;

	*ret = NULL;
	r = sweep_owed_each(st, false, add_name, ret, e);
	if (r < 0)
		strv_free(TAKE_PTR(*ret));
	return r;
}
