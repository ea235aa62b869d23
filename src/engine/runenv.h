/*
 * runenv.h: the environment of a command: a clean, documented set; nothing else of the caller's.
 *
 * Sandbox: PATH (bin directories of read-only binds first after ~/.local/bin), HOME, USER, LOGNAME,
 * SHELL, TMPDIR, XDG_*; LANG, LC_*, TZ, TERM and COLORTERM as the caller has them; then the request's
 * variables; last, and never overridden, AIRLOCK_RUN_ID, AIRLOCK_ENV and PAPERCLIP_RUN_ID (CP-02).
 * Local: PATH, HOME, USER, LOGNAME, SHELL, TMPDIR and XDG_* are the caller's own.
 */
#ifndef AIRLOCK_ENGINE_RUNENV_H
#define AIRLOCK_ENGINE_RUNENV_H

#include "engine/request.h"
#include "wire/guest.h"

#define INSIDE_WORKSPACE GUEST_WORKSPACE
#define INSIDE_HOME "/home/agent"
#define PATH_SYSTEM "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Vector for exec, owned by the caller. run_id may be "". */
int runenv_build(const struct request *q, const char *run_id, char ***ret, struct err *e);
/* Value of PATH in such a vector ("" if none). */
const char *runenv_path(char *const *env);

#endif
