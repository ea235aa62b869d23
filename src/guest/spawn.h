/*
 * spawn.h: starts one command. Used by its holder only.
 *
 * The child gets a session of its own, the three descriptors as 0, 1 and 2 and no other,
 * default signals, an empty mask. A name without '/' is looked up in PATH of the *command's*
 * environment. It shares the holder's memory until execve (vfork): no page is copied, and a
 * failure is known when this function returns.
 */
#ifndef AIRLOCK_GUEST_SPAWN_H
#define AIRLOCK_GUEST_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "wire/guest.h"

/*
 * fds: all three above 2. tty: fds[0] becomes the controlling terminal. 0 and *ret_pid, or
 * a negative errno with *ret_step naming what failed ("fork", "terminal", "chdir", "execve");
 * nothing is left to wait for then.
 */
int spawn_command(const struct gm_exec *x, const int fds[3], bool tty, pid_t *ret_pid,
		  const char **ret_step);

#endif
