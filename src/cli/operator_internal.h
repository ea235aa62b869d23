/*
 * operator_internal.h: the verbs of an operator share their options and the way to the daemon's database. For
 * operator*.c alone.
 */
#ifndef AIRLOCK_CLI_OPERATOR_INTERNAL_H
#define AIRLOCK_CLI_OPERATOR_INTERNAL_H

#include "cli/cli.h"
#include "engine/state.h"
#include "store/tenant.h"

struct operator_opts {
	const char *company, *user, *agent, *adapter, *role, *label, *run, *status;
	int64_t expires_ns;
	bool admin, configure;
};

/* The daemon's database, opened; the state directory is made if there is none. */
struct operator_place {
	struct state st;
	struct db *db;
};

struct operator_command {
	const char *word;
	size_t names; /* words behind it */
	int (*run)(struct operator_place *p, char **names, const struct operator_opts *o,
		   struct err *e);
};

/* ERR_USAGE: the option that this needs was not given. */
int operator_need(const char *what, const char *value, struct err *e);
/* Parses, finds the command, opens the database, runs it. An exit status. */
int operator_run(const char *verb, const struct opt *table, const struct operator_command *commands,
		 int argc, char **argv);
/* *ret: the id of --company (it lives in *c), or NULL where the option was not given. */
int operator_company(struct operator_place *p, const struct operator_opts *o, struct company_row *c,
		     const char **ret, struct err *e);

#endif
