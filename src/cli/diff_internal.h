/*
 * diff_internal.h: shared by the files of `airlock diff`; no one else's business.
 *
 * diff.c has the options, the other forms and the order of parts; diffstat.c the table of --stat.
 */
#ifndef AIRLOCK_CLI_DIFF_INTERNAL_H
#define AIRLOCK_CLI_DIFF_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/pager.h"
#include "engine/changes_show.h"

struct diff {
	enum { PATCH, STAT, NAMES, STATUS, JSON } form;
	int color; /* -1 auto */
	bool no_pager, paged, exit_code, help;
	uint64_t context;
	struct pager pager;
	struct changes c;      /* of the part that is shown */
	struct buf a, b, line; /* one file's sides; a line that is being made */
	bool eyes, any;	       /* any: there is a difference */
	bool all;	       /* no path was asked for */
};

/* Shows the line that was made, and begins another. Negative errno; -EPIPE: the reader left. */
int diff_put(struct diff *d);
/* The files of the part that is shown, in their order. */
int diff_stat(struct diff *d, struct err *e);

#endif
