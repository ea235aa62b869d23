/*
 * runner.h: one run, from request to released lease.
 *
 * Rows are written before the side effects they announce. Whatever happens, the outcome is filled:
 * which phases ran and for how long, how the command ended, what came back, and in which state
 * the lease was left. Work that could not be brought back stays in a recoverable lease.
 */
#ifndef AIRLOCK_ENGINE_RUNNER_H
#define AIRLOCK_ENGINE_RUNNER_H

#include "bridge/bridge_proto.h"
#include "bridge/proxy_proto.h"
#include "engine/inplace.h"
#include "engine/command.h"
#include "engine/state.h"
#include "engine/transfer.h"
#include "store/run.h"

#define RUN_PHASES_MAX 16
#define LEASE_RENEW_NS (60 * NS_PER_S)
#define LEASE_EXPIRY_NS (600 * NS_PER_S)      /* of a lease with an owner; renewed while it lives */
#define KEPT_EXPIRY_NS (7 * 86400 * NS_PER_S) /* of a kept one; renewed by each use */
#define EXIT_AIRLOCK 125
#define EXIT_TIMEOUT 124

struct bridge_outcome {
	bool used, lost;
	char name[UPSTREAM_NAME_MAX + 1]; /* "": the API's */
	char policy[128], why[256];	  /* why: it was lost */
	struct bridge_counts counts;
	unsigned restarts; /* it was interrupted so often */
};

struct net_outcome {
	bool used, lost;
	char why[256];
	char **refused; /* owned: place, rule, place, rule ... */
	struct proxy_counts counts;
};

struct run_outcome {
	char id[ID_LEN + 1], lease_id[ID_LEN + 1];
	int exit_status;
	bool command_ran;
	struct command_result cmd;
	struct phase_row phases[RUN_PHASES_MAX];
	size_t phases_len;
	struct transfer xfer;
	struct bridge_outcome bridge, named[RUN_UPSTREAMS_MAX];
	struct net_outcome net;
	struct inplace_report git_there; /* of a run in place on another machine */
	struct isolation isolation[24];
	size_t isolation_len;
	enum lease_state lease_state;
	bool pending; /* kept, and not all of its work is on the host */
	enum run_state state;
	int64_t started_ns, ended_ns;
	uint64_t log_dropped;
	int log_error;
	unsigned reconnects;	  /* cuts of the connection to another machine that were got over */
	int stop_signo;		  /* interrupt that came, or 0 */
	char *run_dir, *log_path; /* owned; NULL before they exist */
	char error_phase[24];	  /* where Airlock's own part failed */
	struct err err;		  /* why, when it did */
};

void run_outcome_done(struct run_outcome *o);
/* A new lease. Returns 0 with the outcome filled, also when the run failed (out->err). */
void runner_run(struct state *st, const struct request *q, const struct run_ui *ui,
		struct run_outcome *out);
/* Another command in a kept lease. */
void runner_exec(struct state *st, const struct lease_row *lease, const struct request *q,
		 const struct run_ui *ui, struct run_outcome *out);

#endif
