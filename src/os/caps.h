/* caps.h: giving up every capability for good. */
#ifndef AIRLOCK_OS_CAPS_H
#define AIRLOCK_OS_CAPS_H

#include <stdbool.h>

/*
 * execs: the process may start programs. false leaves the bounding set, which counts only at exec, as it
 * is; the caller then forbids exec (seccomp).
 *
 * Empties the bounding, ambient, permitted, effective and inheritable sets and locks the secure
 * bits, so that neither uid 0 nor a file can bring one back. What the caller has no right to do
 * (an ordinary user has no bounding set to drop) is skipped: there is nothing to lose then.
 * Verified afterwards: -EPERM if any capability is left.
 */
int caps_drop_all(bool execs);
/* True if the calling process has this capability (CAP_* of linux/capability.h) in effect. */
bool caps_have(unsigned cap);

#endif
