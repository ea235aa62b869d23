/*
 * identity.h: a private key that is a value here, as a file for ssh: in memory, and gone with this process however it ends.
 *
 * ssh takes keys from files. This one is a memfd of mode 0600, named through /proc: no file system ever has it, so nothing is to be
 * swept after a kill -9. A process that has secrets shows its descriptors to nobody (base/nodump.h), so the name is that of a
 * child without any: a `cat` that waits for the end of a pipe of ours, and so ends with us. Who runs as the same user could read it
 * there, as from a file.
 */
#ifndef AIRLOCK_PROVIDER_SSH_IDENTITY_H
#define AIRLOCK_PROVIDER_SSH_IDENTITY_H

#include "base/err.h"
#include "os/process.h"

#define SSH_IDENTITY_PATH 48

struct ssh_identity {
	int life;	       /* owned: its end ends the keeper; -1: there is none */
	struct process keeper; /* owned */
	char path[SSH_IDENTITY_PATH];
};

#define SSH_IDENTITY_INIT       \
	((struct ssh_identity){ \
	    .life = -1, .keeper = {.pid = -1, .pidfd = -1, .in = -1, .out = -1, .err = -1}})

/* Line ends are made right (CRLF, none at the end). ERR_INVALID: no private key, or one with a passphrase. */
int ssh_identity_open(const char *key, struct ssh_identity *ret, struct err *e);
void ssh_identity_done(struct ssh_identity *i);
#define _cleanup_identity_ __attribute__((cleanup(ssh_identity_done)))

#endif
