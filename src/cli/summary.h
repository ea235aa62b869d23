/* summary.h: the end of a run in words: what came back, what did not and why, times, where the log is. */
#ifndef AIRLOCK_CLI_SUMMARY_H
#define AIRLOCK_CLI_SUMMARY_H

#include "engine/runner.h"

#define SUMMARY_NAMES 20 /* names of each kind that are printed */

void summary_print(const struct request *q, const struct run_outcome *o);
/* With --quiet: only the limit that ended the command, what did not come back, and where it is. */
void summary_losses(const struct request *q, const struct run_outcome *o);
/* Only the results' part; for recover. */
void summary_results(const struct transfer *t, const char *run_dir);
/* A stable rule word of door 1 in plain words; an unknown one as it is. */
const char *summary_rule(const char *token);

#endif
