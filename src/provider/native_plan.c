#include "provider/native.h"

#include <errno.h>
#include <pwd.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "os/self.h"
#include "provider/native/fill.h"

/* Each place of the user who asks. */
static int forbid_all(struct plan *p, const struct sandbox_spec *s, struct err *e)
{
	const char *h = getenv("HOME");
	const struct passwd *who = h && h[0] ? NULL : getpwuid(getuid());

	return plan_forbid(p, s->workspace, who ? who->pw_dir : h, e);
}

static int fill_binds(struct plan *p, const struct sandbox_spec *s, struct err *e)
{
	if (s->binds_len > PLAN_BINDS_MAX)
		return err_set(e, ERR_LIMIT, "%zu binds are over the limit of %d", s->binds_len,
			       PLAN_BINDS_MAX);
	for (size_t i = 0; i < s->binds_len; i++) {
		struct bind_ro *b = &p->binds[i];

		b->src = realpath(s->binds[i].src, NULL);
		if (!b->src)
			return err_sys(e, errno, "bind %s", s->binds[i].src);
		b->dst = strdup(s->binds[i].dst);
		p->binds_len = i + 1;
		if (!b->dst)
			return err_set(e, ERR_NOMEM, "out of memory");
	}
	return 0;
}

/* <state>/leases/<id>, the daemon's <state>/served/<id>, or a storage directory that somebody placed by hand: its parent then. */
static char *state_dir_of(const char *lease_dir)
{
	char *up = path_normalize(lease_dir), *slash;

	if (!up)
		return NULL;
	slash = strrchr(up, '/');
	*(slash > up ? slash : up + 1) = '\0';
	slash = strrchr(up, '/');
	if (slash > up && (strcmp(slash, "/leases") == 0 || strcmp(slash, "/served") == 0))
		*slash = '\0';
	return up;
}

int native_plan(const struct sandbox_spec *s, struct plan *p, struct err *e)
{
	int r;

	*p = (struct plan){.net = s->net, .without = s->without, .keep = s->keep};
	p->memory_bytes = s->limits.memory_bytes;
	p->pids = s->limits.pids;
	p->cpu_milli = s->limits.cpu_milli;
	/* Later users of a kept one want some as well. */
	p->sockets = s->net != NET_NONE || !s->gateway ? 0
		     : s->keep			       ? PLAN_SOCKETS_MAX
						       : s->sockets;
	r = plan_ids(p, e);
	if (r < 0)
		return r;
	r = self_helper("airlock-guest", &p->guest, e);
	if (r == 0 && s->gateway)
		r = self_helper("airlock-gateway", &p->gateway, e);
	if (r < 0)
		return r;
	p->image = s->image ? realpath(s->image, NULL) : NULL;
	if (s->image && !p->image)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the system image %.300s is not there: import it again, or use another",
		    s->image);
	p->lease_dir = realpath(s->lease_dir, NULL);
	if (!p->lease_dir)
		return err_sys(e, errno, "sandbox storage %s", s->lease_dir);
	p->state_dir = state_dir_of(p->lease_dir);
	p->inside = strdup(s->inside);
	p->hostname = strdup(s->hostname ? s->hostname : "airlock");
	if (!p->state_dir || !p->inside || !p->hostname)
		return err_set(e, ERR_NOMEM, "out of memory");
	for (; s->layers && s->layers[p->layers_len]; p->layers_len++) {
		if (p->layers_len == PLAN_LAYERS_MAX)
			return err_set(e, ERR_LIMIT, "over %d workspace layers", PLAN_LAYERS_MAX);
		p->layers[p->layers_len] = realpath(s->layers[p->layers_len], NULL);
		if (!p->layers[p->layers_len])
			return err_sys(e, errno, "workspace layer %s", s->layers[p->layers_len]);
	}
	r = forbid_all(p, s, e);
	if (r == 0)
		r = fill_binds(p, s, e);
	return r < 0 ? r : plan_check(p, e);
}
