/* doctorssh.h: what `airlock run --ssh` would find on another machine, looked at with one login and nothing left behind. */
#ifndef AIRLOCK_CLI_DOCTORSSH_H
#define AIRLOCK_CLI_DOCTORSSH_H

#include <stdbool.h>

#include "base/err.h"

/* words: provider/ssh/target.h; layers: those of a sandbox as well. Prints; *ret_ok: a run would work. Negative: the words are wrong. */
int doctor_ssh(char *const *words, bool json, bool layers, bool *ret_ok, struct err *e);

#endif
