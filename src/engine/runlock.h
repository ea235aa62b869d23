/*
 * runlock.h: the lock of one run's directory: a flock on it, which ends with the descriptor.
 *
 * Held by whoever fetches the results of a run again, decides about them, or removes what is kept of it.
 */
#ifndef AIRLOCK_ENGINE_RUNLOCK_H
#define AIRLOCK_ENGINE_RUNLOCK_H

/* 1: locked, *ret_fd is the caller's. 0: somebody has it (*ret_fd is open, for who waits). Negative errno: -1 in *ret_fd. */
int runlock_try(const char *run_dir, int *ret_fd);

#endif
