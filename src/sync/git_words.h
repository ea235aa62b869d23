/*
 * git_words.h: how git is called, for git.c and what else starts it by itself. Not for anybody above sync/git.h.
 */
#ifndef AIRLOCK_SYNC_GIT_WORDS_H
#define AIRLOCK_SYNC_GIT_WORDS_H

#include "sync/git.h"

#define GIT_WORDS_MAX 32

/* argv of git with these words; both ended by NULL. 0 or -E2BIG. */
int git_words(const struct git_repo *g, const char *const *words,
	      const char *argv[GIT_WORDS_MAX + 1]);
/* What git said at last (tail, which is cut to one line) into e. Negative errno. */
int git_failed(const struct git_repo *g, const char *verb, int status, char *tail, struct err *e);

#endif
