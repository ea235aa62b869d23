/*
 * runopts_internal.h: between runopts_table.c, which lists the options, runopts.c, which reads the words, and runresolve.c,
 * which gives them their meaning on this host.
 */
#ifndef AIRLOCK_CLI_RUNOPTS_INTERNAL_H
#define AIRLOCK_CLI_RUNOPTS_INTERNAL_H

#include "cli/runopts.h"

/* Each option of run and exec. */
enum runopts_id {
	O_WORKSPACE,
	O_ENV,
	O_PROVIDER,
	O_IMAGE,
	O_SSH,
	O_SSH_KEY,
	O_SSH_HOSTS,
	O_SSH_CONFIG,
	O_SSH_JUMP,
	O_SSH_GUEST,
	O_SSH_MAX_RUNS,
	O_SSH_GRACE,
	O_SSH_NO_BASE,
	O_SSH_COMPRESS,
	O_IN_PLACE,
	O_REMOTE_SANDBOX,
	O_NET,
	O_RESOLVE,
	O_SHELL,
	O_SETENV,
	O_ENV_FILE,
	O_BIND,
	O_INSTALL,
	O_CLI,
	O_TIMEOUT,
	O_MEMORY,
	O_PIDS,
	O_CPUS,
	O_TTY,
	O_KEEP,
	O_STRICT,
	O_REVIEW,
	O_JSON,
	O_QUIET,
	O_CONFLICT,
	O_SYNC_OUT,
	O_MAP,
	O_INCLUDE,
	O_EXCLUDE,
	O_GIT,
	O_WITHOUT,
	O_LOG_LIMIT,
	O_API,
	O_API_KEY_FILE,
	O_API_RUN_ID,
	O_API_TRANSPORT,
	O_POLICY,
	O_UPSTREAM,
	O_AGENT,
	O_NO_PRESET,
	O_HELP,
};

/* *to becomes a copy of v. */
int runopts_replace(char **to, const char *v, struct err *e);

/* A copy of v at the end of the list. */
int runopts_add(char ***to, const char *v, struct err *e);

/* One option for every bridge of the run: where a stream cannot be had, none can. */
void runopts_follow_transport(struct request *q);

/* The workspace and where in it the command starts: what was given, else the enclosing git work tree. */
int runopts_workspace(struct runopts *o, struct err *e);

/* Provider, workspace, variables, binds, preset and maps of what was parsed. */
int runopts_resolve(struct runopts *o, const struct state *st, struct err *e);

#endif
