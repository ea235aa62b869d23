/*
 * knownhosts.h: files of host keys that environments of driver ssh give, for ssh to read. No secrets.
 *
 * STATE/ssh-known/HASH, named by what is in it, so that it is written once and whoever sweeps later finds it by the words of its
 * lease. One that no lease speaks of goes a day after it was last used.
 */
#ifndef AIRLOCK_API_KNOWNHOSTS_H
#define AIRLOCK_API_KNOWNHOSTS_H

#include "engine/state.h"

/* Heap path. */
int knownhosts_put(struct state *st, const char *text, char **ret, struct err *e);
/* Removes those that are over: how many. */
int knownhosts_prune(struct state *st, struct err *e);

#endif
