/*
 * sockend.h: what the kernel knows of the other end of a TCP connection within this machine.
 *
 * One question for exactly that pair of addresses (sock_diag), some ten microseconds whatever the number of
 * connections; a kernel that does not answer such questions is read in /proc/net/tcp, which costs milliseconds.
 */
#ifndef AIRLOCK_OS_SOCKEND_H
#define AIRLOCK_OS_SOCKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sockend {
	uid_t uid;
	uint64_t inode; /* 0: no process has it any more */
};

/* What asks; {.fd = -1} before. */
struct sockend_asker {
	int fd;	       /* owned */
	bool answered; /* it has found something once: what it does not find is not there */
	bool cannot;
	uint32_t seq;
};

void sockend_done(struct sockend_asker *a);
/* fd: our end, connected. False: there is no other end on this machine, or not any more. */
bool sockend_find(struct sockend_asker *a, int fd, struct sockend *ret);

#endif
