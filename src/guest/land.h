/*
 * land.h: a workspace arrives on another machine, and goes away again.
 *
 * The stream (wire/remote.h, RM_LAND) comes from the host, which is trusted here: what the strict tar reader refuses is
 * a fault of the transfer. The tree is new, or what is there already (reuse.h), in a directory of mode 0700, and no command runs yet. Entries keep mode & 0777 and
 * mtime. Not here: judging what comes back, which is the host's alone (airlock-unpack).
 */
#ifndef AIRLOCK_GUEST_LAND_H
#define AIRLOCK_GUEST_LAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* run/LAND_ASIDE: a tree that was there and could be neither used nor removed. */
#define LAND_ASIDE "aside"

/*
 * Reads the whole stream from in (blocking) into run/workspace, and says into want, which is taken over, what it is to hold (struct
 * rm_want). A tree that is there is made use of, run/base is its index if there is one. run/index (delta.h) appears last, so that a landing that was cut
 * can be told. One that can be neither used nor
 * removed is set aside. owner: both ids of all of it, 0: the account's own. 0, or negative errno with text.
 */
int land(int in, int want, int run, uint32_t owner, struct err *e);
/*
 * Whether what landed in run may not have reached the disk before the machine started anew: empty files beside a whole index would look like
 * work of the run. A landing waits for no disk: land_flush does, afterwards, beside the commands.
 */
bool land_lost(int run);
void land_flush(int run);
/*
 * Removes dir/name with everything below it, through descriptors and never through a link; directories that deny it
 * are opened up first, and however deep they are. 0 (also when it is not there), negative errno
 * of the first that stays; the others go.
 */
int land_remove(int dir, const char *name);

#endif
