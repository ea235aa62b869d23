/*
 * pathspec.h: which paths of a workspace are meant.
 *
 * A word names a file, a directory with everything below it, or is a glob as git's (a '*' matches '/' too; a
 * directory that matches takes everything below it). Words are relative to the current directory where that is
 * inside the workspace, else to the workspace; ":/" in front means the workspace; an absolute one must lie in it.
 * A run's mappings (engine/maps.h) are further roots: a word that lies in one means what is there, and so does a
 * relative one where the current directory is inside.
 */
#ifndef AIRLOCK_CLI_PATHSPEC_H
#define AIRLOCK_CLI_PATHSPEC_H

#include <stdbool.h>

#include "engine/changeset.h"

struct pathspec {
	char *const *words; /* borrowed */
	char **v;	    /* owned; relative to the root of its part, "" is all of it */
	size_t *part;	    /* owned; of changeset.h */
	bool *hit;	    /* owned; the word matched something */
};

/* words NULL or empty: everything. They must live as long as the pathspec. */
int pathspec_init(struct pathspec *p, char *const *words, const struct changeset *set,
		  struct err *e);
void pathspec_done(struct pathspec *p);
bool pathspec_all(const struct pathspec *p);
/* arg: the pathspec. */
bool pathspec_match(void *arg, size_t part, const char *path);
/* Can it match anything of this part? arg: the pathspec. */
bool pathspec_touches(void *arg, size_t part);
/* arg: the pathspec. ERR_USAGE naming the first word that matched nothing; 0 when all did. */
int pathspec_check(void *arg, struct err *e);

#endif
