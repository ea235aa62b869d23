/*
 * environment.h: rows of the API's environments.
 *
 * config, env_vars and metadata are JSON objects as text; the caller has judged them. `proof` (what the server itself
 * measured of a target) is written by environment_set_proof alone: an edit of anything else cannot touch it,
 * and one of driver or config drops it in the same statement (CF-03, PR-09).
 */
#ifndef AIRLOCK_STORE_ENVIRONMENT_H
#define AIRLOCK_STORE_ENVIRONMENT_H

#include <stdbool.h>

#include "base/id.h"
#include "store/store.h"

struct environment_row {
	char id[UUID_LEN + 1];
	char *name, *description; /* owned, as all pointers here; description may be NULL */
	char driver[8], status[10];
	char *config, *env_vars, *metadata; /* metadata may be NULL */
	char *proof;			    /* may be NULL */
	bool managed;			    /* metadata.managedByPaperclip is true */
	int64_t created_ns, updated_ns;
};

/* What hangs on an environment; see api.md 2.9. */
struct environment_blast {
	bool instance_default;
	int64_t pending, reusable, active, agents, projects, bindings, open_runs;
	int64_t
	    elsewhere; /* not of the rows: leases with something on the other machine (envkeys_owed) */
};

void environment_row_done(struct environment_row *r);
#define _cleanup_environment_ __attribute__((cleanup(environment_row_done)))
/* 1 and the row, 0 none. */
int environment_get(struct db *s, const char *id, struct environment_row *ret, struct err *e);
/* The row of driver local: 1, or 0. */
int environment_local(struct db *s, char ret_id[UUID_LEN + 1], struct err *e);
/* Whether another row than `except` (may be NULL) has that name. */
int environment_name_taken(struct db *s, const char *name, const char *except, bool *ret,
			   struct err *e);
int environment_managed_taken(struct db *s, const char *except, bool *ret, struct err *e);
/* Fills times; id is the caller's. */
int environment_add(struct db *s, struct environment_row *r, struct err *e);
/* All but proof; drop_proof: it is gone with the same statement. Fills updated_ns. */
int environment_save(struct db *s, struct environment_row *r, bool drop_proof, struct err *e);
/* Only while driver and config are still these (compare and set). 1 written, 0 they changed. */
int environment_set_proof(struct db *s, const char *id, const char *driver, const char *config,
			  const char *proof, struct err *e);
/* status, driver NULL: any. Last changed first. The row is the callback's for the call only. */
struct environment_filter {
	const char *status, *driver;
	int64_t limit, offset; /* limit -1: all */
};
int environment_each(struct db *s, const struct environment_filter *f,
		     int (*cb)(void *arg, const struct environment_row *r), void *arg,
		     struct err *e);
int environment_blast(struct db *s, const char *id, struct environment_blast *ret, struct err *e);
/*
 * The predicates that block a deletion are part of the statement. 1 gone, 0 blocked or not there. with_runs: open runs
 * do not block it; they go on without an environment.
 */
int environment_remove(struct db *s, const char *id, bool with_runs, struct err *e);
/* The row of driver local, made if there is none (and its name is not taken). */
int environment_ensure_local(struct db *s, struct err *e);
int environment_count(struct db *s, int64_t *ret, struct err *e);

#endif
