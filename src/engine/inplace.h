/*
 * inplace.h: a run in a checkout that lies on another machine (--in-place), and what git there would execute.
 *
 * Nothing is copied and nothing is judged: the command works in the directory itself, as the account, and Airlock writes, renames and
 * removes nothing there. What of a repository there makes git run or obey something later (where .git leads; config, hooks, attributes,
 * those of submodules and worktrees) is recorded here before the command and looked at again after it, at the same places; what differs is
 * told by name, with both versions in the run's directory (git-before, git-after). Refs are told apart: commits are the work.
 * No boundary: who works there may write whatever runs next in other ways (a shell's start file, a program of the checkout).
 * Not done: a comparison after a run whose airlock was killed or whose machine was lost; what was recorded stays in its directory.
 */
#ifndef AIRLOCK_ENGINE_INPLACE_H
#define AIRLOCK_ENGINE_INPLACE_H

#include <stdbool.h>

#include "base/err.h"
#include "provider/provider.h"

struct inplace_report {
	bool repo;     /* there was one, and it was recorded */
	bool compared; /* afterwards; else nobody knows what the command left */
	char *changed,
	    *refs; /* owned: printable names with commas between them, the first of many; NULL: none differs */
};

/* cwd: the directory there. 1: there is a repository, and it is recorded; 0: none. Negative with text: nothing may start. */
int inplace_record(struct sandbox *sb, const char *cwd, const char *run_dir, struct err *e);
/* Fills what is not `repo` of ret. 0, or negative with text: it is not known what the command left. */
int inplace_compare(struct sandbox *sb, const char *cwd, const char *run_dir,
		    struct inplace_report *ret, struct err *e);
void inplace_report_done(struct inplace_report *r);

#endif
