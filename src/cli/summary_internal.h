/*
 * summary_internal.h: shared by the files of the summary; no one else's business.
 *
 * summary.c is the whole of it, summary_results.c what came back and what did not, summary_words.c the words for
 * rules and reasons.
 */
#ifndef AIRLOCK_CLI_SUMMARY_INTERNAL_H
#define AIRLOCK_CLI_SUMMARY_INTERNAL_H

#include "engine/runner.h"

/* Why something was not sent, in plain words; an unknown reason as it is. */
const char *summary_reason(const char *token);
/* One indented line; path as it may be printed. after: NULL or "" for none. */
void summary_say_path(const char *before, const char *path, const char *after);
/* Of the results, only what did not come back, and what to do about it. */
void summary_result_losses(const struct transfer *t, const char *run_dir);

#endif
