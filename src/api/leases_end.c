/* leases_end.c: resume, release and destroy over HTTP, and the leases of an environment that is deleted. */
#include "api/leases_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/environments.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "base/clock.h"

/* --- resume, release, destroy ------------------------------------------------------------- */

static int row_release(struct call *c, struct envlease_row *l, enum envlease_status to,
		       enum lease_cause why)
{
	struct err e = ERR_INIT;
	int r;

	l->released_ns = clock_real_ns();
	(void)snprintf(l->cleanup, sizeof(l->cleanup), "success");
	r = lease_step(c->api->db, l, to, why, &e);
	if (r == -EBUSY)
		return reply_error(c, 409, "The lease is in use or was changed meanwhile.");
	if (r < 0)
		return reply_failed(c, &e);
	lease_log(c, "environment.lease_released", l);
	view_lease(c, l);
	return reply_out(c, 200);
}

static int refuse_state(struct call *c, const struct envlease_row *l, const char *verb)
{
	return reply_errorf(c, 409, "A lease that is %s cannot be %s.",
			    envlease_status_name(l->status), verb);
}

static bool same_bounds(const json_t *a, const json_t *b)
{
	static const char *const numbers[] = {"memoryBytes", "pids", "cpuMillis"};
	const char *x = json_string_value(json_object_get(a, "network")),
		   *y = json_string_value(json_object_get(b, "network"));
	bool same = strcmp(x ? x : "none", y ? y : "none") == 0;

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		same &= json_integer_value(json_object_get(a, numbers[i])) ==
			json_integer_value(json_object_get(b, numbers[i]));
	return same;
}

/*
 * A sandbox that starts again gets what it was made with, also its image. Network and limits of an environment are its operator's
 * word for what runs there from now on: where they differ it does not start.
 */
static int resumable(struct call *c, const struct envlease_row *l)
{
	_cleanup_environment_ struct environment_row row = {0};
	struct err e = ERR_INIT;
	json_t *made, *now;
	bool same;
	int r = l->environment_id[0] ? environment_get(c->api->db, l->environment_id, &row, &e) : 0;

	if (r < 0)
		return (void)reply_failed(c, &e), 1;
	if (r == 0)
		return (void)reply_error(c, 409, "The environment of this lease is gone."), 1;
	if (strcmp(row.status, "active") != 0)
		return (void)reply_errorf(c, 409, "Environment \"%s\" is not active.", row.name), 1;
	if (l->expires_ns && l->expires_ns <= clock_real_ns())
		return (void)reply_error(c, 409, "The lease's time is over: it is being ended."), 1;
	made = lease_config(l);
	now = json_loads(row.config, 0, NULL);
	same = same_bounds(made, now);
	json_decref(made);
	json_decref(now);
	if (!same)
		(void)reply_coded(
		    c, 409, "lease_fingerprint_mismatch",
		    "Network or limits of the environment were changed since this lease was "
		    "acquired: destroy it, and acquire another.",
		    NULL);
	return !same;
}

int h_lease_resume(struct call *c)
{
	_cleanup_envlease_ struct envlease_row l;
	struct lease_wait w = {.action = "environment.lease_resumed", .status = 200};

	if (lease_find(c, &l))
		return 0;
	if (strcmp(l.policy, "reuse_by_environment") != 0)
		return reply_error(c, 409, "Only a reusable lease can be resumed.");
	if (!lease_may_move(l.status, EL_ACTIVE, MOVED_RESUMED))
		return refuse_state(c, &l, "resumed");
	if (resumable(c, &l))
		return 0;
	memcpy(w.id, l.id, sizeof(w.id));
	return lease_later(c, &w, json_pack("{s:s,s:s}", "op", "resume", "leaseId", l.id));
}

int h_lease_release(struct call *c)
{
	_cleanup_envlease_ struct envlease_row l;
	const char *result = lease_body_text(c, "result"), *how = lease_body_text(c, "disposition");
	enum envlease_status to = EL_RELEASED;
	enum lease_cause why = MOVED_RELEASED;
	struct lease_wait w = {.action = "environment.lease_released", .status = 200};
	bool reusable;

	if (lease_find(c, &l))
		return 0;
	if (result && (strcmp(result, "failed") == 0 || strcmp(result, "timed_out") == 0)) {
		to = EL_FAILED;
		why = MOVED_RUN_FAILED;
	} else if (result && strcmp(result, "cancelled") == 0) {
		to = EL_EXPIRED;
		why = MOVED_RUN_CANCELLED;
	}
	if (l.status != EL_ACTIVE)
		return refuse_state(c, &l, "released");
	reusable = strcmp(l.policy, "reuse_by_environment") == 0;
	/* Staying warm is earned by a turn that succeeded, and only a lease that can be used again stays. */
	if (how && strcmp(how, "keep_running") == 0 && (!reusable || to != EL_RELEASED))
		return reply_error(
		    c, 409,
		    "Cannot keep this lease running: it is not reusable, or its run did not succeed.");
	c->api->n.leases_released++;
	if (lease_nothing_made(l.provider))
		return row_release(c, &l, to, why);
	memcpy(w.id, l.id, sizeof(w.id));
	return lease_later(c, &w,
			   json_pack("{s:s,s:s,s:s,s:i,s:s}", "op", "release", "leaseId", l.id,
				     "status", envlease_status_name(to), "cause", (int)why,
				     "disposition", how ? how : "legacy_default"));
}

int h_lease_destroy(struct call *c)
{
	_cleanup_envlease_ struct envlease_row l;
	struct lease_wait w = {.action = "environment.lease_released", .status = 200};

	if (lease_find(c, &l))
		return 0;
	if (lease_nothing_made(l.provider) && l.status != EL_PENDING)
		return l.status == EL_ACTIVE ? row_release(c, &l, EL_RELEASED, MOVED_RELEASED)
					     : refuse_state(c, &l, "destroyed");
	if (l.status != EL_PENDING && !lease_may_move(l.status, EL_PENDING, MOVED_DELETE_CLAIMED))
		return refuse_state(c, &l, "destroyed");
	c->api->n.leases_released++;
	memcpy(w.id, l.id, sizeof(w.id));
	return lease_later(c, &w,
			   json_pack("{s:s,s:s,s:[s]}", "op", "destroy", "reason",
				     "lease_destroyed", "leaseIds", l.id));
}

/* --- deletion of an environment ----------------------------------------------------------- */

struct claim {
	struct call *c;
	json_t *ids;
};

/* Not one that a run holds: it stays as it is and goes on blocking. */
static int collect(void *arg, const struct envlease_row *l)
{
	struct claim *k = arg;
	bool held = l->status == EL_ACTIVE && l->run_id[0];

	if (!held && lease_may_move(l->status, EL_PENDING, MOVED_DELETE_CLAIMED))
		(void)json_array_append_new(k->ids, json_string(l->id));
	return 0;
}

int lease_destroy_reusable(struct call *c, const char *env_id,
			   void (*next)(struct call *c, int64_t n))
{
	struct envlease_filter f = {.environment_id = env_id, .reusable = true, .limit = -1};
	struct claim k = {c, json_array()};
	struct lease_wait w = {.next = next};
	struct err e = ERR_INIT;

	if (envlease_each(c->api->db, &f, collect, &k, &e) < 0) {
		json_decref(k.ids);
		return reply_failed(c, &e);
	}
	return lease_later(c, &w,
			   json_pack("{s:s,s:s,s:o}", "op", "destroy", "reason",
				     "environment_deleted", "leaseIds", k.ids));
}
