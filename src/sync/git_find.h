/*
 * git_find.h: where a repository lies, found by looking, without running git.
 *
 * Only reads; see git.h for what makes a pointer believable.
 */
#ifndef AIRLOCK_SYNC_GIT_FIND_H
#define AIRLOCK_SYNC_GIT_FIND_H

#include <stdbool.h>
#include <stddef.h>

/* Whole small file without its final newline, on the heap; NULL if absent, not regular, > max. */
char *git_find_slurp(const char *dir, const char *name, size_t max);
/* 1: *ret_git_dir and *ret_common (owned); 0: dir has no .git; -EPERM: forged or broken. */
int git_find_at(const char *dir, char **ret_git_dir, char **ret_common);
/* Absolute path of the git program from PATH, never one below `outside`; NULL: none. */
char *git_find_program(const char *outside);

#endif
