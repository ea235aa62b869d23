/*
 * tree.h: the living descendants of a process, and signals to all of them.
 *
 * The tree is read from /proc/PID/stat. Parentage cannot be shed: a process that changes its
 * session, its group or detaches twice still hangs below the nearest sub-reaper, which is why each
 * command has a holder of its own. Zombies do not count: they are not alive (FR-B095).
 *
 * A number may be reused between reading and signalling; it can then hit another process of the
 * same sandbox only, never one outside.
 */
#ifndef AIRLOCK_GUEST_TREE_H
#define AIRLOCK_GUEST_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pids {
	pid_t *v; /* owned, ascending */
	size_t n;
};

void pids_done(struct pids *p);
void pids_sort(struct pids *p);
#define _cleanup_pids_ __attribute__((cleanup(pids_done)))

/*
 * Living descendants of root, without root itself and without `except` (ascending, may be NULL)
 * and what hangs below those. 0, -ENOMEM, or a negative errno when /proc cannot be read.
 */
int tree_living(pid_t root, const struct pids *except, struct pids *ret);

/*
 * Sends signo to every descendant, new ones included until a pass finds none (bounded number of
 * passes). SIGKILL first stops the tree, so that a fork bomb cannot outrun the walk: stopped
 * processes keep their slots, and the limit on processes then ends the race. *ret_n: how many were
 * signalled; may be NULL. 0 or negative errno as above.
 */
int tree_signal(pid_t root, const struct pids *except, int signo, size_t *ret_n);

#endif
