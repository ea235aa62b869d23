/*
 * git.h: the one way in which the host's git is run on a user's repository.
 *
 * Policy: whatever the repository's own config, attributes or work tree say, nothing of them is
 * executed: no hooks, fsmonitor, filters, external diff, credential helper, pager, submodule
 * action, transport or lazy fetch. Environment made anew, GIT_DIR and GIT_WORK_TREE explicit,
 * trust (safe.directory) for this one repository by environment only, no prompt, time limits.
 * Only plumbing that neither checks out nor cleans a file. Only gitback.c writes: objects, refs, index.
 *
 * Not done here: judging what a sandbox made of its own .git; that never comes back as files.
 *
 * A .git file is believed when its target proves the tie: a linked work tree's admin folder
 * names this work tree, a submodule's config names this folder. A forged pointer gives nothing.
 */
#ifndef AIRLOCK_SYNC_GIT_H
#define AIRLOCK_SYNC_GIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "os/process.h"

struct git_repo {
	char *program;	  /* absolute path of git; owned, as all below */
	char *git_dir;	  /* absolute and real; of a linked work tree: its admin folder */
	char *common_dir; /* objects, refs, config */
	char *top;	  /* work tree, absolute and real */
	char *prefix;	  /* the directory asked for, below top, with '/' at its end; "" at top */
	char *branch;	  /* refs/heads/...; NULL when detached */
	char head[65];	  /* "" when unborn */
	bool sha256;
	const volatile int *cancel;
	char **env; /* hardened environment */
};

enum git_found {
	GIT_FOUND_NONE, /* no repository: not an error */
	GIT_FOUND_REPO,
	GIT_FOUND_FORGED, /* a .git that does not prove itself */
	GIT_FOUND_NO_GIT, /* a repository, but no git program on the host */
};

/*
 * Looks at dir and, if climb, at its parents. 0 and *ret_found; *ret is set for
 * GIT_FOUND_REPO. dir: absolute, real.
 */
int git_open(const char *dir, bool climb, const volatile int *cancel, struct git_repo **ret,
	     enum git_found *ret_found, struct err *e);
void git_free(struct git_repo *g);
/* Id of the tree without entries: git knows it without having it. */
const char *git_empty_tree(const struct git_repo *g);

/* Runs git with these words after "git". stdout to out_fd, or into out (may be NULL). Exit
 * status != 0 is an error that quotes git's last words. extra_env: NULL-ended, may be NULL. */
int git_run(const struct git_repo *g, const char *const *words, const char *const *extra_env,
	    const struct process_opts *io, struct err *e);

/* As git_run, but an exit status is no error if ret_status is given: it goes there, stderr nowhere. */
int git_try(const struct git_repo *g, const char *const *words, const char *const *extra_env,
	    const struct process_opts *io, int *ret_status, struct err *e);
/* The same hardening for another repository: git_dir with an own work tree, no branch, no head. */
int git_at(const struct git_repo *like, const char *git_dir, const char *top, struct git_repo **ret,
	   struct err *e);

/* Value of one config key as the user's and the repository's files have it; *ret NULL: unset. */
struct git_config {
	char *data; /* owned; "key\nvalue\0" ... as git lists it */
	size_t len;
};
int git_config_read(const struct git_repo *g, struct git_config *ret, struct err *e);
/* Last value of key (section and name in lower case), NULL if unset. */
const char *git_config_get(const struct git_config *c, const char *key);
/* Walks all values: 1 and key (not NUL-terminated) and value, 0 at the end; *pos starts as 0. */
int git_config_next(const struct git_config *c, size_t *pos, const char **key, size_t *key_n,
		    const char **value);
void git_config_done(struct git_config *c);

/*
 * Paths of the index, relative to top. git starts at once and is waited for at the first
 * question, so that a walk runs beside it.
 */
struct git_index;
int git_index_start(const struct git_repo *g, struct git_index **ret, struct err *e);
void git_index_free(struct git_index *x);
/* 1 yes, 0 no, negative errno with e. */
int git_index_has(struct git_index *x, const char *path, size_t n, struct err *e);
/* Is a path below directory dir in the index? */
int git_index_below(struct git_index *x, const char *dir, size_t n, struct err *e);
/* All paths, in byte order: i from 0; NULL after the last. Waits as the others do. */
const char *git_index_path(struct git_index *x, size_t i, size_t *n);
int git_index_wait(struct git_index *x, struct err *e);

#endif
