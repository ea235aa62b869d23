/*
 * envrun.h: runs that were started through the API. The id is the run's in the state's own database as well (run.h).
 *
 * A row is written before anything is started: queued, and the daemon's. Its job makes it its own (running), and ends it
 * once. A row whose owner does not live any more is the sweep's.
 */
#ifndef AIRLOCK_STORE_ENVRUN_H
#define AIRLOCK_STORE_ENVRUN_H

#include <stdbool.h>

#include "base/id.h"
#include "os/proc.h"
#include "store/store.h"

#define ENVRUN_ROOT_MAX 128
#define ENVRUN_PATH_MAX 1024
#define ENVRUN_REASON_MAX 64

enum envrun_status {
	ER_QUEUED,
	ER_RUNNING,
	ER_SUCCEEDED,
	ER_FAILED,
	ER_TIMED_OUT,
	ER_CANCELLED,
	ER_INTERRUPTED, /* whoever ran it died: kept says whether its work waits for 'airlock recover' */
	ER_STATUS_COUNT
};

struct envrun_row {
	char id[ID_LEN + 1];
	char company_id[UUID_LEN + 1], environment_id[UUID_LEN + 1]; /* "": deleted meanwhile */
	char user_id[UUID_LEN + 1]; /* who asked for it; "" not known */
	char root[ENVRUN_ROOT_MAX], path[ENVRUN_PATH_MAX];
	char *command; /* owned */
	bool review, kept;
	int64_t timeout_s;
	enum envrun_status status;
	int exit_status;		/* -1: none */
	char reason[ENVRUN_REASON_MAX]; /* "" none */
	struct proc_id owner;
	int64_t created_ns, started_ns, ended_ns; /* 0: not yet */
};

const char *envrun_status_name(enum envrun_status s);
void envrun_row_done(struct envrun_row *r);
#define _cleanup_envrun_ __attribute__((cleanup(envrun_row_done)))
/* 1 found, 0 there is none. ret may hold nothing that is owned. */
int envrun_get(struct db *s, const char *id, struct envrun_row *ret, struct err *e);
/* queued; created_ns is set. */
int envrun_add(struct db *s, struct envrun_row *r, struct err *e);
/* From queued to running: 1, 0 it was queued no more. */
int envrun_take(struct db *s, const char *id, const struct proc_id *owner, struct err *e);
/*
 * Status, exit status, reason and kept of r, if its status is still `from`, queued or running: 1, 0. A run that began
 * meanwhile must not get the end of one that waits.
 */
int envrun_end(struct db *s, const struct envrun_row *r, enum envrun_status from, struct err *e);
/* No work waits for it any more. */
int envrun_recovered(struct db *s, const char *id, struct err *e);

struct envrun_filter {
	const char *environment_id, *user_id; /* of companies of that user; NULL: all */
	bool open;			      /* queued and running ones */
	bool kept;			      /* those that are over and whose work waits */
	int64_t limit, offset;
};
/* Newest first. */
int envrun_each(struct db *s, const struct envrun_filter *f,
		int (*cb)(void *arg, const struct envrun_row *r), void *arg, struct err *e);

#endif
