/*
 * policy_load.h: a policy from the word that a person gave.
 *
 * With a '/' in it, or ".json" at its end, the word is a file; else the name of a built-in policy. A file is a regular
 * file of at most CONFIG_MAX bytes that nobody but its owner and group can write.
 */
#ifndef AIRLOCK_BRIDGE_POLICY_LOAD_H
#define AIRLOCK_BRIDGE_POLICY_LOAD_H

#include "base/buf.h"
#include "policy/bridge_policy.h"

bool policy_word_is_file(const char *word);
/* The text of the file (for a confined helper that parses it itself). text's maximum is CONFIG_MAX. */
int policy_read(const char *path, struct buf *text, struct err *e);
/* New reference. */
int policy_load(const char *word, struct bridge_policy **ret, struct err *e);

#endif
