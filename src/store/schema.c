#include "store/schema.h"

#include <assert.h>

#include "base/cleanup.h"

/*
 * Lease states: acquiring, active, kept, recoverable (work inside not brought back yet, nothing
 * running), recovering, cleanup (storage to be removed), released. Run states: running,
 * finished, failed, interrupted, recovered. The words are checked here as well, so that no
 * writer can invent one.
 */
static const char *const state_steps[] = {
    "CREATE TABLE environments("
    " name TEXT PRIMARY KEY, options TEXT NOT NULL, created_ns INTEGER NOT NULL,"
    " updated_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE leases("
    " id TEXT PRIMARY KEY, provider TEXT NOT NULL, env TEXT NOT NULL, workspace TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK(state IN"
    "  ('acquiring','active','kept','recoverable','recovering','cleanup','released')),"
    " owner_pid INTEGER NOT NULL, owner_start INTEGER NOT NULL, owner_boot TEXT NOT NULL,"
    " monitor_pid INTEGER NOT NULL DEFAULT 0, monitor_start INTEGER NOT NULL DEFAULT 0,"
    " spec TEXT NOT NULL DEFAULT '{}', created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL,"
    " expires_ns INTEGER NOT NULL) STRICT;"
    "CREATE INDEX leases_live ON leases(state) WHERE state != 'released';"
    "CREATE TABLE runs("
    " id TEXT PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id) ON DELETE CASCADE,"
    " workspace TEXT NOT NULL, command TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK(state IN"
    "  ('running','finished','failed','interrupted','recovered')),"
    " phase TEXT NOT NULL, exit_status INTEGER NOT NULL DEFAULT -1, error TEXT NOT NULL DEFAULT '',"
    " stop_requested INTEGER NOT NULL DEFAULT 0,"
    " owner_pid INTEGER NOT NULL, owner_start INTEGER NOT NULL, owner_boot TEXT NOT NULL,"
    " started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE INDEX runs_lease ON runs(lease_id);"
    "CREATE TABLE phases("
    " run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, seq INTEGER NOT NULL,"
    " name TEXT NOT NULL, started_ns INTEGER NOT NULL, duration_ns INTEGER NOT NULL,"
    " outcome TEXT NOT NULL, PRIMARY KEY(run_id, seq)) STRICT;"
    "CREATE TABLE reports("
    " run_id TEXT PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE, record TEXT NOT NULL,"
    " written_ns INTEGER NOT NULL) STRICT;",
    /* A kept lease whose work may not be on the host: since the last complete sync-out a command ran. */
    "ALTER TABLE leases ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;",
};

static const char *const server_steps[] = {
    /*
     * What airlockd serves. Times in ns, 0: never. `proof` (what the server measured itself) is a column of its own
     * so that no write of `metadata` can touch it. `envs` are the API's
     * environments; `environments` above are the command line's named options.
     */
    "CREATE TABLE companies(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE users(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, admin INTEGER NOT NULL DEFAULT 0,"
    " created_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE memberships("
    " company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " user_id TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,"
    " role TEXT NOT NULL CHECK(role IN ('owner','member','viewer')),"
    " status TEXT NOT NULL CHECK(status IN ('active','suspended')), PRIMARY KEY(company_id, user_id)) STRICT;"
    "CREATE INDEX memberships_user ON memberships(user_id);"
    "CREATE TABLE envs("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT,"
    " driver TEXT NOT NULL CHECK(driver IN ('local','ssh','sandbox','plugin')),"
    " status TEXT NOT NULL CHECK(status IN ('active','archived')),"
    " config TEXT NOT NULL DEFAULT '{}', env_vars TEXT NOT NULL DEFAULT '{}', metadata TEXT, proof TEXT,"
    " managed INTEGER NOT NULL DEFAULT 0, created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX envs_name ON envs(name);"
    "CREATE UNIQUE INDEX envs_local ON envs(driver) WHERE driver='local';"
    "CREATE UNIQUE INDEX envs_managed ON envs(managed) WHERE managed=1 AND driver='sandbox';"
    "CREATE INDEX envs_order ON envs(updated_ns DESC, created_ns DESC);"
    "CREATE TABLE agents("
    " id TEXT PRIMARY KEY, company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, adapter_type TEXT NOT NULL,"
    " status TEXT NOT NULL CHECK(status IN ('active','paused','pending_approval','terminated')),"
    " responsible_user_id TEXT REFERENCES users(id) ON DELETE SET NULL,"
    " environment_id TEXT REFERENCES envs(id) ON DELETE SET NULL,"
    " configure INTEGER NOT NULL DEFAULT 0, created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL,"
    " UNIQUE(company_id, name)) STRICT;"
    "CREATE INDEX agents_environment ON agents(environment_id);"
    "CREATE TABLE projects("
    " id TEXT PRIMARY KEY, company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, environment_id TEXT REFERENCES envs(id) ON DELETE SET NULL,"
    " created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL, UNIQUE(company_id, name)) STRICT;"
    "CREATE INDEX projects_environment ON projects(environment_id);"
    "CREATE TABLE tokens("
    " id TEXT PRIMARY KEY, kind TEXT NOT NULL CHECK(kind IN ('board_key','session','agent_key')),"
    " digest TEXT NOT NULL, label TEXT NOT NULL,"
    " user_id TEXT REFERENCES users(id) ON DELETE CASCADE, agent_id TEXT REFERENCES agents(id) ON DELETE CASCADE,"
    " created_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL, used_ns INTEGER NOT NULL DEFAULT 0,"
    " revoked_ns INTEGER NOT NULL DEFAULT 0,"
    " CHECK((kind = 'agent_key') = (agent_id IS NOT NULL)), CHECK((kind = 'agent_key') = (user_id IS NULL))) STRICT;"
    "CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
    "CREATE TABLE secrets("
    " id TEXT PRIMARY KEY, company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, description TEXT, status TEXT NOT NULL CHECK(status IN ('active','inactive')),"
    " latest INTEGER NOT NULL, created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL,"
    " UNIQUE(company_id, name)) STRICT;"
    "CREATE TABLE secret_versions("
    " secret_id TEXT NOT NULL REFERENCES secrets(id) ON DELETE CASCADE, version INTEGER NOT NULL,"
    " key_id TEXT NOT NULL, sealed TEXT NOT NULL, created_ns INTEGER NOT NULL, PRIMARY KEY(secret_id, version)) STRICT;"
    "CREATE TABLE secret_bindings("
    " company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " secret_id TEXT NOT NULL REFERENCES secrets(id) ON DELETE CASCADE,"
    " target_type TEXT NOT NULL, target_id TEXT NOT NULL, path TEXT NOT NULL, version TEXT NOT NULL DEFAULT 'latest',"
    " UNIQUE(company_id, target_type, target_id, path)) STRICT;"
    "CREATE INDEX secret_bindings_target ON secret_bindings(target_type, target_id);"
    "CREATE TABLE secret_events("
    " id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, company_id TEXT NOT NULL, secret_id TEXT NOT NULL,"
    " consumer TEXT NOT NULL, actor TEXT NOT NULL, path TEXT NOT NULL, version TEXT NOT NULL,"
    " outcome TEXT NOT NULL, error_code TEXT) STRICT;"
    "CREATE TABLE env_leases("
    " id TEXT PRIMARY KEY, company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " environment_id TEXT REFERENCES envs(id) ON DELETE SET NULL,"
    " workspace_id TEXT, issue_id TEXT, run_id TEXT,"
    " status TEXT NOT NULL CHECK(status IN ('active','released','expired','failed','retained','pending_cleanup')),"
    " policy TEXT NOT NULL CHECK(policy IN"
    "  ('ephemeral','reuse_by_environment','reuse_by_execution_workspace','retain_on_failure')),"
    " provider TEXT, provider_lease_id TEXT, acquired_ns INTEGER NOT NULL, used_ns INTEGER NOT NULL,"
    " expires_ns INTEGER NOT NULL DEFAULT 0, released_ns INTEGER NOT NULL DEFAULT 0, failure_reason TEXT,"
    " cleanup TEXT CHECK(cleanup IN ('pending','success','failed')), metadata TEXT,"
    " attempts INTEGER NOT NULL DEFAULT 0, owner_pid INTEGER NOT NULL DEFAULT 0,"
    " owner_start INTEGER NOT NULL DEFAULT 0, owner_boot TEXT NOT NULL DEFAULT '',"
    " monitor_pid INTEGER NOT NULL DEFAULT 0, monitor_start INTEGER NOT NULL DEFAULT 0,"
    " created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL) STRICT;"
    "CREATE INDEX env_leases_env ON env_leases(environment_id, used_ns DESC, created_ns DESC);"
    "CREATE INDEX env_leases_status ON env_leases(status, updated_ns);"
    "CREATE INDEX env_leases_provider ON env_leases(provider_lease_id);"
    "CREATE TABLE activity("
    " id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL,"
    " company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " actor_type TEXT NOT NULL, actor_id TEXT NOT NULL, agent_id TEXT, run_id TEXT,"
    " action TEXT NOT NULL, entity_type TEXT NOT NULL, entity_id TEXT NOT NULL, details TEXT NOT NULL) STRICT;"
    "CREATE INDEX activity_company ON activity(company_id, id DESC);",
    /* The boot in which monitor_pid is its number: the owner's goes when nobody works on the row any more. */
    "ALTER TABLE env_leases ADD COLUMN monitor_boot TEXT NOT NULL DEFAULT '';",
    /*
     * A session ends with the key that opened it; of older ones that key is not known, so they end now. A secret that was made
     * of a raw key of an environment says of which one, and only then goes with it.
     */
    "DELETE FROM tokens WHERE kind='session';"
    "ALTER TABLE tokens ADD COLUMN parent_id TEXT;"
    "CREATE INDEX tokens_parent ON tokens(parent_id) WHERE parent_id IS NOT NULL;"
    "ALTER TABLE secrets ADD COLUMN made_for TEXT;"
    "CREATE INDEX secret_bindings_secret ON secret_bindings(secret_id);",
    /* What happened, for those who watch (event.h): of leases by triggers, because jobs move them as well. */
    "CREATE TABLE events("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, company_id TEXT, kind TEXT NOT NULL,"
    " entity_id TEXT NOT NULL, environment_id TEXT, status TEXT NOT NULL) STRICT;"
    "CREATE TRIGGER events_prune AFTER INSERT ON events BEGIN DELETE FROM events WHERE id <= new.id - 10000; END;"
    "CREATE TRIGGER env_leases_begun AFTER INSERT ON env_leases BEGIN"
    " INSERT INTO events(at_ns,company_id,kind,entity_id,environment_id,status)"
    " VALUES(new.updated_ns,new.company_id,'lease',new.id,new.environment_id,new.status); END;"
    "CREATE TRIGGER env_leases_moved AFTER UPDATE OF status ON env_leases WHEN old.status <> new.status BEGIN"
    " INSERT INTO events(at_ns,company_id,kind,entity_id,environment_id,status)"
    " VALUES(new.updated_ns,new.company_id,'lease',new.id,new.environment_id,new.status); END;",
    /* Runs through the API (envrun.h). */
    "CREATE TABLE env_runs("
    " id TEXT PRIMARY KEY, company_id TEXT NOT NULL REFERENCES companies(id) ON DELETE CASCADE,"
    " environment_id TEXT REFERENCES envs(id) ON DELETE SET NULL, root TEXT NOT NULL, path TEXT NOT NULL,"
    " command TEXT NOT NULL, review INTEGER NOT NULL, kept INTEGER NOT NULL DEFAULT 0, timeout_s INTEGER NOT NULL,"
    " status TEXT NOT NULL CHECK(status IN"
    "  ('queued','running','succeeded','failed','timed_out','cancelled','interrupted')),"
    " exit_status INTEGER NOT NULL DEFAULT -1, reason TEXT, owner_pid INTEGER NOT NULL DEFAULT 0,"
    " owner_start INTEGER NOT NULL DEFAULT 0, owner_boot TEXT NOT NULL DEFAULT '', created_ns INTEGER NOT NULL,"
    " started_ns INTEGER NOT NULL DEFAULT 0, ended_ns INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE INDEX env_runs_env ON env_runs(environment_id, created_ns DESC);"
    "CREATE INDEX env_runs_open ON env_runs(status) WHERE status IN ('queued','running');"
    "CREATE TRIGGER env_runs_begun AFTER INSERT ON env_runs BEGIN"
    " INSERT INTO events(at_ns,company_id,kind,entity_id,environment_id,status)"
    " VALUES(new.created_ns,new.company_id,'run',new.id,new.environment_id,new.status); END;"
    "CREATE TRIGGER env_runs_moved AFTER UPDATE OF status ON env_runs WHEN old.status <> new.status BEGIN"
    " INSERT INTO events(at_ns,company_id,kind,entity_id,environment_id,status)"
    " VALUES(max(new.started_ns,new.ended_ns),new.company_id,'run',new.id,new.environment_id,new.status); END;",
    /* Sessions are few, and old ones are found without a walk over every key; whose a run is, is known to the next daemon too. */
    ("CREATE INDEX tokens_sessions ON tokens(kind) WHERE kind='session';"
     "ALTER TABLE env_runs ADD COLUMN user_id TEXT NOT NULL DEFAULT '';"),
    /* Old uses of one secret are found without a walk over those of all. */
    "CREATE INDEX secret_events_secret ON secret_events(secret_id, id);",
};

static const struct {
	const char *const *steps;
	int n;
} sets[] = {
    [SCHEMA_STATE] = {state_steps, (int)ARRAY_LEN(state_steps)},
    [SCHEMA_SERVER] = {server_steps, (int)ARRAY_LEN(server_steps)},
};

int schema_latest(enum schema which)
{
	return sets[which].n;
}

const char *schema_step(enum schema which, int from)
{
	assert(from >= 0 && from < schema_latest(which));
	return sets[which].steps[from];
}
