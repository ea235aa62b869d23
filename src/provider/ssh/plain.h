/*
 * plain.h: a sandbox on a machine that has no guest: another system or processor, a home without execution or room, or because
 * it was asked for.
 *
 * Each command is a session of ssh over the shared connection, run by the shell there (plainscript.h); one more session stays and ends
 * what is told. What is needed there: sh, tar, base64, and a few programs that every system has. Same order of steps, same
 * directory as with a guest; results come back by plain tar, compared here (engine/tarout.h), through the same door 1. Weaker than
 * with a guest: processes are found by a variable that they carry, so one that takes it off escapes; leftovers are not counted; no terminal.
 */
#ifndef AIRLOCK_PROVIDER_SSH_PLAIN_H
#define AIRLOCK_PROVIDER_SSH_PLAIN_H

#include "provider/provider.h"

enum plain_why {
	PLAIN_NO, /* there is a guest */
	PLAIN_ASKED,
	PLAIN_MACHINE,
	PLAIN_NOEXEC,
	PLAIN_ROOM,
	PLAIN_PLACE,
	PLAIN_TOOL,
	PLAIN_AGAIN, /* the lease began so */
};

/* s is valid. As struct provider_ops has it; with s->resume or no manifest the run's directory must be there. */
int ssh_plain_acquire(const struct sandbox_spec *s, enum plain_why why, struct sandbox **ret,
		      struct err *e);
/* Whether the lease in this directory is one. */
bool ssh_plain_is(const char *lease_dir);
int ssh_plain_forget(const struct sandbox_spec *s, struct err *e);

#endif
