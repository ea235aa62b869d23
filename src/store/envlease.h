/*
 * envlease.h: rows of the API's leases: one acquired place of an environment.
 *
 * State before effect: a row is written before its sandbox is made, as pending_cleanup with reason
 * ENVLEASE_ACQUIRING, and becomes active by compare and swap once the sandbox is there. So whatever dies in between leaves
 * a row that the sweep ends, never a sandbox without one. A row in work has an owner; the sweep leaves those of
 * living processes alone.
 */
#ifndef AIRLOCK_STORE_ENVLEASE_H
#define AIRLOCK_STORE_ENVLEASE_H

#include <stdbool.h>

#include "base/id.h"
#include "os/proc.h"
#include "store/store.h"

#define ENVLEASE_ACQUIRING "acquire_in_progress"
#define ENVLEASE_TEXT_MAX 64
#define ENVLEASE_PLACE_MAX 1023 /* "ssh://user@host:port/directory" */

enum envlease_status {
	EL_ACTIVE,
	EL_RELEASED,
	EL_EXPIRED,
	EL_FAILED,
	EL_RETAINED,
	EL_PENDING,
	EL_STATUS_COUNT
};

struct envlease_row {
	char id[UUID_LEN + 1], company_id[UUID_LEN + 1];
	char environment_id[UUID_LEN + 1], workspace_id[UUID_LEN + 1], issue_id[UUID_LEN + 1],
	    run_id[UUID_LEN + 1]; /* "": none */
	enum envlease_status status;
	char policy[32], provider[ENVLEASE_TEXT_MAX + 1], provider_lease_id[ENVLEASE_PLACE_MAX + 1];
	int64_t acquired_ns, used_ns, expires_ns, released_ns; /* 0: none */
	char reason[ENVLEASE_TEXT_MAX + 1], cleanup[8];	       /* "": none */
	char *metadata;					       /* owned JSON object, may be NULL */
	int attempts;
	struct proc_id owner,
	    monitor; /* pid 0: none; monitor: the process that ends with the sandbox */
	int64_t created_ns, updated_ns;
};

const char *envlease_status_name(enum envlease_status s);
/* EL_STATUS_COUNT when it is none. */
enum envlease_status envlease_status_parse(const char *word);
void envlease_row_done(struct envlease_row *l);
#define _cleanup_envlease_ __attribute__((cleanup(envlease_row_done)))
/* Fills times of creation. */
int envlease_add(struct db *s, struct envlease_row *l, struct err *e);
/* 1 and the row, 0 none. */
int envlease_get(struct db *s, const char *id, struct envlease_row *ret, struct err *e);
/* The same, by the name of its storage. */
int envlease_of_place(struct db *s, const char *provider_lease_id, struct envlease_row *ret,
		      struct err *e);
/*
 * Compare and swap: writes the row if status and attempts are still `from` and `attempts` and its owner is still
 * *owner. 1 written, 0 somebody else was first. Fills updated_ns.
 */
int envlease_move(struct db *s, struct envlease_row *l, const struct envlease_row *from,
		  struct err *e);

struct envlease_filter {
	const char *environment_id; /* NULL: any */
	const char *user_id; /* only of companies of which this user is a member; NULL: any */
	const char *status;
	bool
	    reusable; /* only those of an environment that can be used again or are in use; not with user_id or status */
	int64_t limit, offset;
};
/* Last used first. The row is the callback's for the call only. */
int envlease_each(struct db *s, const struct envlease_filter *f,
		  int (*cb)(void *arg, const struct envlease_row *l), void *arg, struct err *e);
/* The sweep's: pending_cleanup rows with attempts left, and active or kept ones whose time is over; oldest first. */
struct envlease_due {
	int64_t
	    pending_before_ns; /* what waits for a clean-up and was last touched then, or before */
	int64_t attempts_max;  /* and was tried less often */
	int64_t at_once;       /* tried less often than this: whenever it was touched */
	int64_t now_ns, limit;
};
int envlease_due(struct db *s, const struct envlease_due *d,
		 int (*cb)(void *arg, const struct envlease_row *l), void *arg, struct err *e);
/* How many rows of each status there are; of released ones only those whose storage is kept. */
int envlease_counts(struct db *s, int64_t ret[EL_STATUS_COUNT], struct err *e);

#endif
