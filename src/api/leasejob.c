/*
 * leasejob.c: the side of leases that touches sandboxes: acquire, resume, release; runs in jobs. leaseend.c: destroy and sweep.
 *
 * A job first makes the row its own, in the state from which it may do what it was asked, so that no second one works on
 * it and the sweep leaves it alone while it lives. What it started and cannot write down, it ends. Whatever it was about
 * to do, a row that it leaves behind says what is to be cleaned up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/jobs.h"
#include "api/leases.h"
#include "api/place.h"
#include "api/sshenv.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/environment.h"

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

/* l as it shall be, if the row is still as `from`. On failure l is as it was. */
static int swap(struct db *db, struct envlease_row *l, const struct envlease_row *from,
		struct err *e)
{
	int r = envlease_move(db, l, from, e);

	if (r > 0)
		return 0;
	*l = *from;
	return r < 0 ? r : err_set(e, ERR_CONFLICT, "lease %s was changed meanwhile", l->id);
}

static int move(struct db *db, struct envlease_row *l, enum envlease_status to,
		enum lease_cause why, const struct proc_id *owner, struct err *e)
{
	struct envlease_row from = *l;

	if (!lease_may_move(l->status, to, why))
		return err_set(e, ERR_CONFLICT, "lease %s is %s: it cannot become %s", l->id,
			       envlease_status_name(l->status), envlease_status_name(to));
	l->status = to;
	l->owner = *owner;
	return swap(db, l, &from, e);
}

int lease_step(struct db *db, struct envlease_row *l, enum envlease_status to, enum lease_cause why,
	       struct err *e)
{
	static const struct proc_id nobody;

	return move(db, l, to, why, &nobody, e);
}

int lease_seize(struct job_ctx *x, struct envlease_row *l, enum envlease_status to,
		enum lease_cause why, struct err *e)
{
	return move(x->db, l, to, why, &x->st->self, e);
}

int lease_own(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	struct envlease_row from = *l;

	l->owner = x->st->self;
	return swap(x->db, l, &from, e);
}

int lease_let_go(struct db *db, struct envlease_row *l, struct err *e)
{
	struct envlease_row from = *l;

	l->owner = (struct proc_id){0};
	return swap(db, l, &from, e);
}

int lease_take(struct job_ctx *x, const char *id, const struct lease_want *want,
	       struct envlease_row *l, struct err *e)
{
	/* What is being acquired belongs to the daemon, which lives, until its job takes it. */
	bool first = want->why == MOVED_ACQUIRED;
	int r = id ? envlease_get(x->db, id, l, e) : 0;

	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "there is no such lease");
	if (r < 0)
		return r;
	if (!first && l->owner.pid && proc_alive(&l->owner))
		return err_set(e, ERR_CONFLICT, "lease %s is being worked on (process %d)", l->id,
			       (int)l->owner.pid);
	/* It may have been destroyed since the daemon looked. */
	if (!lease_may_move(l->status, want->to, want->why) ||
	    (first && strcmp(l->reason, ENVLEASE_ACQUIRING) != 0))
		return err_set(e, ERR_CONFLICT, "lease %s is %s: it cannot become %s", l->id,
			       envlease_status_name(l->status), envlease_status_name(want->to));
	return lease_own(x, l, e);
}

int lease_stop(struct job_ctx *x, struct envlease_row *l, bool storage_too, struct err *e)
{
	_cleanup_place_ struct place p = {0};
	json_t *config;
	int r;

	/* Its runs have directories there, and leases, of their own. */
	if (strcmp(l->provider, "ssh") == 0)
		return 0;
	config = lease_config(l);
	r = place_open(&p, x->st, l, config, e);
	json_decref(config);
	if (r == 0)
		r = place_end(&p, l, e);
	if (r == 0 && storage_too)
		r = place_remove(&p, l->provider_lease_id, e);
	return r;
}

/* --- acquire, resume ---------------------------------------------------------------------- */

/* An empty sandbox in the place of what was kept would be work lost without a word. */
static int still_kept(struct job_ctx *x, const struct envlease_row *l, bool *ret_gone,
		      struct err *e)
{
	int r = place_kept(x->st, l->provider_lease_id);

	if (r < 0)
		return err_sys(e, -r, "look for the storage of lease %s", l->id);
	*ret_gone = r == 0;
	return r ? 0
		 : err_set(e, ERR_NOT_FOUND, "the sandbox of lease %s and its storage are gone",
			   l->id);
}

/* What runs on the row's storage (kept: it may), or a new sandbox there; *ret_started: it was made here; *ret_gone: nothing is. */
static int bring_up(struct job_ctx *x, struct envlease_row *l, bool kept, bool *ret_started,
		    bool *ret_gone, struct err *e)
{
	json_t *config = lease_config(l);
	_cleanup_place_ struct place p = {0};
	struct sandbox *sb = NULL;
	int r = place_open(&p, x->st, l, config, e);

	*ret_started = *ret_gone = false;
	if (r == 0 && kept) {
		r = place_attach(&p, &sb, e);
		/* One that lives and does not answer: a second one on its storage would be worse. */
		if (r == -ENOENT && !proc_alive(&l->monitor))
			r = still_kept(x, l, ret_gone, e);
	}
	if (r == 0 && !sb) {
		r = place_image(&p, config, e);
		if (r == 0)
			r = place_start(&p, &sb, e);
		*ret_started = r == 0;
	}
	json_decref(config);
	if (r < 0)
		return r;
	if (*ret_started) {
		l->monitor = x->st->self; /* the boot id */
		l->monitor.pid = sb->monitor_pid;
		l->monitor.start = sb->monitor_start;
	}
	provider_native.detach(sb);
	return 0;
}

int lease_hand_over(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	return job_alone() ? err_set(e, ERR_CANCELLED,
				     "lease %s: whoever asked for it is not there any more", l->id)
			   : lease_step(x->db, l, EL_ACTIVE, MOVED_ACQUIRED, e);
}

void lease_begun(struct envlease_row *l)
{
	int64_t now = clock_real_ns();

	/* Its time is that of the lease, not of the wait for it. */
	if (l->expires_ns)
		l->expires_ns += now - l->acquired_ns;
	l->acquired_ns = l->used_ns = now;
}

int lease_make(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	struct envlease_row made = *l;
	struct err down = ERR_INIT;
	bool started, gone;
	int r = bring_up(x, &made, false, &started, &gone, e);

	/* Also what could not be written down is ended through its monitor. */
	l->monitor = made.monitor;
	if (r == 0) {
		struct envlease_row from = *l;

		made.reason[0] = made.cleanup[0] = '\0';
		lease_begun(&made);
		*l = made;
		r = lease_hand_over(x, l, e);
		if (r < 0)
			*l = from;
	}
	if (r < 0)
		(void)lease_tear_down(x, l, "acquire_rejected_teardown_succeeded", &down);
	return r;
}

/* What the operator archived or deleted while this waited gets no sandbox. */
static int still_active(struct job_ctx *x, const struct envlease_row *l, struct err *e)
{
	_cleanup_environment_ struct environment_row env = {0};
	int r = l->environment_id[0] ? environment_get(x->db, l->environment_id, &env, e) : 0;

	if (r < 0)
		return r;
	return r > 0 && strcmp(env.status, "active") == 0
		   ? 0
		   : err_set(e, ERR_CONFLICT, "lease %s: its environment is not active any more",
			     l->id);
}

json_t *job_acquire(struct job_ctx *x, const json_t *request)
{
	static const struct lease_want want = {EL_ACTIVE, MOVED_ACQUIRED};
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	int r =
	    lease_take(x, json_string_value(json_object_get(request, "leaseId")), &want, &l, &e);

	if (r == 0) {
		struct err down = ERR_INIT;
		bool ssh = strcmp(l.provider, "ssh") == 0;

		r = still_active(x, &l, &e);
		if (r < 0 || ssh) {
			r = r < 0 ? r : sshenv_lease(x, &l, &e);
			if (r < 0)
				(void)lease_tear_down(x, &l, "acquire_rejected_teardown_succeeded",
						      &down);
		} else {
			r = lease_make(x, &l, &e);
		}
	}
	return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
}

/* Not resumed: the row stays as it was, nothing is destroyed, and what was started for it is ended. */
static void give_up(struct job_ctx *x, const struct envlease_row *was, struct envlease_row *l,
		    bool started)
{
	struct err e = ERR_INIT;
	int r = started ? lease_stop(x, l, false, &e) : 0;

	if (r < 0)
		(void)fprintf(stderr, "airlockd: lease %s: what was started does not end: %s\n",
			      l->id, e.text);
	*l = *was;
	(void)lease_let_go(x->db, l, NULL);
}

/* Neither sandbox nor storage: the row says so, and nobody is offered it again. */
static json_t *lost(struct job_ctx *x, struct envlease_row *l, const struct err *why)
{
	struct err e = ERR_INIT;

	l->monitor = (struct proc_id){0};
	l->released_ns = clock_real_ns();
	(void)snprintf(l->reason, sizeof(l->reason), "not_found");
	if (lease_step(x->db, l, EL_EXPIRED,
		       l->status == EL_ACTIVE ? MOVED_RUN_CANCELLED : MOVED_SUPERSEDED, &e) < 0)
		return job_failed(&e);
	return json_pack("{s:b,s:b,s:s}", "ok", 0, "gone", 1, "error", why->text);
}

json_t *job_resume(struct job_ctx *x, const json_t *request)
{
	static const struct lease_want want = {EL_ACTIVE, MOVED_RESUMED};
	_cleanup_envlease_ struct envlease_row l = {0};
	struct envlease_row was;
	struct err e = ERR_INIT;
	bool started = false, gone = false;
	int r =
	    lease_take(x, json_string_value(json_object_get(request, "leaseId")), &want, &l, &e);

	if (r < 0)
		return job_failed(&e);
	was = l;
	/* The daemon has looked; a job may have waited since. */
	if (l.expires_ns && l.expires_ns <= clock_real_ns())
		r = err_set(&e, ERR_CONFLICT, "lease %s: its time is over", l.id);
	if (r == 0)
		r = still_active(x, &l, &e);
	if (r == 0)
		r = bring_up(x, &l, true, &started, &gone, &e);
	if (gone)
		return lost(x, &l, &e);
	if (r == 0 && job_alone())
		r = err_set(&e, ERR_CANCELLED, "whoever resumed it is not there any more");
	if (r == 0) {
		l.used_ns = clock_real_ns();
		l.released_ns = 0;
		l.reason[0] = l.cleanup[0] = '\0';
		r = lease_step(x->db, &l, EL_ACTIVE, MOVED_RESUMED, &e);
	}
	if (r < 0)
		give_up(x, &was, &l, started);
	return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
}

/* --- release ------------------------------------------------------------------------------ */

static void set(char *out, size_t n, const char *text)
{
	(void)snprintf(out, n, "%s", text);
}

json_t *job_release(struct job_ctx *x, const json_t *request)
{
	const char *how = json_string_value(json_object_get(request, "disposition")),
		   *status = json_string_value(json_object_get(request, "status"));
	enum envlease_status to = envlease_status_parse(status ? status : "");
	enum lease_cause why =
	    (enum lease_cause)json_integer_value(json_object_get(request, "cause"));
	const struct lease_want want = {to, why};
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	bool reusable, keep, gone, expired;
	int r =
	    lease_take(x, json_string_value(json_object_get(request, "leaseId")), &want, &l, &e);

	if (r < 0 || !how)
		return job_failed(&e);
	reusable = strcmp(l.policy, "reuse_by_environment") == 0;
	expired = l.expires_ns && l.expires_ns <= clock_real_ns();
	gone = !reusable || expired || strcmp(how, "destroy") == 0;
	keep = reusable && !expired && strcmp(how, "keep_running") == 0;
	l.used_ns = clock_real_ns();
	if (!keep)
		r = lease_stop(x, &l, gone, &e);
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
	if (reusable && !gone && strcmp(how, "stop_and_retain") == 0) {
		to = EL_RELEASED;
		why = MOVED_RELEASED;
	}
	/* Nothing is left to be resumed, and nothing that would keep its environment from being deleted. */
	if (reusable && gone && to == EL_RELEASED) {
		to = EL_EXPIRED;
		why = MOVED_RUN_CANCELLED;
		set(l.reason, sizeof(l.reason), expired ? "lease_expired" : "lease_destroyed");
	}
	if (to == EL_FAILED)
		set(l.reason, sizeof(l.reason), "adapter_or_run_failure");
	r = lease_step(x->db, &l, to, why, &e);
	return r < 0 ? job_failed(&e) : json_pack("{s:b}", "ok", 1);
}

void lease_probe_end(struct job_ctx *x, struct envlease_row *l, bool ok)
{
	struct err e = ERR_INIT;
	int r = lease_stop(x, l, true, &e);

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
