/*
 * front_lock.h: who works in a run's directory on another machine.
 *
 * The file's flock is the proof that somebody does; its lines say who: number, start time, boot and machine (with its namespace of
 * numbers) of each. A number alone is nobody: the directory may lie on a file system of several machines, the number may be another
 * process's since. Only one of this machine whose start time fits is ever signalled.
 *
 * Alone: who holds it is woken (a command may have stopped it) and asked to end, then killed with all below it. Shared (kept leases): beside others that share it, and nobody is ended.
 */
#ifndef AIRLOCK_GUEST_FRONT_LOCK_H
#define AIRLOCK_GUEST_FRONT_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FRONT_NODE_MAX 120

/*
 * lock: read and write, appending. Asks at once, kills after half of the wait. 0, -EBUSY: it is held all the same, node (FRONT_NODE_MAX + 1) names
 * another machine that does, or ""; or another negative errno.
 */
int front_lock_take(int lock, bool shared, int64_t wait_ms, char *node);

/* A child that holds the lock too, and may outlive who took it. 0 or negative errno. */
int front_lock_sign(int lock, pid_t pid);

#endif
