/*
 * front_base.h: trees of runs that are over, from which next runs start: <root>/.airlock-runtime/bases/<name>.
 *
 * One is the directory of a run that is over, whose work is on the host: a cache, which anybody may remove. It is taken and put by one
 * rename, so two runs never meet in one. At most BASES_MAX stay, and each for BASE_DAYS without use. One that goes is renamed first to
 * bases/.going-ID, which nobody takes; what cannot be removed stays there until it can.
 */
#ifndef AIRLOCK_GUEST_FRONT_BASE_H
#define AIRLOCK_GUEST_FRONT_BASE_H

#include <stdbool.h>

#include "wire/remote.h"

/* The run's directory, in runs, becomes m->base. False: it is still the run's. */
bool front_base_keep(int run, int runtime, int runs, const struct rm_open *m);
/*
 * Before a landing: the tree of that base, if there is one, becomes the run's, which is there only once. Its index goes with it if it is the one
 * that the host remembers (vouch.h).
 */
void front_base_take(int run, const char *base, const struct rm_index *index);
/* After one: what is too old of the others goes, so that it does not wait for the end of a run. */
void front_base_thin(int run);
/* A disk is full: all of them go, none of which is in use. True: there is more room now. */
bool front_base_room(int runtime);
/* All of them go. 0, or why one stays. */
int front_base_clean(int runtime);

#endif
