/* caps.h: giving up every capability for good. */
#ifndef AIRLOCK_OS_CAPS_H
#define AIRLOCK_OS_CAPS_H

#include <stdbool.h>

/*
 * Empties the bounding set and locks the secure bits, so that neither uid 0 nor a file can bring a capability
 * back at exec. What the caller has no right to do (an ordinary user has no bounding set to drop) is
 * skipped: there is nothing to lose then. What it has now it keeps until caps_drop_all.
 */
int caps_drop_bounding(void);
/*
 * Empties the ambient, permitted, effective and inheritable sets. Verified afterwards: -EPERM if any capability
 * is left. The bounding set counts only at exec: a process that may start programs empties that first, another one
 * forbids exec (seccomp).
 */
int caps_drop_all(void);
/* True if the calling process has this capability (CAP_* of linux/capability.h) in effect. */
bool caps_have(unsigned cap);

#endif
