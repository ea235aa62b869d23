/*
 * runwords.h: the words of the verbs that look after runs: flags without values, and at most one run.
 */
#ifndef AIRLOCK_CLI_RUNWORDS_H
#define AIRLOCK_CLI_RUNWORDS_H

#include <stdbool.h>

#include "base/err.h"
#include "cli/opt.h"
#include "engine/state.h"
#include "store/run.h"

struct runwords {
	unsigned on; /* bit per option id; 0 is --help */
	char **words;
};

/*
 * want: what the one word is to be, NULL for none. False: *status is the exit status, and help or the error has been
 * printed.
 */
bool runwords_parse(struct runwords *f, const struct opt *const *tables, int argc, char **argv,
		    const char *want, int *status);
static inline bool runwords_has(const struct runwords *f, int id)
{
	return (f->on & (1u << id)) != 0;
}
/* Opens the state and finds the run that the one word names. */
int runwords_find(const struct runwords *f, struct state *st, struct run_row *ret, struct err *e);
void runwords_done(struct runwords *f);
#define _cleanup_runwords_ __attribute__((cleanup(runwords_done)))

#endif
