/*
 * runopts_internal.h: between runopts.c, which reads the words, and runresolve.c, which gives them
 * their meaning on this host.
 */
#ifndef AIRLOCK_CLI_RUNOPTS_INTERNAL_H
#define AIRLOCK_CLI_RUNOPTS_INTERNAL_H

#include "cli/runopts.h"

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
