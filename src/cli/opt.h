/*
 * opt.h: command-line options from tables.
 *
 * One table per verb is the source of parsing, of the usage text and of `airlock help
 * --dump-options`, against which man pages and completions are checked.
 */
#ifndef AIRLOCK_CLI_OPT_H
#define AIRLOCK_CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct opt {
	const char *name; /* without "--" */
	char letter;	  /* 0: none */
	const char *arg;  /* name of the value; NULL: a flag; "=FILE": optional, only with '=' */
	const char *help;
	int id;
};

struct opt_parse {
	const struct opt *const
	    *tables;	  /* each ends with a name of NULL; the list ends with NULL */
	const char *verb; /* for messages */
	bool permute;	  /* options may follow positional words */
	int (*set)(void *arg, const struct opt *o, const char *value, struct err *e);
	void *arg;
	char **words; /* result: positional words (vector, owned by the caller) */
};

/* argv[0..argc): the words after the verb. ERR_USAGE names the nearest option. */
int opt_parse(struct opt_parse *p, int argc, char *const *argv, struct err *e);
/* The word of `names` nearest to `word` if it is near enough to be meant; NULL. */
const char *opt_nearest(const char *word, const char *const *names, size_t n);

#endif
