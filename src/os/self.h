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
/* The same of a data file that came with them ("access-results.json"); ERR_NOT_FOUND: there is none. */
int self_file(const char *name, char **ret, struct err *e);

#define BUILD_ID_MAX 64 /* hexadecimal digits */
/*
 * What the linker made of everything in the running program (its NT_GNU_BUILD_ID note): two programs of other code have
 * other ids, and stripping keeps it. "" when there is none.
 */
void self_build_id(char out[BUILD_ID_MAX + 1]);

#endif
