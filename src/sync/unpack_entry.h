/*
 * unpack_entry.h: what lies at a name: is it what the journal says, and a rename that replaces nothing. Part of door 1.
 *
 * No link is followed. A directory that goes is compared with what it held when it was judged.
 */
#ifndef AIRLOCK_SYNC_UNPACK_ENTRY_H
#define AIRLOCK_SYNC_UNPACK_ENTRY_H

#include <stdbool.h>
#include <sys/stat.h>

#include "sync/journal.h"

/* By inode, and but for directories by size and times. After a rename of ours the ctime says nothing. */
bool entry_expected(const struct stat *st, const struct intent_old *old, bool with_ctime);
/* What a directory that goes holds is as it was: 1, also of what is no such directory; 0, errno. */
int entry_inside(int dir, const char *base, const struct stat *st, const struct intent_old *old);
/* Right before a step: 1, 0, errno. Where only the ctime moved since the plan, the bytes of the file decide. */
int entry_untouched(int dir, const char *base, const struct stat *st, const struct intent_old *old);
/* Two names of one entry. */
bool entry_same(int from, const char *a, int to, const char *b);
/* An error that says nothing of the path: the same step may well succeed when it is tried again. */
bool entry_passes(int r);
/* Not replacing. 0 or negative errno. */
int entry_rename_new(int from, const char *a, int to, const char *b);

#endif
