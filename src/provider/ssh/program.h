/*
 * program.h: our programs as they are sent to another machine, each by its hash, made for its kind of processor.
 *
 * Those of this machine's kind are the ones that run here. For others there may be programs beside them whose names say it (airlock-guest-aarch64).
 * Which one a machine gets follows from what its uname says: it chooses among ours, and no more.
 */
#ifndef AIRLOCK_PROVIDER_SSH_PROGRAM_H
#define AIRLOCK_PROVIDER_SSH_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define SSH_HASH_LEN 64 /* hex digits of SHA-256 */
#define SSH_MACHINE_MAX 127

struct ssh_program {
	int fd; /* owned */
	uint64_t size;
	char hash[SSH_HASH_LEN + 1];
};

/* This machine, as the start script there says its own: uname -s, a dash, uname -m. */
void ssh_machine_here(char out[SSH_MACHINE_MAX + 1]);
/* Is that program there for such a machine? Its word is foreign bytes. */
bool ssh_program_is_for(const char *name, const char *machine);
/* machine: "" is this one's kind. */
int ssh_program_open(const char *name, const char *machine, struct ssh_program *ret, struct err *e);

#endif
