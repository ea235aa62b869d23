/*
 * unpack_key.h: the key of the journals that this user's publishes leave with this state directory.
 *
 * state_dir/journal.key: JOURNAL_KEY random bytes, 0600, made once (written beside and linked, so two that begin at
 * the same time agree) and on disk before it is used. It is never sent anywhere: a workspace gets a key that is
 * derived from it and from the workspace's inode, which goes to airlock-unpack in its set-up frame; each journal
 * gets one derived from that and from the name of its staging directory. So a journal proves that it was written by
 * this user, for this directory, in this place. Whoever has no key, or another one, recognises nothing.
 */
#ifndef AIRLOCK_SYNC_UNPACK_KEY_H
#define AIRLOCK_SYNC_UNPACK_KEY_H

#include <stdint.h>

#include "base/err.h"
#include "sync/journal.h"

#define JOURNAL_KEY_FILE "journal.key"

/*
 * That of the workspace with this inode; makes the file if it is not there. state_dir NULL: a random one, good
 * for nothing but one publish. 0 or negative errno.
 */
int unpack_key_load(const char *state_dir, uint64_t root_ino, uint8_t ret[JOURNAL_KEY],
		    struct err *e);
/* That of the journal in staging directory `name`. */
void unpack_key_stage(const uint8_t key[JOURNAL_KEY], const char *name, uint8_t ret[JOURNAL_KEY]);

#endif
