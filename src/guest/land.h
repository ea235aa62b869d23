/*
 * land.h: a workspace arrives on another machine, and goes away again.
 *
 * The stream (wire/remote.h, RM_LAND) comes from the host, which is trusted here: what the strict tar reader refuses is
 * a fault of the transfer. The tree is new, in a directory of mode 0700, and no command runs yet. Entries keep mode & 0777 and
 * mtime. Not here: judging what comes back, which is the host's alone (airlock-unpack).
 */
#ifndef AIRLOCK_GUEST_LAND_H
#define AIRLOCK_GUEST_LAND_H

#include "base/err.h"

/*
 * Reads the whole stream from in (blocking) into run/workspace; run/index (delta.h) appears last, so that a landing that was cut
 * can be told. 0, or negative errno with text.
 */
int land(int in, int run, struct err *e);
/*
 * Removes dir/name with everything below it, through descriptors and never through a link; directories that deny it
 * are opened up first, and however deep they are. 0 (also when it is not there), negative errno.
 */
int land_remove(int dir, const char *name);

#endif
