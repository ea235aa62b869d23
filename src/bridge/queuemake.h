/*
 * queuemake.h: the directory of a file queue (queuedir.h), made and removed by whoever owns the run.
 */
#ifndef AIRLOCK_BRIDGE_QUEUEMAKE_H
#define AIRLOCK_BRIDGE_QUEUEMAKE_H

#include "base/err.h"

#define QUEUEMAKE_NAME 48

/*
 * A new one below parent (a descriptor): its name goes to `name`. Its folders belong to the owner of parent if this process is root, else
 * to its own user. The descriptor, or negative with e.
 */
int queuemake_new(int parent, char name[QUEUEMAKE_NAME], struct err *e);
/*
 * Removes what killed processes of this user left of theirs below parent, if it is older than a minute. Each holds a lock on its own
 * as long as a descriptor of it lives; what cannot be looked at stays.
 */
void queuemake_sweep(int parent);
/* With whatever is in it. Never fails; follows nothing. */
void queuemake_remove(int parent, const char *name);

#endif
