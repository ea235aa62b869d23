/*
 * runhost.h: what the daemon's jobs ask of the engine for a run: nothing of the API is known there.
 *
 * The provider is the native one: no install, and a bridge only to the model of a preset; what it cannot isolate it refuses, as on the command line. Or
 * it is local: no isolation, in the workspace itself, as the daemon's own user; runs.c says who may have that. Or ssh: no
 * isolation either, in a copy on another machine, as the account that its environment names.
 */
#ifndef AIRLOCK_API_RUNHOST_H
#define AIRLOCK_API_RUNHOST_H

#include "engine/state.h"

struct runhost_want {
	const char *run_id, *workspace, *command; /* workspace: a real path that was judged */
	char *const *vars;			  /* NAME=VALUE, NULL-ended; NULL: none */
	const char *
	    image; /* "sha256:..." of the environment's system image; "": the host's own programs */
	const char *preset;   /* of an agent CLI (engine/preset.h); "": none */
	char *const *remote;  /* words of provider/ssh/target.h; NULL: here */
	char *const *exclude; /* patterns; NULL: none */
	const char *git;      /* "none", "shallow", "full"; "" or NULL: as ever */
	bool host_network, review, local, strict, take_sandbox, by_tar;
	uint64_t timeout_ns, memory, pids, cpu_milli; /* 0: none */
};

struct runhost_result {
	int exit_status; /* -1: none */
	bool ended;	 /* by itself: the command or Airlock's own part */
	bool timed_out, stopped, failed;
	bool kept;	/* work waits for 'airlock recover' */
	char phase[24]; /* failed: in which */
};

/* Signals that stop a run gently. Before its row says that it runs. */
int runhost_prepare(struct err *e);
/* 0 with *ret, also when the run failed; negative: it was not begun. */
int runhost_run(struct state *st, const struct runhost_want *w, struct runhost_result *ret,
		struct err *e);
/* Deals with what dead owners of this state left. */
int runhost_sweep(struct state *st, struct err *e);
/* Whether work of a run that is over still waits somewhere: no, once it was brought back, or given up. */
bool runhost_waits(struct state *st, const char *run_id);
/* What became of a run whose owner died, after that. false: its sandbox could not be dealt with, it may still run. */
bool runhost_look(struct state *st, const char *run_id, struct runhost_result *ret);

#endif
