/*
 * leasejob.c: the side of leases that touches sandboxes; runs in jobs.
 *
 * A job first makes the row its own, so that no second one works on it and the sweep leaves it alone while it lives.
 * Whatever it was about to do, a row that it leaves behind says what is to be cleaned up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/leases.h"
#include "api/place.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

json_t *job_failed(const struct err *e)
{
	return json_pack("{s:b,s:b,s:s}", "ok", 0, "conflict", e->code == ERR_CONFLICT, "error",
			 e->text);
}

json_t *lease_config(const struct envlease_row *l)
{
	json_t *m = l->metadata ? json_loads(l->metadata, 0, NULL) : NULL;
	json_t *config = json_incref(json_object_get(m, "config"));

	json_decref(m);
	return config ? config : json_object();
}

int lease_step(struct db *db, struct envlease_row *l, enum envlease_status to, enum lease_cause why,
	       struct err *e)
{
	struct envlease_row from = *l;
	int r;

	if (!lease_may_move(l->status, to, why))
		return err_set(e, ERR_CONFLICT, "lease %s is %s: it cannot become %s", l->id,
			       envlease_status_name(l->status), envlease_status_name(to));
	l->status = to;
	l->owner = (struct proc_id){0};
	r = envlease_move(db, l, &from, e);
	if (r == 0)
		return err_set(e, ERR_CONFLICT, "lease %s was changed meanwhile", l->id);
	return r < 0 ? r : 0;
}

int lease_own(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	struct envlease_row from = *l;
	int r;

	l->owner = x->st->self;
	r = envlease_move(x->db, l, &from, e);
	if (r == 0)
		return err_set(e, ERR_CONFLICT, "lease %s was changed meanwhile", l->id);
	return r < 0 ? r : 0;
}

/* The row of a request, taken over. From the daemon, which wrote it, or from nobody who lives. */
static int take(struct job_ctx *x, const char *id, struct envlease_row *l, struct err *e)
{
	int r = id ? envlease_get(x->db, id, l, e) : 0;

	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "there is no such lease");
	if (r > 0 && l->owner.pid && strcmp(l->reason, ENVLEASE_ACQUIRING) != 0 &&
	    proc_alive(&l->owner))
		return err_set(e, ERR_CONFLICT, "lease %s is being worked on (process %d)", l->id,
			       (int)l->owner.pid);
	return r < 0 ? r : lease_own(x, l, e);
}

static void set(char *out, size_t n, const char *text)
{
	(void)snprintf(out, n, "%s", text);
}

int lease_tear_down(struct job_ctx *x, struct envlease_row *l, const char *reason, struct err *e)
{
	json_t *config = lease_config(l);
	_cleanup_place_ struct place p = {0};
	struct err why = ERR_INIT;
	int r = place_open(&p, x->st, l, config, &why);

	if (r == 0)
		r = place_end(&p, l, &why);
	if (r == 0)
		r = place_remove(&p, l->provider_lease_id, &why);
	json_decref(config);
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

static void note_monitor(struct job_ctx *x, struct envlease_row *l, const struct sandbox *sb)
{
	l->monitor = x->st->self; /* the boot id */
	l->monitor.pid = sb->monitor_pid;
	l->monitor.start = sb->monitor_start;
}

int lease_make(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	json_t *config = lease_config(l);
	_cleanup_place_ struct place p = {0};
	struct sandbox *sb = NULL;
	int r = place_open(&p, x->st, l, config, e);

	json_decref(config);
	if (r == 0)
		r = place_start(&p, &sb, e);
	if (r < 0)
		return r;
	note_monitor(x, l, sb);
	l->reason[0] = l->cleanup[0] = '\0';
	l->acquired_ns = l->used_ns = clock_real_ns();
	provider_native.detach(sb);
	return lease_step(x->db, l, EL_ACTIVE, MOVED_ACQUIRED, e);
}

json_t *job_acquire(struct job_ctx *x, const json_t *request)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT, down = ERR_INIT;
	int r = take(x, json_string_value(json_object_get(request, "leaseId")), &l, &e);

	if (r == 0) {
		r = lease_make(x, &l, &e);
		if (r < 0 && l.status == EL_PENDING)
			(void)lease_tear_down(x, &l, "acquire_rejected_teardown_succeeded", &down);
	}
	return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
}

/* --- resume ------------------------------------------------------------------------------- */

/* Found running, or started again on the same storage. */
static int bring_up(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	json_t *config = lease_config(l);
	_cleanup_place_ struct place p = {0};
	struct sandbox *sb = NULL;
	int r = place_open(&p, x->st, l, config, e);

	json_decref(config);
	if (r == 0)
		r = place_attach(&p, &sb, e);
	if (r == 0) {
		provider_native.detach(sb);
		return 0;
	}
	if (!p.dir || proc_alive(&l->monitor))
		return r;
	r = place_start(&p, &sb, e);
	if (r < 0)
		return r;
	note_monitor(x, l, sb);
	provider_native.detach(sb);
	return 0;
}

json_t *job_resume(struct job_ctx *x, const json_t *request)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	int r = take(x, json_string_value(json_object_get(request, "leaseId")), &l, &e);

	if (r < 0)
		return job_failed(&e);
	r = bring_up(x, &l, &e);
	if (r < 0) {
		/* Preserved as it was: no replacement is made, and nothing is destroyed. */
		struct envlease_row from = l;

		l.owner = (struct proc_id){0};
		(void)envlease_move(x->db, &l, &from, NULL);
		return job_failed(&e);
	}
	l.used_ns = clock_real_ns();
	l.released_ns = 0;
	l.reason[0] = l.cleanup[0] = '\0';
	r = lease_step(x->db, &l, EL_ACTIVE, MOVED_RESUMED, &e);
	return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
}

/* --- release ------------------------------------------------------------------------------ */

/* Ends it; storage stays for a lease that can be used again, unless it is to be destroyed. */
static int stop(struct job_ctx *x, struct envlease_row *l, bool storage_too, struct err *e)
{
	json_t *config = lease_config(l);
	_cleanup_place_ struct place p = {0};
	int r = place_open(&p, x->st, l, config, e);

	json_decref(config);
	if (r == 0)
		r = place_end(&p, l, e);
	if (r == 0 && storage_too)
		r = place_remove(&p, l->provider_lease_id, e);
	return r;
}

json_t *job_release(struct job_ctx *x, const json_t *request)
{
	const char *how = json_string_value(json_object_get(request, "disposition")),
		   *status = json_string_value(json_object_get(request, "status"));
	enum envlease_status to = envlease_status_parse(status ? status : "");
	enum lease_cause why =
	    (enum lease_cause)json_integer_value(json_object_get(request, "cause"));
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	bool reusable, keep;
	int r = take(x, json_string_value(json_object_get(request, "leaseId")), &l, &e);

	if (r < 0 || !how)
		return job_failed(&e);
	reusable = strcmp(l.policy, "reuse_by_environment") == 0;
	keep = reusable && strcmp(how, "keep_running") == 0;
	l.used_ns = clock_real_ns();
	if (!keep)
		r = stop(x, &l, !reusable || strcmp(how, "destroy") == 0, &e);
	if (r < 0) {
		(void)fprintf(stderr, "airlockd: lease %s: %s\n", l.id, e.text);
		l.released_ns = clock_real_ns();
		set(l.cleanup, sizeof(l.cleanup), "failed");
		set(l.reason, sizeof(l.reason), "release_cleanup_failed");
		(void)lease_step(x->db, &l, EL_PENDING, MOVED_CLEANUP_FAILED, NULL);
		return job_failed(&e);
	}
	set(l.cleanup, sizeof(l.cleanup), "success");
	if (keep) {
		r = lease_step(x->db, &l, EL_RETAINED, MOVED_KEEP_RUNNING, &e);
		return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
	}
	l.monitor = (struct proc_id){0};
	l.released_ns = clock_real_ns();
	/* A stopped reusable lease is released whatever the run came to: it can be used again. */
	if (reusable && strcmp(how, "stop_and_retain") == 0) {
		to = EL_RELEASED;
		why = MOVED_RELEASED;
	}
	if (to == EL_FAILED)
		set(l.reason, sizeof(l.reason), "adapter_or_run_failure");
	r = lease_step(x->db, &l, to, why, &e);
	return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
}

void lease_probe_end(struct job_ctx *x, struct envlease_row *l, bool ok)
{
	struct err e = ERR_INIT;
	int r = stop(x, l, true, &e);

	l->released_ns = l->used_ns = clock_real_ns();
	if (r < 0) {
		(void)fprintf(stderr, "airlockd: lease %s: %s\n", l->id, e.text);
		set(l->cleanup, sizeof(l->cleanup), "failed");
		set(l->reason, sizeof(l->reason), "release_cleanup_failed");
		(void)lease_step(x->db, l, EL_PENDING, MOVED_CLEANUP_FAILED, NULL);
		return;
	}
	l->monitor = (struct proc_id){0};
	set(l->cleanup, sizeof(l->cleanup), "success");
	(void)lease_step(x->db, l, ok ? EL_RELEASED : EL_FAILED,
			 ok ? MOVED_RELEASED : MOVED_RUN_FAILED, NULL);
}

/* --- destroy, sweep ----------------------------------------------------------------------- */

/* Claimed first, so that nobody resumes it; then ended. */
static int destroy_one(struct job_ctx *x, const char *id, const char *reason, struct err *e)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	int r = take(x, id, &l, e);

	if (r < 0)
		return r;
	set(l.reason, sizeof(l.reason), reason);
	set(l.cleanup, sizeof(l.cleanup), "failed");
	l.released_ns = l.released_ns ? l.released_ns : clock_real_ns();
	if (l.status != EL_PENDING)
		r = lease_step(x->db, &l, EL_PENDING, MOVED_DELETE_CLAIMED, e);
	if (r == 0)
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
	char ids[20][UUID_LEN + 1];
	size_t n;
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

/* A sandbox that nobody keeps for later, and that has ended by itself: by a reboot, for want of memory, by a kill. */
static int collect_dead(void *arg, const struct envlease_row *l)
{
	struct due *d = arg;

	if (d->n == ARRAY_LEN(d->ids) || strcmp(l->provider, "native") != 0 ||
	    strcmp(l->policy, "ephemeral") != 0 || !l->monitor.pid || proc_alive(&l->monitor))
		return 0;
	return collect(arg, l);
}

static int sweep_one(struct job_ctx *x, const char *id)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	int r = take(x, id, &l, &e);

	if (r < 0)
		return r;
	if (l.status == EL_ACTIVE) {
		const char *why =
		    l.expires_ns && l.expires_ns <= clock_real_ns() ? "lease_expired" : "not_found";

		set(l.reason, sizeof(l.reason), why);
		if (strcmp(l.provider, "native") != 0) {
			l.released_ns = clock_real_ns();
			return lease_step(x->db, &l, EL_EXPIRED, MOVED_RUN_CANCELLED, &e);
		}
		r = lease_step(x->db, &l, EL_PENDING, MOVED_CLEANUP_FAILED, &e);
		if (r == 0)
			r = lease_own(x, &l, &e);
		return r < 0 ? r : lease_tear_down(x, &l, why, &e);
	}
	/* Counted before the try: one that kills its job is not tried for ever. */
	struct envlease_row from = l;

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

json_t *job_sweep(struct job_ctx *x, const json_t *request)
{
	int64_t backoff_ns =
		    json_integer_value(json_object_get(request, "backoffSeconds")) * NS_PER_S,
		now = clock_real_ns(), done = 0;
	struct envlease_filter active = {.status = "active", .limit = API_LEASES_MAX};
	struct due d = {.n = 0};
	struct err e = ERR_INIT;

	if (envlease_due(x->db, now - backoff_ns, now, API_SWEEP_ATTEMPTS, ARRAY_LEN(d.ids), collect,
			 &d, &e) < 0 ||
	    envlease_each(x->db, &active, collect_dead, &d, &e) < 0)
		return job_failed(&e);
	for (size_t i = 0; i < d.n; i++)
		done += sweep_one(x, d.ids[i]) == 0;
	return json_pack("{s:b,s:I,s:I}", "ok", 1, "swept", (json_int_t)d.n, "destroyed",
			 (json_int_t)done);
}
