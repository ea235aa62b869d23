/*
 * step.h: which step of the start of a sandbox failed.
 *
 * airlock-launch and its child tell the step, the errno and the object. airlock tries the layers below
 * the step and says which is missing and what helps (steps.c): the programs that build and
 * watch sandboxes carry no probes and stay small.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_STEP_H
#define AIRLOCK_PROVIDER_NATIVE_STEP_H

#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"
#include "provider/plan.h"

enum step {
	STEP_NONE = 0,
	STEP_STORAGE,	 /* opening sandbox storage and layers */
	STEP_SYSTEM,	 /* copying the host's system directories */
	STEP_BIND,	 /* a bind of the user's */
	STEP_NAMESPACES, /* clone3 */
	STEP_IDMAP,	 /* uid_map, gid_map, setgroups */
	STEP_IDS,	 /* setresuid */
	STEP_ROOT,	 /* the tmpfs that becomes / */
	STEP_ETC,
	STEP_DEV,
	STEP_PROC,
	STEP_OVERLAY,
	STEP_PIVOT,
	STEP_LOOPBACK,
	STEP_HOSTNAME,
	STEP_RLIMITS,
	STEP_CAPS,
	STEP_LANDLOCK,
	STEP_SECCOMP,
	STEP_EXEC,
	STEP_COUNT
};

/* Travels from the child to launch in one message of this machine's layout, and to airlock as GM_STEP. */
struct failure {
	uint32_t step;
	int32_t sys; /* positive errno */
	char object[240];
};

/* Fills f and returns -1, so that callers can `return fail(...)`. sys is a positive errno. */
int fail(struct failure *f, enum step step, int sys, const char *object);
/* "overlay workspace", ... */
const char *step_name(enum step step);
/* What happened and the exact remedy on this host. Returns the negative errno of e. */
int step_explain(const struct failure *f, const struct plan *p, struct err *e);
/* As payload of GM_STEP. 0, or -EPROTO for what no launcher of this version sends. */
int failure_put(struct buf *b, const struct failure *f);
int failure_get(struct view v, struct failure *ret);

#endif
