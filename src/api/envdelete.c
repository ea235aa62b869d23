/*
 * envdelete.c: deleting an environment, and what would be hit (api.md 2.9, 3.5).
 *
 * What blocks a deletion is asked twice: here, for a good answer, and in the DELETE statement itself, for the race. With
 * the operator's consent reusable leases are claimed first, each by compare and swap, and only then are their
 * sandboxes ended, by a job; the deletion goes on when that is proved.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/environments.h"
#include "api/envwrite.h"
#include "api/leases.h"
#include "api/runs.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "store/activity.h"

static const struct {
	const char *reason, *text;
} reasons[] = {
    {"managed_local", "Cannot delete the managed local environment."},
    {"instance_default",
     "Cannot delete the current instance default environment. Set a new default environment before "
     "deleting this one."},
    {"pending_sandbox_cleanup",
     "Cannot delete this environment while a sandbox cleanup is pending. Wait for the cleanup "
     "sweep to destroy the orphan sandbox, then retry."},
    {"reusable_sandbox_lease",
     "Cannot delete this environment while it has a reusable sandbox lease. Remove the "
     "associated execution workspace or issue so Paperclip can destroy the sandbox, then "
     "retry."},
    {"open_runs",
     "Cannot delete this environment while runs of it wait or go on. Cancel them, or consent to that "
     "with cancelOpenRuns=true."},
    {"work_elsewhere",
     "Cannot delete this environment while runs of it have left work, or something to remove, on its machine: nobody "
     "else has the key. Recover them (POST /api/runs/ID/recover), wait for the sweep, or consent to "
     "leaving it there with abandonRemoteWork=true."},
};

#define BLOCK_REUSABLE 8u
#define BLOCK_RUNS 16u
#define BLOCK_ELSEWHERE 32u

static int blast(struct call *c, const struct environment_row *row, struct environment_blast *b,
		 struct err *e)
{
	int r = environment_blast(c->api->db, row->id, b, e);

	return r == 0 && strcmp(row->driver, "ssh") == 0
		   ? envkeys_owed(c->api, row->id, &b->elsewhere, e)
		   : r;
}

static unsigned blocked_by(const struct environment_row *row, const struct environment_blast *b)
{
	return (strcmp(row->driver, "local") == 0 ? 1u : 0) | (b->instance_default ? 2u : 0) |
	       (b->pending ? 4u : 0) | (b->reusable ? BLOCK_REUSABLE : 0) |
	       (b->open_runs ? BLOCK_RUNS : 0) | (b->elsewhere ? BLOCK_ELSEWHERE : 0);
}

static json_t *reason_list(unsigned bits)
{
	json_t *a = json_array();

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (bits & 1u << i)
			(void)json_array_append_new(a, json_string(reasons[i].reason));
	return a;
}

static int put_holder(void *arg, const struct envlease_row *l)
{
	return json_array_append_new(
	    arg, json_pack("{s:s,s:s?,s:n,s:s?,s:n,s:n}", "leaseId", l->id, "executionWorkspaceId",
			   l->workspace_id[0] ? l->workspace_id : NULL, "executionWorkspaceName",
			   "issueId", l->issue_id[0] ? l->issue_id : NULL, "issueIdentifier",
			   "issueTitle"));
}

int h_env_blast(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	struct envlease_filter f = {.reusable = true, .limit = 1000};
	json_t *holders = json_array();
	struct environment_blast b;
	struct err e = ERR_INIT;
	unsigned bits;

	if (env_find(c, &row)) {
		json_decref(holders);
		return 0;
	}
	f.environment_id = row.id;
	if (blast(c, &row, &b, &e) < 0 ||
	    envlease_each(c->api->db, &f, put_holder, holders, &e) < 0) {
		json_decref(holders);
		return reply_failed(c, &e);
	}
	bits = blocked_by(&row, &b);
	return reply_json(
	    c, 200,
	    json_pack(
		"{s:s,s:b,s:o,s:I,s:I,s:o,s:{s:b,s:b,s:I,s:I,s:I,s:I,s:I},s:{s:I,s:I,s:I,s:b},s:I}",
		"environmentId", row.id, "canDelete", bits == 0, "deleteBlockedReasons",
		reason_list(bits), "pendingCleanupLeaseCount", (json_int_t)b.pending,
		"reusableSandboxLeaseCount", (json_int_t)b.reusable, "reusableSandboxLeaseHolders",
		holders, "staticReferences", "isManagedLocal", (bits & 1) != 0, "isInstanceDefault",
		(int)b.instance_default, "agentDefaultCount", (json_int_t)b.agents,
		"executionWorkspaceSelectionCount", (json_int_t)0, "issueSelectionCount",
		(json_int_t)0, "projectSelectionCount", (json_int_t)b.projects,
		"secretBindingCount", (json_int_t)b.bindings, "activeRuntimeUse",
		"activeLeaseCount", (json_int_t)b.active, "activeCustomImageSetupSessionCount",
		(json_int_t)0, "openRunCount", (json_int_t)b.open_runs, "hasActiveRuntimeUse",
		b.active > 0 || b.open_runs > 0, "workElsewhereCount", (json_int_t)b.elsewhere));
}

static int refuse(struct call *c, unsigned bits, int64_t destroyed)
{
	json_t *d = json_pack("{s:o}", "deleteBlockedReasons", reason_list(bits));
	size_t first = 0;

	while (first + 1 < ARRAY_LEN(reasons) && !(bits & 1u << first))
		first++;
	if (destroyed > 0)
		(void)json_object_set_new(d, "destroyedReusableSandboxLeaseCount",
					  json_integer(destroyed));
	return reply_coded(c, 409, NULL, reasons[first].text, d);
}

/* The locks that the operator opened with the request. */
static unsigned consent(const struct call *c)
{
	const char *leases = call_query(c, "destroyReusableSandboxLeases"),
		   *runs = call_query(c, "cancelOpenRuns"),
		   *elsewhere = call_query(c, "abandonRemoteWork");

	return (leases && strcmp(leases, "true") == 0 ? BLOCK_REUSABLE : 0) |
	       (runs && strcmp(runs, "true") == 0 ? BLOCK_RUNS : 0) |
	       (elsewhere && strcmp(elsewhere, "true") == 0 ? BLOCK_ELSEWHERE : 0);
}

/* The deletion itself, in one transaction. */
static int remove_now(struct call *c, const struct environment_row *row, int64_t destroyed)
{
	bool with_runs = consent(c) & BLOCK_RUNS;
	struct environment_blast b = {0};
	struct err e = ERR_INIT;
	int gone = 0, r = blast(c, row, &b, &e);

	/* What is left to cancel them for: nothing is, when something else blocks. */
	if (r == 0 && b.open_runs && !(blocked_by(row, &b) & ~consent(c)))
		r = runs_cancel_all(c, row->id, &e);
	if (r == 0)
		r = db_begin(c->api->db, &e);
	if (r < 0)
		return reply_failed(c, &e);
	r = blast(c, row, &b, &e);
	if (r == 0 && !(blocked_by(row, &b) & BLOCK_ELSEWHERE & ~consent(c)))
		gone = r = environment_remove(c->api->db, row->id, with_runs, &e);
	if (r > 0)
		r = binding_clear_all(c->api->db, row->id, &e);
	if (r == 0 && gone)
		r = envkeys_drop(c, row, &e);
	r = db_end(c->api->db, r, &e);
	if (r < 0)
		return reply_failed(c, &e);
	if (!gone) {
		unsigned bits = blocked_by(row, &b);

		return bits ? refuse(c, bits, destroyed)
			    : reply_error(c, 404, "Environment not found");
	}
	api_activity(c, NULL, "environment.deleted", "environment", row->id,
		     destroyed > 0
			 ? json_pack("{s:s,s:s,s:s,s:I}", "name", row->name, "driver", row->driver,
				     "status", row->status, "destroyedReusableSandboxLeaseCount",
				     (json_int_t)destroyed)
			 : json_pack("{s:s,s:s,s:s}", "name", row->name, "driver", row->driver,
				     "status", row->status));
	view_environment_open(c, row);
	(void)buf_putf(&c->out, ",\"destroyedReusableSandboxLeaseCount\":%lld}",
		       (long long)destroyed);
	return reply_out(c, 200);
}

/* After the job that ended the sandboxes. */
static void destroyed(struct call *c, int64_t n)
{
	_cleanup_environment_ struct environment_row row;

	if (!env_find(c, &row))
		(void)remove_now(c, &row, n);
	call_finish(c);
}

int h_env_delete(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	struct environment_blast b;
	struct err e = ERR_INIT;
	unsigned bits;

	if (env_find(c, &row))
		return 0;
	if (view_is_platform_row(c, &row))
		return reply_coded(
		    c, 403, "environment_platform_managed",
		    "Platform-provisioned environments are platform-managed on cloud-managed instances",
		    NULL);
	if (blast(c, &row, &b, &e) < 0)
		return reply_failed(c, &e);
	bits = blocked_by(&row, &b);
	/* Consent opens its own lock and no other: with any further reason nothing is destroyed or cancelled. */
	if (bits & ~consent(c))
		return refuse(c, bits, 0);
	return bits & BLOCK_REUSABLE ? lease_destroy_reusable(c, row.id, destroyed)
				     : remove_now(c, &row, 0);
}
