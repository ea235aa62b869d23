/*
 * acquire.h: from a lease to a place on the other machine where commands can run: a session with the guest there, or none where it cannot
 * be (plain.h), the workspace sent or found there, the sandbox built. What is asked for has been judged by then (validate, ../ssh.c).
 *
 * What each try says of that machine is left in the lease's directory (unreached.h). -ENOENT only where that machine itself said that the
 * run's directory is gone.
 */
#ifndef AIRLOCK_PROVIDER_SSH_ACQUIRE_H
#define AIRLOCK_PROVIDER_SSH_ACQUIRE_H

#include "provider/provider.h"

int ssh_acquire(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);
/* In a sandbox there: with all of it, or not at all. */
int ssh_acquire_sandbox(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);
/* In the target's own directory, which the guest holds for this run. */
int ssh_acquire_in_place(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);
/* A further command of a kept lease, beside others. */
int ssh_attach(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);

#endif
