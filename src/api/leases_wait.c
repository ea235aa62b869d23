/* leases_wait.c: a call that waits for a job of its lease, and what it is answered then. */
#include "api/leases_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/environments.h"
#include "api/jobs.h"
#include "api/sweeper.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "store/tenant.h"

void lease_log(struct call *c, const char *action, const struct envlease_row *l)
{
	api_activity(c, l->company_id, action, "environment_lease", l->id,
		     json_pack("{s:s?,s:s,s:s,s:s?,s:s?,s:s,s:s?,s:s?}", "environmentId",
			       l->environment_id[0] ? l->environment_id : NULL, "leasePolicy",
			       l->policy, "provider", l->provider, "executionWorkspaceId",
			       l->workspace_id[0] ? l->workspace_id : NULL, "issueId",
			       l->issue_id[0] ? l->issue_id : NULL, "status",
			       envlease_status_name(l->status), "cleanupStatus",
			       l->cleanup[0] ? l->cleanup : NULL, "failureReason",
			       l->reason[0] ? l->reason : NULL));
}

static void answer_lease(struct call *c, const struct lease_wait *w, json_t *answer)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;
	const char *why = json_string_value(json_object_get(answer, "error"));
	bool ok = json_is_true(json_object_get(answer, "ok"));

	/* Killed between its last write and its answer: the row says what it came to. */
	if (!answer && w->made) {
		ok = envlease_get(c->api->db, w->id, &l, &e) > 0 && l.status == EL_ACTIVE &&
		     !l.owner.pid;
		envlease_row_done(&l);
	}
	if (!ok) {
		if (w->made)
			lease_forsake(c->api, w->id);
		sweeper_hurry(c->api);
		(void)fprintf(stderr, "airlockd: lease %s: %s\n", w->id,
			      why ? why : "the job gave no answer");
		if (json_is_true(json_object_get(answer, "gone"))) {
			(void)reply_coded(
			    c, 409, "lease_not_found",
			    "The sandbox of this lease and what it kept are gone; acquire another lease.",
			    NULL);
			return;
		}
		(void)(json_is_true(json_object_get(answer, "conflict"))
			   ? reply_error(c, 409, "The lease is in use or was changed meanwhile.")
			   : reply_coded(
				 c, 502, "lease_acquire_failed",
				 "The provider could not do this; the daemon's log says why",
				 NULL));
		return;
	}
	if (envlease_get(c->api->db, w->id, &l, &e) <= 0) {
		(void)reply_failed(c, &e);
		return;
	}
	if (w->action)
		lease_log(c, w->action, &l);
	view_lease(c, &l);
	(void)reply_out(c, w->status);
}

static void lease_done(struct api *a, void *arg, json_t *answer)
{
	struct lease_wait *w = arg;
	struct call *c = w->call;

	(void)a;
	if (w->next) {
		w->next(c, json_integer_value(json_object_get(answer, "destroyed")));
	} else {
		answer_lease(c, w, answer);
		call_finish(c);
	}
	free(w);
}

int lease_later(struct call *c, const struct lease_wait *what, json_t *request)
{
	struct lease_wait *w = malloc(sizeof(*w));
	struct err e = ERR_INIT;
	int r;

	if (!w) {
		json_decref(request);
		return reply_error(c, 503, "Out of memory, try again");
	}
	*w = *what;
	w->call = c;
	r = jobs_start(c->api, c->actor.user_id, request, lease_done, w, &e);
	if (r == 0)
		return API_LATER;
	free(w);
	if (what->made)
		lease_forsake(c->api, what->id);
	sweeper_hurry(c->api);
	return e.code == ERR_LIMIT
		   ? reply_error(c, 503, "Too many sandboxes are being made or ended, try again")
		   : reply_failed(c, &e);
}
