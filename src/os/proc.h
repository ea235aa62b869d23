/*
 * proc.h: naming a process so that a reused number cannot be mistaken for it.
 *
 * A process is (boot id, pid, start time): the kernel gives numbers out again, but never
 * with the same start time in one boot.
 */
#ifndef AIRLOCK_OS_PROC_H
#define AIRLOCK_OS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define BOOT_ID_LEN 36

struct proc_id {
	pid_t pid;	/* 0: none */
	uint64_t start; /* clock ticks since boot, field 22 of /proc/PID/stat */
	char boot[BOOT_ID_LEN + 1];
};

/* The calling process. 0 or negative errno. */
int proc_self(struct proc_id *ret, struct err *e);
/* Start time of a process; -ESRCH if there is none. A zombie counts as gone (-ESRCH). */
int proc_start(pid_t pid, uint64_t *ret_start);
/* True if exactly that process lives (not a zombie, not another boot). */
bool proc_alive(const struct proc_id *id);
/* Sends signo to exactly that process. 0, -ESRCH (gone), other negative errno. */
int proc_signal(const struct proc_id *id, int signo);
/* Waits until that process is gone. 0, -ETIMEDOUT, or negative errno. */
int proc_wait_gone(const struct proc_id *id, int64_t deadline_ns);
/*
 * Every descendant of root (root itself not included), by the parent links of /proc. Heap array
 * in *ret. A process that forks while we look may be missed: callers repeat until empty.
 */
int proc_descendants(pid_t root, pid_t **ret, size_t *ret_n);
/*
 * Sends signo to every process of the caller's uid whose initial environment has the
 * word `name=value`, except the caller. Returns how many were signalled. Finds what a killed
 * supervisor left behind.
 */
int proc_signal_marked(const char *word, int signo);

#endif
