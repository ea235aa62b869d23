/*
 * rules.h: which paths of a workspace travel. One rule for every tree of a run and for both ways:
 * the walk that sends (select.h) and the question "is this new path ignored?" on the way back.
 *
 * In order, the first that speaks decides:
 *   1. an --exclude pattern keeps out, tracked or not;
 *   2. an --include pattern brings in (a directory: with what is below, but for secrets there);
 *   3. .airlockignore (in any directory) keeps out, tracked or not. Its '!' undoes only earlier
 *      lines of such files: a sandbox may have written them, so they can release nothing;
 *   4. what git's index lists travels;
 *   5. git's ignore rules (.gitignore, info/exclude, core.excludesFile) keep out;
 *   6. a name that looks like a credential is held back, with a note;
 *   7. heavy names (node_modules, .venv, ...; secret.h) stay behind, with a note: what an installation
 *      makes again, also where a repository forgot to ignore it;
 *   8. the rest travels.
 * ".git" never travels as files. A nested repository or submodule has its own index and ignore
 * rules, and its files are plain files. Ignore files that are links are not read (as in git).
 */
#ifndef AIRLOCK_SYNC_RULES_H
#define AIRLOCK_SYNC_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sync/git.h"
#include "sync/sync_in.h"

enum rules_mode {
	RULES_NORMAL,
	RULES_REST,	/* below something left out: only what is tracked or included */
	RULES_ALL,	/* below an included directory: all but secrets */
	RULES_RELEASED, /* below an included directory that is itself a secret one: all */
};

enum rules_why { WHY_NONE, WHY_EXCLUDED, WHY_IGNORED, WHY_SECRET, WHY_HEAVY };

struct rules_verdict {
	bool take;
	bool descend;	    /* a directory: look below */
	bool only_if_below; /* take the directory only if something below is taken */
	enum rules_mode below;
	enum rules_why why; /* why not taken */
};

struct rules; /* the stack of directories from the work tree's top down to the current one */

/*
 * Finds the repository of o->workspace and reads the rules above it. Where a .git does not prove
 * itself or git is missing on the host, its .gitignore files still count; rules_note tells.
 */
int rules_new(const struct sync_in_opts *o, struct rules **ret, struct err *e);
/* NULL outside git; owned by r. */
struct git_repo *rules_git(const struct rules *r);
/* What git_config_read gave for it; only with rules_git. */
const struct git_config *rules_config(const struct rules *r);
/* Why a .git that is there is not used: a note's word, else NULL. */
const char *rules_note(const struct rules *r);
void rules_free(struct rules *r);

/*
 * Goes into / out of a directory. path: from the workspace ("" = itself). dir_fd -1: it is not on
 * the host. has_git: what a listing showed (true when unknown). A nested repository is entered with its own rules.
 */
int rules_enter(struct rules *r, int dir_fd, const char *path, size_t n, bool has_git,
		struct err *e);
void rules_leave(struct rules *r);
/* Judges an entry of the current directory. 0 or negative errno (git failed: never a guess). */
int rules_judge(struct rules *r, const char *path, size_t n, bool is_dir, enum rules_mode mode,
		struct rules_verdict *ret, struct err *e);
/*
 * Is this directory sure to be taken and walked as any other? Asked of directories ahead of the
 * walk: `level` says which directories' rules count, as rules_level told when it was in the
 * innermost of them. Asks no index, so it never waits for git; false when that would be needed.
 */
size_t rules_level(const struct rules *r);
bool rules_surely_takes(struct rules *r, size_t level, const char *dir, size_t n,
			enum rules_mode mode, enum rules_mode *ret_below);
/* --include and --exclude patterns that decided nothing, through fn. */
void rules_unused(const struct rules *r, void (*fn)(void *arg, const char *pattern), void *arg);
/* The index of the outermost repository; NULL outside git. Owned by r. */
struct git_index *rules_index(struct rules *r);

#endif
