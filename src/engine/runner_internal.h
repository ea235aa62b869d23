/*
 * runner_internal.h: one run between its files: runner.c drives, runner_lease.c keeps the rows and decides
 * where the lease goes, runner_bridge.c holds the bridge, runner_net.c the network proxy, runner_execute.c runs the command and says how it ended.
 */
#ifndef AIRLOCK_ENGINE_RUNNER_INTERNAL_H
#define AIRLOCK_ENGINE_RUNNER_INTERNAL_H

#include "engine/apibridge.h"
#include "engine/netproxy.h"
#include "engine/runner.h"

struct runner {
	struct state *st;
	const struct request *q;
	const struct run_ui *ui;
	struct run_outcome *o;
	struct lease_row lease;
	struct lease_spec spec;
	struct run_row run;
	struct runlog log;
	struct sandbox *sb;
	struct apibridge bridge, named[RUN_UPSTREAMS_MAX];
	struct netproxy net;
	char *lease_dir, *cwd;
	char **env;
	int64_t phase_began, renewed;
	bool rows;     /* lease and run are in the database */
	bool attached; /* the lease was there before this run */
	bool shared;   /* it is kept: others may use it at the same time, its row is not ours */
	bool lost;     /* the kept sandbox is not there any more */
	int64_t
	    turn_ns; /* real time at which that turn came, before anything was packed; 0: nothing was to be */
	int baseline; /* owned: this run's turn to bring results out of a kept sandbox; -1 */
};

static inline const struct provider_ops *ops(const struct runner *r)
{
	return r->q->provider;
}

/* Into the log, and with warn to the person. */
void runner_note(struct runner *r, bool warn, const char *text);

/* runner_lease.c: what the sandbox says of its connection is for the person. */
void runner_listen(struct runner *r);
/* Its connections are counted, before it goes. */
void runner_count(struct runner *r);
/* writes the row of a lease that is ours alone. */
int runner_save_lease(struct runner *r, struct err *e);
/* Lease (unless there is one) and run appear together, before anything exists that they speak of. */
int runner_add_rows(struct runner *r, struct err *e);
/* runner_room.c: begins that transaction, when an environment's limit for one machine has room. Waits; the first signal ends that. */
int runner_begin_with_room(struct runner *r, struct err *e);
/* From here on the lease is kept, whatever becomes of this process, and others may use it. */
int runner_share_lease(struct runner *r, struct err *e);
/* A struct command_opts's tick: the lease is good for longer. */
void runner_renew(void *arg);
/* Ends or leaves the sandbox, and says in the row where the lease stands. settled: all work is on the host. */
int runner_release(struct runner *r, bool settled, struct err *e);

struct transfer_job;
/* runner_back.c: transfer_out, again over a cut: j->sb and r->sb are new ones then, r->sb NULL where it was not got over. */
int runner_bring_back(struct runner *r, struct transfer_job *j, struct err *e);

/* runner_bridge.c: asked for and not there is an error; lost later is said once. */
int runner_bridge_start(struct runner *r, struct err *e);
/* Of the sandbox's network, that its bridges can use. */
unsigned runner_bridge_sockets(const struct request *q);
void runner_bridge_watch(struct runner *r);
/* The end of the command is the bridge's: what still runs inside has no API any more. */
void runner_bridge_end(struct runner *r);

/* The file for decisions, for appending; every helper gets a descriptor of its own. Negative: errno, with e. */
int runner_audit(struct runner *r, struct err *e);

/* runner_net.c: the same for the network proxy. */
int runner_net_start(struct runner *r, struct err *e);
void runner_net_watch(struct runner *r);
void runner_net_end(struct runner *r);

/* runner_execute.c: the command, and a line for whatever was unusual about its end. */
int runner_execute(struct runner *r, struct err *e);

#endif
