/*
 * keepsake.h: what a run's directory holds that may be nowhere else.
 *
 * Losing versions of conflicts, deleted files, results that wait or were rejected, commits that did not find
 * their place. Who removes runs asks first. Run logs and records are not counted: they are only about work.
 */
#ifndef AIRLOCK_ENGINE_KEEPSAKE_H
#define AIRLOCK_ENGINE_KEEPSAKE_H

#include <stdint.h>

#include "engine/state.h"

struct keepsake {
	uint64_t files, bytes; /* bytes: as the disk counts them */
};

/* Adds what is at path, with all below it; links are not followed. What cannot be read counts as one file. */
void keepsake_tree(const char *path, struct keepsake *sum);
/* Adds what one run keeps, or all runs of a lease. */
void keepsake_add(const struct state *st, const char *run_id, struct keepsake *sum);
void keepsake_of_lease(const struct state *st, const char *lease_id, struct keepsake *sum);

#endif
