/*
 * inplace.h: a run in a checkout that lies on another machine (--in-place), and what git there would execute.
 *
 * Nothing is copied and nothing is judged: the command works in the directory itself, as the account. What of a repository there makes git
 * run something later (config, hooks, attributes, those of submodules and worktrees) is recorded here before the command and compared
 * after it; what differs is put back and told, with both versions in the run's directory (git-before, git-after). Refs are recorded and
 * told only: commits are the work. No boundary: who works there may write whatever runs next in other ways (a shell's start file, a program).
 * Not done: a run whose airlock was killed, or whose machine was lost; what was recorded stays in its directory.
 */
#ifndef AIRLOCK_ENGINE_INPLACE_H
#define AIRLOCK_ENGINE_INPLACE_H

#include "base/err.h"
#include "provider/provider.h"

/* cwd: the directory there. 1: there is a repository, and it is recorded; 0: none. Negative with text: nothing may start. */
int inplace_record(struct sandbox *sb, const char *cwd, const char *run_dir, struct err *e);
/*
 * Puts back what differs. *ret_text: heap, lines that tell it, NULL: nothing to tell. 0, or negative with text: it is not known what the
 * command left.
 */
int inplace_restore(struct sandbox *sb, const char *cwd, const char *run_dir, char **ret_text,
		    struct err *e);

#endif
