/*
 * store.h: the embedded database: environments, leases, runs, phases, reports.
 *
 * One SQLite file in WAL mode, shared by any number of processes; a process has its own handle and
 * never carries it over a fork. Every change is one transaction that takes the write lock
 * first, so a busy database means waiting (STORE_BUSY_MS), never a deadlock. Schema versions are
 * numbered; opening runs the missing migrations under a file lock and refuses a schema newer than
 * this program. A commit survives the death of any process; after a power cut the last few
 * commits may be missing, and the directories they spoke of are swept.
 */
#ifndef AIRLOCK_STORE_STORE_H
#define AIRLOCK_STORE_STORE_H

#include <stdint.h>

#include "base/err.h"

#define STORE_BUSY_MS 30000 /* another process's transaction; beyond: ERR_CONFLICT */
#define STORE_WAL_PAGES 250 /* of the log, before it is copied into the file */

struct db;

/* Opens or creates `path` (mode 0600; its directory must exist). */
int db_open(const char *path, struct db **ret, struct err *e);
/* The same for the file of what airlockd serves (companies, actors, environments of the API, their leases). */
int db_open_server(const char *path, struct db **ret, struct err *e);
/* The last process to close brings all commits to the disk, unless db_relax was called. */
void db_close(struct db *s);
/*
 * A power cut may undo what was committed through this handle: nothing that anybody would miss. It
 * spares the close two syncs.
 */
void db_relax(struct db *s);
void db_closep(struct db **s);
#define _cleanup_store_ __attribute__((cleanup(db_closep)))
/* One transaction around several calls: db_begin, ..., r = db_end(s, r, e). */
int db_begin(struct db *s, struct err *e);
int db_end(struct db *s, int r, struct err *e);
/*
 * Two numbers that are both as they were before only if no row has changed since: what this handle changed, and what
 * others committed. Not inside a transaction.
 */
struct db_mark {
	int64_t own, others;
};
int db_mark(struct db *s, struct db_mark *ret, struct err *e);
/* Schema version of the open file (tests, doctor). */
int db_version(struct db *s, int *ret, struct err *e);

#endif
