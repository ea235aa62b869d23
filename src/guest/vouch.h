/*
 * vouch.h: whether an index (delta.h) is the one of a landing, in the host's word.
 *
 * Whoever works as the same account may write a tree that is kept here and the index beside it, so neither says anything about the
 * other. The host remembers what it was told when the tree had landed, and says it when the tree is taken. What differs is no index:
 * then the bytes of the files are read. The file's time counts as well, since stamps are only as good as it is (delta_older).
 */
#ifndef AIRLOCK_GUEST_VOUCH_H
#define AIRLOCK_GUEST_VOUCH_H

#include "wire/remote.h"

/* Of the file dir/name. 0 or negative errno: then sum is all zeros, which no index has. */
int vouch_sum(int dir, const char *name, uint8_t sum[RM_PART_HASH]);

#endif
