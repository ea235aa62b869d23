/* fork.h: what a process forked by pid 1 does first. */
#ifndef AIRLOCK_GUEST_FORK_H
#define AIRLOCK_GUEST_FORK_H

#include <stddef.h>

/* Closes every descriptor above 2 but those; `keep` is sorted in place, -1 is skipped. */
void fork_close(int *keep, size_t n);

#endif
