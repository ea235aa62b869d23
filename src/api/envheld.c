#include "api/envheld.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "engine/sweep.h"
#include "store/envlease.h"
#include "store/envrun.h"
#include "store/vault.h"

#define NAMED_MAX 8 /* in the text; details have all */

struct held {
	struct api *a;
	const struct envheld_of *of;
	json_t *going, *left, *leases; /* owned: ids */
	struct err *e;
};

/* Whether an environment is meant: 1, 0 or negative. */
static int meant(const struct held *h, const char *env_id)
{
	if (h->of->environment_id)
		return strcmp(env_id, h->of->environment_id) == 0;
	return env_id[0] ? binding_exists(h->a->db, h->of->company_id, h->of->secret_id, env_id,
					  "privateKeySecretRef", h->e)
			 : 0;
}

static bool has(const json_t *ids, const char *id)
{
	for (size_t i = 0; i < json_array_size(ids); i++)
		if (strcmp(json_string_value(json_array_get(ids, i)), id) == 0)
			return true;
	return false;
}

static int add(json_t *ids, const char *id)
{
	return json_array_append_new(ids, json_string(id)) < 0 ? -ENOMEM : 0;
}

static int add_run(void *arg, const struct envrun_row *r)
{
	struct held *h = arg;
	/* What waits takes the environment as it is when its turn comes. */
	int k = r->status == ER_RUNNING ? meant(h, r->environment_id) : 0;

	return k > 0 ? add(h->going, r->id) : k;
}

static int add_lease(void *arg, const struct envlease_row *l)
{
	struct held *h = arg;
	int k = strcmp(l->provider, "ssh") == 0 ? meant(h, l->environment_id) : 0;

	return k > 0 ? add(h->leases, l->id) : k;
}

int envheld_owner(struct api *a, const char *name, const char *run_id, char out[UUID_LEN + 1],
		  struct err *e)
{
	_cleanup_envrun_ struct envrun_row row = {0};
	int r = name ? 0 : envrun_get(a->db, run_id, &row, e);

	(void)snprintf(out, UUID_LEN + 1, "%s", name ? name : r > 0 ? row.environment_id : "");
	return r < 0 ? r : 0;
}

static int add_owed(void *arg, const char *name, const char *run_id)
{
	struct held *h = arg;
	char env_id[UUID_LEN + 1];
	int k = envheld_owner(h->a, name, run_id, env_id, h->e);

	if (k == 0)
		k = meant(h, env_id);
	return k > 0 && !has(h->going, run_id) ? add(h->left, run_id) : k < 0 ? k : 0;
}

static int collect(struct held *h)
{
	const struct envrun_filter open = {.open = true, .limit = API_LIST_MAX};
	const struct envlease_filter active = {
	    .environment_id = h->of->environment_id, .status = "active", .limit = API_LEASES_MAX};
	int r = envrun_each(h->a->db, &open, add_run, h, h->e);

	if (r >= 0)
		r = envlease_each(h->a->db, &active, add_lease, h, h->e);
	return r < 0 ? r : sweep_owed_each(&h->a->st, true, add_owed, h, h->e);
}

static void put(struct buf *b, const json_t *ids, const char *kind, const char *how)
{
	for (size_t i = 0; i < json_array_size(ids) && i < NAMED_MAX; i++)
		(void)buf_putf(b, "%s%s %s (%s)", b->len ? ", " : "", kind,
			       json_string_value(json_array_get(ids, i)), how);
	if (json_array_size(ids) > NAMED_MAX)
		(void)buf_putf(b, " and %zu more", json_array_size(ids) - NAMED_MAX);
}

static int refuse(struct call *c, const struct held *h, const char *what)
{
	_cleanup_buf_ struct buf who = BUF_INIT(8192), text = BUF_INIT(16384);
	bool going = json_array_size(h->going), left = json_array_size(h->left),
	     leases = json_array_size(h->leases);

	put(&who, h->going, "run", "going on");
	put(&who, h->left, "run", "it left work, or something to remove");
	put(&who, h->leases, "lease", "active");
	(void)buf_putf(&text, "Cannot %s while something on the machine needs it: %s.", what,
		       buf_text(&who));
	if (going)
		(void)buf_puts(
		    &text, " Wait for runs that go on, or cancel them (POST /api/runs/ID/cancel).");
	if (left)
		(void)buf_puts(
		    &text,
		    " Recover what runs left (POST /api/runs/ID/recover), or wait for the sweep.");
	if (leases)
		(void)buf_puts(&text, " Release leases (POST /api/environment-leases/ID/release).");
	return reply_coded(c, 409,
			   left ? "environment_pending_sandbox_cleanup" : "environment_in_use",
			   buf_text(&text),
			   json_pack("{s:O,s:O,s:O}", "runsGoingOn", h->going, "runsWithWorkLeft",
				     h->left, "leases", h->leases));
}

int envheld_refuse(struct call *c, const struct envheld_of *of, const char *what, struct err *e)
{
	struct held h = {c->api, of, json_array(), json_array(), json_array(), e};
	int r = h.going && h.left && h.leases ? collect(&h)
					      : err_set(e, ERR_NOMEM, "environment: out of memory");

	if (r >= 0 &&
	    json_array_size(h.going) + json_array_size(h.left) + json_array_size(h.leases)) {
		(void)refuse(c, &h, what);
		r = 1;
	}
	json_decref(h.going);
	json_decref(h.left);
	json_decref(h.leases);
	return r;
}

bool envheld_moves(const json_t *was, const json_t *is)
{
	static const char *const target[] = {"host", "port", "username", "remoteWorkspacePath",
					     "privateKeySecretRef"};

	for (size_t i = 0; i < ARRAY_LEN(target); i++) {
		const json_t *a = json_object_get(was, target[i]),
			     *b = json_object_get(is, target[i]);

		/* Not there and null are one. */
		if ((!a || json_is_null(a)) && (!b || json_is_null(b)))
			continue;
		if (!a || !b || !json_equal(a, b))
			return true;
	}
	return false;
}
