#include "engine/sweep_elsewhere.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "engine/sweep.h"
#include "provider/provider.h"

#define AWAY_S 600 /* between two tries of a sweep to reach another machine */

bool sweep_keeps(const struct lease_row *l, const struct lease_spec *s)
{
	const struct provider_ops *ops = provider_find(l->provider);

	if (l->state == LEASE_CLEANUP)
		return false;
	return l->state == LEASE_RECOVERING || (s->executed && ops && !ops->in_place);
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

static int add_owed(const struct lease_row *l, char ***ret, struct err *e)
{
	_cleanup_leasespec_ struct lease_spec s = {0};
	const struct provider_ops *ops = provider_find(l->provider);
	bool over = l->state == LEASE_RECOVERABLE || l->state == LEASE_CLEANUP;
	int r;

	if (!ops || !ops->elsewhere || l->state == LEASE_RELEASED ||
	    (!over && proc_alive(&l->owner)))
		return 0;
	r = leasespec_get(l->spec, &s, e);
	for (char *const *w = s.remote; r == 0 && w && *w; w++)
		if (str_starts(*w, "secret="))
			r = strv_add(ret, *w + strlen("secret="));
	return r;
}

int sweep_owed(struct state *st, char ***ret, struct err *e)
{
	struct lease_row *v = NULL;
	size_t n = 0;
	int r = lease_list(st->store, &v, &n, e);

	*ret = NULL;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = add_owed(&v[i], ret, e);
	lease_list_free(v, n);
	if (r < 0)
		strv_free(TAKE_PTR(*ret));
	return r;
}
