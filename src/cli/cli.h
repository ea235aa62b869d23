/*
 * cli.h: the verbs of airlock.
 *
 * Each verb is a function of its words (argv[0] is the verb) that returns the exit status. Our own
 * lines go to stderr and begin with "airlock: "; stdout belongs to the command, or to the
 * one thing a verb was asked to print.
 */
#ifndef AIRLOCK_CLI_CLI_H
#define AIRLOCK_CLI_CLI_H

#include "base/err.h"
#include "cli/opt.h"

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *synopsis;
	const char *summary;
	const struct opt *const *tables; /* NULL-ended list */
	const char *text;		 /* longer help; may be NULL */
};

/* Every verb, in the order of the help text; the last has a NULL name. */
const struct verb *cli_verbs(void);
int cli_main(int argc, char **argv);

int cmd_run(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_shell(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_prune(int argc, char **argv);
int cmd_runs(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_apply(int argc, char **argv);
int cmd_discard(int argc, char **argv);
int cmd_recover(int argc, char **argv);
int cmd_unpack(int argc, char **argv);
int cmd_manifest(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_audit(int argc, char **argv);
int cmd_preset(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_bridge(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_access_map(int argc, char **argv);
int cmd_company(int argc, char **argv);
int cmd_user(int argc, char **argv);
int cmd_agent(int argc, char **argv);
int cmd_project(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_help(int argc, char **argv);

/* Prints "airlock: text" to stderr; returns the exit status that fits. */
int cli_fail(const struct err *e);
/* One line to stderr. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Usage of one verb to f. */
struct _IO_FILE;
void cli_usage(const struct verb *v, struct _IO_FILE *f);

extern const struct opt opts_help[], opts_run[], opts_exec[], opts_shell[], opts_ps[], opts_logs[],
    opts_rm[], opts_env[], opts_doctor[], opts_recover[], opts_unpack[], opts_manifest[],
    opts_bridge[], opts_policy[], opts_audit[], opts_runs[], opts_diff[], opts_apply[],
    opts_discard[], opts_prune[], opts_serve[], opts_access_map[], opts_user[], opts_agent[],
    opts_project[], opts_token[], opts_image[];

#endif
