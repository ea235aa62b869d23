/*
 * daemonrun.h: `airlock run --env NAME` by the daemon, where one runs and has an environment of that name.
 *
 * The workspace must lie below a --workspace-root of the daemon. What is asked for and a run of the daemon cannot give is an error,
 * never left out; so is a refusal: nothing is done here in its place. Ctrl-C cancels, what the command did comes back; a second
 * one stops watching, and the run goes on without us.
 */
#ifndef AIRLOCK_CLI_DAEMONRUN_H
#define AIRLOCK_CLI_DAEMONRUN_H

#include "cli/runopts.h"

/*
 * o: what was parsed without a state. 1: it was run there, with the exit status of the command and the record (owned; NULL: there is
 * none); 0: not, so it is run here, and that was said; negative: an error.
 */
int daemonrun(struct state *st, struct runopts *o, int *ret_status, char **ret_record,
	      struct err *e);

#endif
