/*
 * nodump.h: for a program that holds a credential or a token, first thing in its main.
 *
 * Another process of the same user can neither attach to it nor read its memory, its environment and its descriptors in
 * /proc, and no core file of it is written. What it executes starts dumpable again. Root, and whoever has CAP_SYS_PTRACE, is not
 * kept out by this.
 */
#ifndef AIRLOCK_BASE_NODUMP_H
#define AIRLOCK_BASE_NODUMP_H

#include <sys/prctl.h>

static inline void nodump(void)
{
	/* Fails for no argument that is valid. */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

#endif
