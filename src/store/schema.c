#include "store/schema.h"

#include <assert.h>

#include "base/cleanup.h"

/*
 * Lease states: acquiring, active, kept, recoverable (work inside not brought back yet, nothing
 * running), recovering, cleanup (storage to be removed), released. Run states: running,
 * finished, failed, interrupted, recovered. The words are checked here as well, so that no
 * writer can invent one.
 */
static const char *const steps[] = {
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

int schema_latest(void)
{
	return (int)ARRAY_LEN(steps);
}

const char *schema_step(int from)
{
	assert(from >= 0 && from < schema_latest());
	return steps[from];
}
