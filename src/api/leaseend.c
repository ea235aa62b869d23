/*
 * leaseend.c: ends of leases: destroyed by request, swept when their time is over or their maker died; runs in jobs.
 *
 * The sweep asks twice: which rows need an end, and which sandboxes lie under STATE/served that no row speaks for. A row is
 * written before its storage is made and moved to its end after that is gone, so whatever lies there without a row
 * that may have it was left behind by something that died.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/knownhosts.h"
#include "api/leases.h"
#include "api/runs.h"
#include "api/place.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "engine/images.h"

#define HURRIED 2    /* tries of one lease that are made without waiting */
#define SWEEP_MAX 20 /* leases of one kind that one sweep ends */

/* Every state from which something can be destroyed. */
static const struct lease_want want = {EL_PENDING, MOVED_CLEANUP_FAILED};

static void set(char *out, size_t n, const char *text)
{
	(void)snprintf(out, n, "%s", text);
}

int lease_tear_down(struct job_ctx *x, struct envlease_row *l, const char *reason, struct err *e)
{
	struct err why = ERR_INIT;
	int r = lease_stop(x, l, true, &why);

	l->released_ns = l->released_ns ? l->released_ns : clock_real_ns();
	if (r < 0) {
		(void)fprintf(stderr, "airlockd: lease %s: destroy_failed: %s\n", l->id, why.text);
		set(l->cleanup, sizeof(l->cleanup), "failed");
		(void)lease_step(x->db, l, EL_PENDING, MOVED_CLEANUP_FAILED, e);
		if (e)
			*e = why;
		return r;
	}
	l->monitor = (struct proc_id){0};
	set(l->cleanup, sizeof(l->cleanup), "success");
	set(l->reason, sizeof(l->reason), reason);
	return lease_step(x->db, l, EL_EXPIRED, MOVED_SWEPT, e);
}

/* --- destroy, sweep ----------------------------------------------------------------------- */

/* Claimed first, so that nobody resumes it; then ended. */
static int destroy_one(struct job_ctx *x, const char *id, const char *reason, struct err *e)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	int r = lease_take(x, id, &want, &l, e);

	if (r < 0)
		return r;
	set(l.reason, sizeof(l.reason), reason);
	set(l.cleanup, sizeof(l.cleanup), "failed");
	l.released_ns = l.released_ns ? l.released_ns : clock_real_ns();
	if (l.status != EL_PENDING)
		r = lease_seize(x, &l, EL_PENDING, MOVED_DELETE_CLAIMED, e);
	else
		r = lease_own(x, &l, e);
	return r < 0 ? r : lease_tear_down(x, &l, reason, e);
}

json_t *job_destroy(struct job_ctx *x, const json_t *request)
{
	const char *reason = json_string_value(json_object_get(request, "reason"));
	json_t *ids = json_object_get(request, "leaseIds"), *id;
	struct err e = ERR_INIT;
	int64_t n = 0;
	int r = 0;
	size_t i;

	json_array_foreach(ids, i, id)
	{
		int k = destroy_one(x, json_string_value(id), reason, &e);

		n += k == 0;
		r = k < 0 ? k : r;
	}
	return json_pack("{s:b,s:b,s:I,s:s}", "ok", r == 0, "conflict", e.code == ERR_CONFLICT,
			 "destroyed", (json_int_t)n, "error", e.text);
}

struct due {
	char ids[SWEEP_MAX][UUID_LEN + 1];
	size_t n;
	const struct state *st;
};

static int collect(void *arg, const struct envlease_row *l)
{
	struct due *d = arg;

	/* In work, or its owner is: somebody lives who will move it on. */
	if (l->owner.pid && proc_alive(&l->owner))
		return 0;
	memcpy(d->ids[d->n++], l->id, UUID_LEN + 1);
	return 0;
}

/*
 * A sandbox that has ended by itself (a reboot, want of memory, a kill) and that nobody keeps for later; or nothing is left that could
 * be kept: whoever destroyed it died before that was written.
 */
static int collect_dead(void *arg, const struct envlease_row *l)
{
	struct due *d = arg;

	if (d->n == ARRAY_LEN(d->ids) || strcmp(l->provider, "native") != 0 || !l->monitor.pid ||
	    proc_alive(&l->monitor))
		return 0;
	if (strcmp(l->policy, "ephemeral") != 0 && place_kept(d->st, l->provider_lease_id) != 0)
		return 0;
	return collect(arg, l);
}

/* A lease that is in use or kept, whose time is over or (in use) whose sandbox is gone: expired, or ended. */
static int sweep_live(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	const char *why = l->expires_ns && l->expires_ns <= clock_real_ns() ? "lease_expired"
			  : l->status == EL_ACTIVE && l->monitor.pid && !proc_alive(&l->monitor)
			      ? "not_found"
			      : NULL;
	int r;

	/* Neither any more: somebody was here since it was listed. */
	if (!why)
		return lease_let_go(x->db, l, e) < 0 ? -EIO : -EBUSY;
	set(l->reason, sizeof(l->reason), why);
	if (strcmp(l->provider, "native") != 0) {
		l->released_ns = clock_real_ns();
		return lease_step(x->db, l, EL_EXPIRED, MOVED_RUN_CANCELLED, e);
	}
	r = lease_seize(x, l, EL_PENDING, MOVED_CLEANUP_FAILED, e);
	return r < 0 ? r : lease_tear_down(x, l, why, e);
}

static int sweep_one(struct job_ctx *x, const char *id)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	struct envlease_row from;
	struct err e = ERR_INIT;
	int r = lease_take(x, id, &want, &l, &e);

	if (r < 0)
		return r;
	if (l.status != EL_PENDING)
		return sweep_live(x, &l, &e);
	/* Counted before the try: one that kills its job is not tried for ever. */
	from = l;
	l.attempts++;
	r = envlease_move(x->db, &l, &from, &e);
	if (r <= 0)
		return r < 0 ? r : -EBUSY;
	if (l.attempts == API_SWEEP_ATTEMPTS)
		(void)fprintf(
		    stderr,
		    "airlockd: lease %s: the last of %d clean-ups; if it fails an operator is "
		    "needed\n",
		    l.id, API_SWEEP_ATTEMPTS);
	return lease_tear_down(x, &l, "pending_cleanup_retry", &e);
}

/* --- what no row speaks for ---------------------------------------------------------------- */

/* Whether storage of that name may be there. */
static bool has_storage(const struct envlease_row *l)
{
	switch (l->status) {
	case EL_EXPIRED:
	case EL_FAILED:
		return false;
	case EL_RELEASED:
		return strcmp(l->policy, "ephemeral") != 0;
	default:
		return true;
	}
}

/* Ended and removed, as an ephemeral lease would be. 1, 0 it was not there any more, negative. */
static int end_stranded(struct job_ctx *x, const char *name)
{
	struct envlease_row l = {.status = EL_EXPIRED};
	struct err e = ERR_INIT;
	int r;

	set(l.provider_lease_id, sizeof(l.provider_lease_id), name);
	r = lease_stop(x, &l, true, &e);
	(void)fprintf(stderr, "airlockd: sandbox %s belongs to no lease and %s\n", name,
		      r < 0 ? e.text : "is gone now");
	return r < 0 ? r : 1;
}

/* Runs although its lease was stopped: whoever resumed it died before that was written. */
static int end_running(struct job_ctx *x, struct envlease_row *l)
{
	json_t *config = lease_config(l);
	_cleanup_place_ struct place p = {0};
	struct sandbox *sb = NULL;
	struct err e = ERR_INIT;
	int r = place_open(&p, x->st, l, config, &e);

	json_decref(config);
	if (r == 0)
		r = place_attach(&p, &sb, &e);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if ((l->owner.pid && proc_alive(&l->owner)) || lease_own(x, l, &e) < 0) {
		provider_native.detach(sb);
		return 0;
	}
	r = provider_native.release(sb, &e);
	(void)fprintf(stderr, "airlockd: lease %s was stopped, but its sandbox ran: %s\n", l->id,
		      r < 0 ? e.text : "it is ended now");
	(void)lease_let_go(x->db, l, NULL);
	return r < 0 ? r : 1;
}

static int sweep_place(struct job_ctx *x, const char *name)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	int r = envlease_of_place(x->db, name, &l, &e);

	if (r < 0)
		return r;
	if (r == 0 || !has_storage(&l))
		return end_stranded(x, name);
	return l.status == EL_RELEASED ? end_running(x, &l) : 0;
}

/* How many were dealt with. */
static int64_t sweep_places(struct job_ctx *x)
{
	_cleanup_free_ char *path = place_parent(x->st);
	DIR *d = path ? opendir(path) : NULL;
	const struct dirent *at;
	int64_t n = 0;

	while (d && n < SWEEP_MAX && (at = readdir(d)))
		if (strlen(at->d_name) == ID_LEN && id_is_prefix(at->d_name))
			n += sweep_place(x, at->d_name) == 1;
	if (d)
		(void)closedir(d);
	return n;
}

json_t *job_sweep(struct job_ctx *x, const json_t *request)
{
	int64_t backoff_ns =
		    json_integer_value(json_object_get(request, "backoffSeconds")) * NS_PER_S,
		now = clock_real_ns(), done = 0;
	const struct envlease_due due = {
	    .pending_before_ns = now - backoff_ns,
	    .attempts_max = API_SWEEP_ATTEMPTS,
	    .at_once = json_is_true(json_object_get(request, "hurry")) ? HURRIED : 0,
	    .now_ns = now,
	    .limit = SWEEP_MAX,
	};
	struct envlease_filter active = {.status = "active", .limit = API_LEASES_MAX};
	struct due d = {.st = x->st};
	struct err e = ERR_INIT;

	/* In a hurry: what was tried often already goes on waiting, whoever hurries. */
	if (envlease_due(x->db, &due, collect, &d, &e) < 0 ||
	    envlease_each(x->db, &active, collect_dead, &d, &e) < 0)
		return job_failed(&e);
	for (size_t i = 0; i < d.n; i++)
		done += sweep_one(x, d.ids[i]) == 0;
	done += sweep_places(x);
	(void)job_sweep_runs(x);
	if (images_recover(x->st, &e) < 0)
		(void)fprintf(stderr, "airlockd: left-overs of images stay: %s\n", e.text);
	if (knownhosts_prune(x->st, &e) < 0)
		(void)fprintf(stderr, "airlockd: old files of host keys stay: %s\n", e.text);
	return json_pack("{s:b,s:I,s:I}", "ok", 1, "swept", (json_int_t)d.n, "destroyed",
			 (json_int_t)done);
}
