/*
 * runopts.h: from the options of run, exec and shell to a request.
 *
 * Layers, later wins: built-in defaults, the named environment's stored words, the command line.
 * Every limit remembers which layer set it.
 */
#ifndef AIRLOCK_CLI_RUNOPTS_H
#define AIRLOCK_CLI_RUNOPTS_H

#include "cli/opt.h"
#include "engine/request.h"
#include "engine/state.h"

struct runopts {
	struct request req;
	bool quiet, json, help;
	char *json_file;		   /* owned */
	char *workspace;		   /* as given, owned */
	char *env_name, *provider, *image; /* as given, owned */
	char *ssh, **ssh_words; /* owned: --ssh as given, words of the options beside it */
	bool remote_sandbox, in_place;
	char **env_files; /* owned, read after the provider is known */
	char **vars;	  /* owned, as given */
	char **binds;	  /* owned, as given */
	char **map_words; /* owned, as given */
	char *agent;	  /* owned, as given */
	char **given;	  /* owned: names of the options of the command line itself */
	char **grants;	  /* owned: what a preset granted, a line each */
	bool net_given, no_preset, presets;
	char layer[NAME_MAX_LEN + 16]; /* what is being parsed: "option" or "environment NAME" */
};

void runopts_done(struct runopts *o);
#define _cleanup_runopts_ __attribute__((cleanup(runopts_done)))
/*
 * Parses words (after the verb) with the tables; then resolves environment, provider, workspace,
 * variables and binds. st may be NULL: only syntax and values are judged (env create).
 */
int runopts_parse(struct runopts *o, struct state *st, const struct opt *const *tables,
		  const char *verb, int argc, char *const *argv, struct err *e);
/* What --ssh and its kin name, into req.remote; does nothing without them. */
int runopts_remote(struct runopts *o, struct err *e);

/* Adds the upstream of one --upstream word. */
int runopts_upstream(struct request *q, const char *word, struct err *e);

/* Where in the request's workspace the command starts: where the caller stands, if that is in it. */
void runopts_here(struct request *q);

/* Reads --env-file and --setenv into the request; its provider must be known. */
int runopts_vars(struct runopts *o, struct err *e);

#endif
