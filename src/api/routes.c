/*
 * routes.c: the one table of what the API serves. Dispatch, the OpenAPI document, docs/api.md and the
 * denied-actor tests (tests/api) are made from it.
 */
#include "api/api.h"
#include "base/limits.h"

static const char *const drivers[] = {"local", "ssh", "sandbox", "plugin", NULL};
static const char *const statuses[] = {"active", "archived", NULL};

#define END                  \
	{                    \
		.name = NULL \
	}

static const struct field environment_create[] = {
    {"name", FIELD_TEXT, FIELD_REQUIRED, 1, API_NAME_MAX, NULL,
     "unique in the instance, not trimmed"},
    {"description", FIELD_TEXT, FIELD_NULL, 0, 0, NULL, NULL},
    {"driver", FIELD_WORD, FIELD_REQUIRED, 0, 0, drivers, "local, ssh, sandbox or plugin"},
    {"status", FIELD_WORD, 0, 0, 0, statuses, "active (default) or archived"},
    {"config", FIELD_OBJECT, 0, 0, 0, NULL, "of the driver"},
    {"envVars", FIELD_ENV, 0, 0, 0, NULL, "values or secret references, by name"},
    {"metadata", FIELD_OBJECT, FIELD_NULL, 0, 0, NULL, "the operator's own"},
    END};
static const struct field environment_update[] = {
    {"name", FIELD_TEXT, 0, 1, API_NAME_MAX, NULL, NULL},
    {"description", FIELD_TEXT, FIELD_NULL, 0, 0, NULL, NULL},
    {"driver", FIELD_WORD, 0, 0, 0, drivers, NULL},
    {"status", FIELD_WORD, 0, 0, 0, statuses, NULL},
    {"config", FIELD_OBJECT, 0, 0, 0, NULL, "merged, member by member, unless the driver changes"},
    {"envVars", FIELD_ENV, 0, 0, 0, NULL, "replaces all"},
    {"metadata", FIELD_OBJECT, FIELD_NULL, 0, 0, NULL, "replaces all"},
    END};
static const struct field probe_config[] = {
    {"name", FIELD_TEXT, 0, 1, API_NAME_MAX, NULL, NULL},
    {"description", FIELD_TEXT, FIELD_NULL, 0, 0, NULL, NULL},
    {"driver", FIELD_WORD, FIELD_REQUIRED, 0, 0, drivers, NULL},
    {"config", FIELD_OBJECT, 0, 0, 0, NULL, NULL},
    {"envVars", FIELD_ENV, 0, 0, 0, NULL, "accepted, not used"},
    {"metadata", FIELD_OBJECT, FIELD_NULL, 0, 0, NULL, NULL},
    END};
static const char *const policies[] = {"ephemeral", "reuse_by_environment", NULL};
static const struct field lease_acquire[] = {
    {"companyId", FIELD_UUID, 0, 0, 0, NULL,
     "whose lease it is; the only company when there is one"},
    {"leasePolicy", FIELD_WORD, 0, 0, 0, policies, "ephemeral (default) or reuse_by_environment"},
    {"ttlSeconds", FIELD_INT, 0, 60, 604800, NULL, "after that it is ended; default: never"},
    {"issueId", FIELD_UUID, FIELD_NULL, 0, 0, NULL, NULL},
    {"executionWorkspaceId", FIELD_UUID, FIELD_NULL, 0, 0, NULL, NULL},
    {"runId", FIELD_UUID, FIELD_NULL, 0, 0, NULL, NULL},
    END};
static const char *const results[] = {"succeeded", "failed", "timed_out", "cancelled", NULL};
static const char *const dispositions[] = {"keep_running", "stop_and_retain", "destroy",
					   "legacy_default", NULL};
static const struct field lease_release[] = {
    {"result", FIELD_WORD, 0, 0, 0, results,
     "of the run: succeeded (default), failed, timed_out, cancelled"},
    {"disposition", FIELD_WORD, 0, 0, 0, dispositions,
     "of a reusable lease; see the operator's guide"},
    END};
static const char *const on_conflict[] = {"keep-host", "take-sandbox", NULL};
static const char *const git[] = {"none", "shallow", "full", NULL};
static const char *const sync_out[] = {"changes", "tar", NULL};
static const struct field run_start[] = {
    {"workspaceRoot", FIELD_TEXT, FIELD_REQUIRED, 1, 63, NULL,
     "name of a root that the operator gave with --workspace-root"},
    {"workspacePath", FIELD_TEXT, 0, 0, 1023, NULL, "directory below that root; default: the root"},
    {"command", FIELD_TEXT, FIELD_REQUIRED, 1, API_RUN_COMMAND_MAX, NULL,
     "for sh -c, in the workspace"},
    {"timeoutSeconds", FIELD_INT, 0, 1, API_RUN_SECONDS_MAX, NULL, "default: API_RUN_SECONDS"},
    {"preset", FIELD_TEXT, 0, 1, 60, NULL,
     "of an agent CLI, which the command then finds under that name; its model's key is the environment's"},
    {"review", FIELD_BOOL, 0, 0, 0, NULL, "results wait for airlock apply"},
    {"strict", FIELD_BOOL, 0, 0, 0, NULL, "any refused member rejects all results"},
    {"onConflict", FIELD_WORD, 0, 0, 0, on_conflict,
     "when both sides changed a file; the loser is always saved"},
    {"exclude", FIELD_TEXTS, 0, 1, API_RUN_PATTERNS_MAX, NULL,
     "patterns of what neither goes in nor comes back, as of airlock run --exclude"},
    {"git", FIELD_WORD, 0, 0, 0, git, "history that the sandbox gets; default: shallow"},
    {"syncOut", FIELD_WORD, 0, 0, 0, sync_out, "how results come back; default: changes"},
    {"companyId", FIELD_UUID, 0, 0, 0, NULL, "whose run it is; the only company when there is one"},
    END};
static const struct field run_recover[] = {
    {"noStrict", FIELD_BOOL, 0, 0, 0, NULL,
     "refuse single members instead of all results, though the run said strict"},
    {"exclude", FIELD_TEXTS, 0, 1, API_RUN_PATTERNS_MAX, NULL,
     "patterns of what is new or unreadable and stays out, besides the run's own"},
    END};
static const struct field changes_apply[] = {
    {"paths", FIELD_TEXTS, 0, 1, API_APPLY_PATHS_MAX, NULL,
     "files, or directories with what is below; default: everything"},
    {"pathsBase64", FIELD_TEXTS, 0, 1, API_APPLY_PATHS_MAX, NULL,
     "more of them, whose names are no UTF-8 (path_b64 in the list)"},
    {"onConflict", FIELD_WORD, 0, 0, 0, on_conflict,
     "when both sides changed a file; default: what the run said"},
    {"dryRun", FIELD_BOOL, 0, 0, 0, NULL, "say what would be done, write nothing"},
    END};
static const struct field settings_update[] = {
    {"defaultEnvironmentId", FIELD_UUID, FIELD_NULL, 0, 0, NULL, NULL}, END};
static const struct field agent_update[] = {
    {"defaultEnvironmentId", FIELD_UUID, FIELD_NULL, 0, 0, NULL, NULL},
    {"adapterType", FIELD_TEXT, 0, 1, 60, NULL, NULL},
    {"adapterConfig", FIELD_OBJECT, 0, 0, 0, NULL, "judged, not kept"},
    END};
static const struct field project_update[] = {{"executionWorkspacePolicy", FIELD_OBJECT, FIELD_NULL,
					       0, 0, NULL, "environmentId, or null"},
					      END};
static const struct field secret_create[] = {
    {"name", FIELD_TEXT, FIELD_REQUIRED, 1, SECRET_NAME_MAX, NULL, "unique in the company"},
    {"value", FIELD_TEXT, FIELD_REQUIRED, 1, SECRET_VALUE_MAX, NULL, "sealed at once, never shown"},
    {"description", FIELD_TEXT, FIELD_NULL, 0, 255, NULL, NULL},
    END};
static const struct field secret_version[] = {
    {"value", FIELD_TEXT, FIELD_REQUIRED, 1, SECRET_VALUE_MAX, NULL, "the new version"}, END};
static const struct field image_session[] = {
    {"templateId", FIELD_UUID, FIELD_NULL, 0, 0, NULL, "the active template; default: that one"},
    {"ttlSeconds", FIELD_INT, 0, 60, 86400, NULL, "default: 3600"},
    END};
static const struct field image_finish[] = {{"metadata", FIELD_OBJECT, 0, 0, 0, NULL, NULL}, END};
static const struct field image_cancel[] = {{"reason", FIELD_TEXT, 0, 1, 1000, NULL, NULL}, END};
static const struct field image_relink[] = {
    {"confirmBootSourceDrift", FIELD_BOOL, 0, 0, 0, NULL, NULL}, END};
static const struct field nothing[] = {END};

static const struct schema s_environment_create = {"EnvironmentCreate", environment_create},
			   s_environment_update = {"EnvironmentUpdate", environment_update},
			   s_probe_config = {"ProbeConfig", probe_config},
			   s_lease_acquire = {"LeaseAcquire", lease_acquire},
			   s_lease_release = {"LeaseRelease", lease_release},
			   s_settings = {"SettingsUpdate", settings_update},
			   s_agent = {"AgentUpdate", agent_update},
			   s_project = {"ProjectUpdate", project_update},
			   s_secret_create = {"SecretCreate", secret_create},
			   s_secret_renew = {"SecretRenew", secret_version},
			   s_run_start = {"RunStart", run_start},
			   s_run_recover = {"RunRecover", run_recover},
			   s_changes_apply = {"ChangesApply", changes_apply},
			   s_image_session = {"ImageSessionOpen", image_session},
			   s_image_finish = {"ImageSessionFinish", image_finish},
			   s_image_cancel = {"ImageSessionCancel", image_cancel},
			   s_image_relink = {"ImageTemplateRelink", image_relink},
			   s_nothing = {"Nothing", nothing};

#define GET METHOD_GET
#define POST METHOD_POST
#define PATCH METHOD_PATCH
#define DELETE METHOD_DELETE
#define COMPANY "/api/companies/{companyId}"
#define ENV "/api/environments/{id}"
#define RUN "/api/runs/{runId}"
#define LEASE "/api/environment-leases/{leaseId}"
#define SETUP "/api/environment-custom-image-setup-sessions/{sessionId}"

const struct api_route api_routes[] = {
    {GET, "/api/health", GUARD_OPEN, h_health, "health", "The daemon answers", NULL, "Health", 200,
     NULL, NULL},
    {GET, "/api/ready", GUARD_OPEN, h_ready, "ready",
     "The daemon takes requests and its database answers; else 503", NULL, "Health", 200, NULL,
     NULL},
    {GET, "/api/openapi.json", GUARD_OPEN, h_openapi, "openapi", "This document", NULL, "OpenApi",
     200, NULL, NULL},
    {GET, "/api/agent-access", GUARD_READ, h_agent_access, "agentAccess",
     "What agents may do here, and what the tests of this build said of it", NULL, "AgentAccess",
     200, NULL, NULL},
    {GET, "/metrics", GUARD_READ, h_metrics, "metrics", "Counters in the text format of Prometheus",
     NULL, "Text", 200, NULL, NULL},
    {GET, "/api/actor", GUARD_KNOWN, h_whoami, "actor", "Whom the credentials prove", NULL, "Actor",
     200, NULL, NULL},
    {POST, "/api/sessions", GUARD_BOARD, h_session_open, "openSession",
     "A session cookie for a browser; needs a board key", &s_nothing, "Session", 201, NULL, NULL},
    {DELETE, "/api/sessions", GUARD_BOARD, h_session_close, "closeSession",
     "Ends the session of the cookie", &s_nothing, "Session", 200, NULL, NULL},
    {GET, "/api/companies", GUARD_READ, h_companies, "listCompanies",
     "Companies that the actor sees", NULL, "Company[]", 200, NULL, NULL},
    {GET, COMPANY "/activity", GUARD_READ, h_activity, "listActivity",
     "What was done, newest first", NULL, "Activity[]", 200, "limit", NULL},
    {GET, "/api/events", GUARD_READ, h_events, "events",
     "What happens to leases and probes, as it happens (text/event-stream)", NULL, "Text", 200,
     "after", NULL},
    {GET, COMPANY "/environments", GUARD_READ, h_env_list, "listEnvironments",
     "Environments of the instance", NULL, "Environment[]", 200, "status,driver,limit,offset",
     "CF-01,CF-04,CF-05"},
    {POST, COMPANY "/environments", GUARD_ADMIN, h_env_create, "createEnvironment",
     "A new environment", &s_environment_create, "Environment", 201, NULL, "CF-01,CF-02"},
    {GET, COMPANY "/environments/capabilities", GUARD_READ, h_env_capabilities,
     "environmentCapabilities", "What adapters and providers can do here", NULL, "Capabilities",
     200, NULL, "CP-01"},
    {POST, COMPANY "/environments/probe-config", GUARD_ADMIN, h_probe_config, "probeConfig",
     "Looks at a configuration that is not saved; makes nothing", &s_probe_config, "ProbeResult",
     200, NULL, "PR-01,PR-05"},
    {GET, ENV, GUARD_READ, h_env_get, "getEnvironment", "One environment", NULL, "Environment", 200,
     NULL, "CF-01,CF-04,CF-05"},
    {PATCH, ENV, GUARD_ADMIN, h_env_update, "updateEnvironment", "Changes what the body names",
     &s_environment_update, "Environment", 200, "companyId", "CF-01,CF-02,CF-03,PR-09"},
    {DELETE, ENV, GUARD_ADMIN, h_env_delete, "deleteEnvironment",
     "Deletes it, unless something blocks that; see its blast radius", &s_nothing, "Environment",
     200, "destroyReusableSandboxLeases,cancelOpenRuns,abandonRemoteWork", "CF-01"},
    {GET, ENV "/delete-blast-radius", GUARD_ADMIN, h_env_blast, "environmentBlastRadius",
     "What a deletion would hit, and what blocks it", NULL, "BlastRadius", 200, NULL, "CF-01"},
    {GET, ENV "/secret-refs", GUARD_ADMIN, h_env_secret_refs, "environmentSecretRefs",
     "Names of the secrets that it uses, never values", NULL, "SecretRefs", 200, NULL, "CF-01"},
    {GET, ENV "/leases", GUARD_READ, h_env_leases, "listLeases",
     "Its leases; a member sees those of the own companies", NULL, "Lease[]", 200,
     "status,limit,offset", "CF-01"},
    {POST, ENV "/leases", GUARD_ADMIN, h_lease_acquire, "acquireLease",
     "Makes a sandbox and leases it", &s_lease_acquire, "Lease", 201, "companyId", NULL},
    {GET, "/api/workspace-roots", GUARD_ADMIN, h_workspace_roots, "workspaceRoots",
     "Directories below which workspaces of runs may lie", NULL, "WorkspaceRoot[]", 200, NULL,
     "B-05"},
    {GET, ENV "/runs", GUARD_READ, h_run_list, "listRuns",
     "Its runs, newest first; a member sees those of the own companies", NULL, "Run[]", 200,
     "limit,offset", NULL},
    {POST, ENV "/runs", GUARD_ADMIN, h_run_start, "startRun",
     "Runs a command in a sandbox with a workspace; it waits for its turn", &s_run_start, "Run",
     202, "companyId", "B-05"},
    {GET, RUN, GUARD_READ, h_run_get, "getRun", "One run", NULL, "Run", 200, NULL, NULL},
    {GET, RUN "/log", GUARD_READ, h_run_log, "runLog",
     "What it prints, from its beginning to its end, as it comes (text/event-stream)", NULL, "Text",
     200, "after", NULL},
    {GET, RUN "/report", GUARD_ADMIN, h_run_report, "runReport", "The record of a run that is over",
     NULL, "RunReport", 200, NULL, NULL},
    {GET, RUN "/changes", GUARD_ADMIN, h_run_changes, "runChanges",
     "What it changed; of a run with review what waits, and without a path its commits, a line each",
     NULL, "ChangeSet", 200, "path,pathBase64,limit,offset", NULL},
    {GET, RUN "/diff", GUARD_ADMIN, h_run_diff, "runDiff",
     "The same as a patch for a person to read (text/plain), commits as comments before it", NULL,
     "Text", 200, "path,pathBase64", NULL},
    {POST, RUN "/apply", GUARD_ADMIN, h_run_apply, "applyChanges",
     "Brings what waits into the workspace, all or by paths; what conflicts goes on waiting",
     &s_changes_apply, "ChangeSetApplied", 200, NULL, "S1-02"},
    {POST, RUN "/discard", GUARD_ADMIN, h_run_discard, "discardChanges", "Drops what waits",
     &s_nothing, "ChangeSetDiscarded", 200, NULL, NULL},
    {POST, RUN "/recover", GUARD_ADMIN, h_run_recover, "recoverRun",
     "Brings back the work that a run which was cut short left behind (workKept)", &s_run_recover,
     "ChangeSetDiscarded", 200, NULL, "S1-10"},
    {POST, RUN "/cancel", GUARD_ADMIN, h_run_cancel, "cancelRun",
     "Ends its command; what it did comes back all the same", &s_nothing, "Run", 200, NULL, NULL},
    {POST, ENV "/probe", GUARD_ADMIN, h_env_probe, "probeEnvironment",
     "Makes a fresh sandbox, looks inside, ends it; a failed probe is ok false", &s_nothing,
     "ProbeResult", 200, "companyId", "PR-01,PR-02,PR-08,B-09"},
    {GET, ENV "/qualification", GUARD_READ, h_env_qualification, "environmentQualification",
     "Whether a measurement that was recorded still speaks for it; makes nothing, grants nothing",
     NULL, "Qualification", 200, "companyId", "PR-03,PR-06,PR-07,PR-08"},
    {GET, ENV "/custom-image-template", GUARD_ADMIN, h_image_state, "imageState",
     "Its captured image and set-up session: none as long as no provider has an interactive set-up",
     NULL, "ImageState", 200, NULL, "IM-01"},
    {POST, ENV "/custom-image-setup-sessions", GUARD_ADMIN, h_image_session_open,
     "openImageSession", "Refused: no provider of this build has an interactive set-up",
     &s_image_session, "ImageSession", 201, NULL, "IM-01"},
    {POST, ENV "/custom-image-template/rollback", GUARD_ADMIN, h_image_template, "rollbackImage",
     "The captured image before this one", &s_nothing, "ImageTemplate", 200, NULL, "IM-01"},
    {POST, ENV "/custom-image-template/relink", GUARD_ADMIN, h_image_template, "relinkImage",
     "The captured image for the configuration as it is now", &s_image_relink, "ImageTemplate", 200,
     NULL, "IM-01"},
    {DELETE, ENV "/custom-image-template", GUARD_ADMIN, h_image_template, "deleteImage",
     "Uses the captured image no more", &s_nothing, "ImageTemplate", 200, "deleteProviderTemplate",
     "IM-01"},
    {GET, SETUP, GUARD_ADMIN, h_image_session, "getImageSession", "One set-up session", NULL,
     "ImageSession", 200, NULL, "IM-01"},
    {POST, SETUP "/terminal-session-token", GUARD_ADMIN, h_image_session, "imageSessionTerminal",
     "A token for its terminal", &s_nothing, "ImageSession", 201, NULL, "IM-01"},
    {POST, SETUP "/finish", GUARD_ADMIN, h_image_session, "finishImageSession",
     "Captures what was set up", &s_image_finish, "ImageSession", 200, NULL, "IM-01"},
    {POST, SETUP "/cancel", GUARD_ADMIN, h_image_session, "cancelImageSession",
     "Ends it without a capture", &s_image_cancel, "ImageSession", 200, NULL, "IM-01"},
    {GET, LEASE, GUARD_READ, h_lease_get, "getLease", "One lease", NULL, "Lease", 200, NULL,
     "CF-01"},
    {DELETE, LEASE, GUARD_ADMIN, h_lease_destroy, "destroyLease",
     "Ends the sandbox and removes its storage", &s_nothing, "Lease", 200, NULL, NULL},
    {POST, LEASE "/resume", GUARD_ADMIN, h_lease_resume, "resumeLease",
     "Uses a reusable lease again", &s_nothing, "Lease", 200, NULL, NULL},
    {POST, LEASE "/release", GUARD_ADMIN, h_lease_release, "releaseLease",
     "Ends the use of a lease", &s_lease_release, "Lease", 200, NULL, NULL},
    {GET, "/api/instance/settings", GUARD_SETTINGS, h_settings_get, "getSettings",
     "Settings of the instance", NULL, "Settings", 200, NULL, NULL},
    {PATCH, "/api/instance/settings", GUARD_SETTINGS, h_settings_update, "updateSettings",
     "The default environment of the instance", &s_settings, "Settings", 200, NULL, "AS-01"},
    {GET, "/api/agents/{id}", GUARD_KNOWN, h_agent_get, "getAgent", "One agent of the own company",
     NULL, "Agent", 200, NULL, "AS-01"},
    {PATCH, "/api/agents/{id}", GUARD_KNOWN, h_agent_update, "updateAgent",
     "Where an agent works; an agent may choose for itself", &s_agent, "Agent", 200, NULL,
     "AS-01,AS-03"},
    {GET, "/api/projects/{id}", GUARD_KNOWN, h_project_get, "getProject",
     "One project of the own company", NULL, "Project", 200, NULL, "AS-01"},
    {PATCH, "/api/projects/{id}", GUARD_KNOWN, h_project_update, "updateProject",
     "Where a project's work is done", &s_project, "Project", 200, NULL, "AS-01,AS-03"},
    {GET, COMPANY "/secrets", GUARD_ADMIN, h_secret_list, "listSecrets",
     "Secrets of a company, without values", NULL, "Secret[]", 200, NULL, NULL},
    {POST, COMPANY "/secrets", GUARD_ADMIN, h_secret_create, "createSecret", "Seals a value",
     &s_secret_create, "Secret", 201, NULL, NULL},
    {POST, "/api/secrets/{id}/versions", GUARD_ADMIN, h_secret_renew, "renewSecret",
     "Seals the next version", &s_secret_renew, "Secret", 200, NULL, NULL},
    {DELETE, "/api/secrets/{id}", GUARD_ADMIN, h_secret_remove, "deleteSecret",
     "Removes it with its versions and bindings", &s_nothing, "Secret", 200, NULL, NULL},
    {0},
};
