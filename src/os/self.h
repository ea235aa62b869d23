/*
 * self.h: where our own helper programs lie.
 *
 * Beside the running program (build tree), else in ../libexec/airlock relative to it (installed).
 * Never from PATH or the environment: a workspace must not be able to choose a helper.
 */
#ifndef AIRLOCK_OS_SELF_H
#define AIRLOCK_OS_SELF_H

#include "base/err.h"

/* Heap path of helper `name` ("airlock-launch"); ERR_UNAVAILABLE names what is missing. */
int self_helper(const char *name, char **ret, struct err *e);

#endif
