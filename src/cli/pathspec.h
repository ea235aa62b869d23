/*
 * pathspec.h: which paths of a workspace are meant.
 *
 * A word names a file, a directory with everything below it, or is a glob as git's (a '*' matches '/' too; a
 * directory that matches takes everything below it). Words are relative to the current directory where that is
 * inside the workspace, else to the workspace; ":/" in front means the workspace; an absolute one must lie in it.
 */
#ifndef AIRLOCK_CLI_PATHSPEC_H
#define AIRLOCK_CLI_PATHSPEC_H

#include <stdbool.h>

#include "base/err.h"

struct pathspec {
	char *const *words; /* borrowed */
	char **v;	    /* owned; relative to the workspace, "" is all of it */
	bool *hit;	    /* owned; the word matched something */
};

/* words NULL or empty: everything. They must live as long as the pathspec. */
int pathspec_init(struct pathspec *p, char *const *words, const char *workspace, struct err *e);
void pathspec_done(struct pathspec *p);
bool pathspec_all(const struct pathspec *p);
/* arg: the pathspec. */
bool pathspec_match(void *arg, const char *path);
/* arg: the pathspec. ERR_USAGE naming the first word that matched nothing; 0 when all did. */
int pathspec_check(void *arg, struct err *e);

#endif
