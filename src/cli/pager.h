/*
 * pager.h: long output for a person, as git does it.
 *
 * Only when stdout is a terminal. AIRLOCK_PAGER, else PAGER, else less; empty or "cat" means none. It is run by
 * `sh -c`, with LESS=FRX and LV=-c unless they are set. The variables are the caller's own, never a workspace's.
 */
#ifndef AIRLOCK_CLI_PAGER_H
#define AIRLOCK_CLI_PAGER_H

#include <stdbool.h>
#include <sys/types.h>

struct pager {
	pid_t pid; /* 0: none */
	int fd;	   /* where output goes; owned when there is a pager, else STDOUT_FILENO */
};

/* Never fails: without a pager output goes to stdout. */
void pager_start(struct pager *p, bool wanted);
/* Everything, or a negative errno; -EPIPE: the reader has seen enough. */
int pager_write(void *pager, const char *text, size_t n);
/* Waits for the person to leave it. */
void pager_end(struct pager *p);

#endif
