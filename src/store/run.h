/*
 * run.h: rows of runs, their phases and their reports.
 *
 * A run is one command in a lease. Phases are written as they end; the report is the JSON record
 * (docs/record.md). RUN on the command line is a unique prefix of an id, or "last".
 */
#ifndef AIRLOCK_STORE_RUN_H
#define AIRLOCK_STORE_RUN_H

#include <limits.h>
#include <stdbool.h>

#include "base/id.h"
#include "os/proc.h"
#include "store/store.h"

enum run_state {
	RUN_RUNNING,
	RUN_FINISHED,	 /* the command ended and its results were dealt with */
	RUN_FAILED,	 /* Airlock could not do its part; error says why */
	RUN_INTERRUPTED, /* stopped, or its owner died; the lease says whether work is kept */
	RUN_RECOVERED,	 /* interrupted, brought back later */
	RUN_STATE_COUNT
};

struct run_row {
	char id[ID_LEN + 1];
	char lease_id[ID_LEN + 1];
	char workspace[PATH_MAX];
	char *command; /* owned: JSON array of words */
	enum run_state state;
	char phase[24];
	int exit_status; /* -1: none yet */
	char *error;	 /* owned, "" when none */
	bool stop_requested;
	struct proc_id owner;
	int64_t started_ns, ended_ns; /* ended_ns 0: not yet */
};

struct phase_row {
	int seq;
	char name[24];
	int64_t started_ns, duration_ns;
	char outcome[24]; /* "ok", "failed", "skipped", "cancelled" */
};

const char *run_state_name(enum run_state s);
void run_row_done(struct run_row *r);
int run_add(struct db *s, const struct run_row *row, struct err *e);
int run_set_phase(struct db *s, const char *id, const char *phase, struct err *e);
/* State, phase, exit status, error, end. Only the first end counts: 1 written, 0 it had ended. */
int run_end(struct db *s, const struct run_row *row, struct err *e);
/* An interrupted or failed run whose work came back after all. */
int run_set_recovered(struct db *s, const char *id, struct err *e);
int run_request_stop(struct db *s, const char *id, struct err *e);
int run_get(struct db *s, const char *id, struct run_row *ret, struct err *e);
/* "last", an id, or a unique prefix. ERR_NOT_FOUND; ERR_INVALID when several begin so. */
int run_find(struct db *s, const char *word, struct run_row *ret, struct err *e);
/* Newest first. all: also ended ones whose lease is released. lease_id NULL: every lease. */
int run_list(struct db *s, bool all, const char *lease_id, struct run_row **ret, size_t *ret_n,
	     struct err *e);
/* Ids of runs that ended before and whose lease is released, oldest first; *ret: vector, NULL when none. */
int run_ids_ended(struct db *s, int64_t before_ns, char ***ret, struct err *e);
void run_list_free(struct run_row *v, size_t n);

int phase_add(struct db *s, const char *run_id, const struct phase_row *p, struct err *e);
int phase_list(struct db *s, const char *run_id, struct phase_row **ret, size_t *ret_n,
	       struct err *e);
int report_put(struct db *s, const char *run_id, const char *record, struct err *e);
/* Heap text, or NULL when there is none. */
int report_get(struct db *s, const char *run_id, char **ret, struct err *e);

#endif
