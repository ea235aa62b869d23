/*
 * cgroup.h: enforced limits of memory, processes and CPU time for one sandbox.
 *
 * Uses version 2 where the caller may create a group whose parent hands out the controllers (root,
 * or a delegated subtree), otherwise the version 1 controllers where they are writable. Paths are
 * absolute, from the controllers' mounts: a group made "relative to self" would be counted
 * against whatever limits the caller's own group has, which is not what was asked for.
 */
#ifndef AIRLOCK_OS_CGROUP_H
#define AIRLOCK_OS_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum cgroup_controller {
	CG_MEMORY,
	CG_PIDS,
	CG_CPU,
	CG_COUNT,
};

struct cgroup_limits {
	uint64_t memory_bytes, pids, cpu_milli; /* 0: not asked for */
	bool elsewhere; /* who asked is on another machine: what is to be done is to be done here */
};

struct cgroup {
	bool v2;
	unsigned in_force;   /* bits 1 << CG_*; */
	char *dir[CG_COUNT]; /* owned; version 2 uses dir[0] only */
	int oom_fd;	     /* counts kills for want of memory; -1 */
};

#define CGROUP_INIT ((struct cgroup){.oom_fd = -1})

/*
 * Makes a group `name` with these limits. All limits that are asked for are in force, or nothing is
 * left behind and ERR_UNAVAILABLE says which controller is missing and what to do.
 */
int cgroup_create(struct cgroup *cg, const char *name, const struct cgroup_limits *l,
		  struct err *e);
/* Moves a process in. Costs some milliseconds in the kernel: done only if a limit was asked for. */
int cgroup_add(const struct cgroup *cg, pid_t pid, struct err *e);
/* Processes of this group killed for want of memory so far. */
uint32_t cgroup_oom_kills(const struct cgroup *cg);
/* Removes the group, which must be empty by now, and frees. */
void cgroup_remove(struct cgroup *cg);

/* Where a controller ("memory"; "" for version 2) is mounted. Pure; false if it is not. Heap. */
bool cgroup_find_mount(const char *mountinfo, const char *controller, char **ret_point,
		       char **ret_root);
/* The caller's own group for a controller, from /proc/self/cgroup. Pure. Heap, NULL if none. */
char *cgroup_find_self(const char *self, const char *controller);
/* The number after `key` in "key n" lines; 0 if absent. Pure. */
uint64_t cgroup_find_count(const char *text, const char *key);

#endif
