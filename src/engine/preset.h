/*
 * preset.h: presets that wire an agent CLI to a run (docs/agents.md).
 *
 * A preset is a JSON file: $XDG_CONFIG_HOME/airlock/agents/NAME.json (default ~/.config), else the one that came with Airlock.
 * It says how the CLI is found on this host, which model API it speaks to, and what it must be told. Applying one shows the
 * program read-only inside, starts a named upstream "model", whose key stays on the host, and wraps the command. It grants nothing
 * that options could not, and each grant is a line that the person sees.
 */
#ifndef AIRLOCK_ENGINE_PRESET_H
#define AIRLOCK_ENGINE_PRESET_H

#include "engine/request.h"

struct preset {
	char *name, *program, *install, *prepare; /* owned; install, prepare may be NULL */
	char **places, **install_allow, **allow, **args, **setenv, **state;
	char *url, *policy, *url_env, *path, *header; /* of the model; url NULL: none */
	char **key_env, **token_env;
	char *key_file; /* or NULL */
	char *file;	/* where it was read */
};

/* 0, ERR_NOT_FOUND, or an error that names the file and the member. */
int preset_load(const char *name, struct preset *ret, struct err *e);
void preset_done(struct preset *a);
#define _cleanup_preset_ __attribute__((cleanup(preset_done)))
/* Names of all presets, sorted, each once. */
int preset_names(char ***ret, struct err *e);
/* The program on this host: the real path, or NULL when it is not here. Heap. */
char *preset_program(const struct preset *a);
/*
 * A run of somebody else than who runs this process: key and URL of the model come from these variables alone, never from
 * this process's own environment or files, and are taken from what the command gets. The network stays what it is, so nothing
 * is installed. q's argv is {"sh", "-c", TEXT}; TEXT finds the CLI under its name.
 */
struct preset_source {
	char *const *vars; /* NAME=VALUE */
};

/*
 * Applies it to q, whose argv[0] is the CLI's name (with source NULL); upstreams and variables that q has already win. *grants gets a line for
 * each thing that was granted. Errors say what to do: a missing key, above all.
 */
int preset_apply(const struct preset *a, struct request *q, const struct preset_source *source,
		 char ***grants, struct err *e);

#endif
