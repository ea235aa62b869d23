#include "provider/native/step.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

int fail(struct failure *f, enum step step, int sys, const char *object)
{
	*f = (struct failure){.step = step, .sys = sys > 0 ? sys : EIO};
	(void)snprintf(f->object, sizeof(f->object), "%s", object);
	return -1;
}

int failure_put(struct buf *b, const struct failure *f)
{
	(void)buf_u32(b, f->step);
	(void)buf_u32(b, (uint32_t)f->sys);
	(void)buf_str(b, f->object);
	return b->err;
}

int failure_get(struct view v, struct failure *ret)
{
	_cleanup_free_ char *object = NULL;
	struct cursor c;
	uint32_t sys;

	*ret = (struct failure){0};
	cursor_init(&c, v.p, v.n);
	ret->step = cursor_u32(&c);
	sys = cursor_u32(&c);
	object = cursor_strdup(&c, sizeof(ret->object) - 1);
	if (!object || !cursor_end(&c) || ret->step == STEP_NONE || ret->step >= STEP_COUNT ||
	    sys == 0 || sys > INT32_MAX)
		return -EPROTO;
	ret->sys = (int32_t)sys;
	(void)snprintf(ret->object, sizeof(ret->object), "%s", object);
	return 0;
}

static const char *const names[STEP_COUNT] = {
    [STEP_NONE] = "none",
    [STEP_STORAGE] = "sandbox storage",
    [STEP_SYSTEM] = "system image",
    [STEP_BIND] = "bind",
    [STEP_NAMESPACES] = "user namespace",
    [STEP_IDMAP] = "id map",
    [STEP_IDS] = "change of ids",
    [STEP_ROOT] = "private root",
    [STEP_ETC] = "private /etc",
    [STEP_DEV] = "private /dev",
    [STEP_PROC] = "private /proc",
    [STEP_OVERLAY] = "overlay workspace",
    [STEP_PIVOT] = "change of root",
    [STEP_LOOPBACK] = "loopback network",
    [STEP_HOSTNAME] = "host name",
    [STEP_RLIMITS] = "resource limits",
    [STEP_CAPS] = "dropping capabilities",
    [STEP_LANDLOCK] = "Landlock",
    [STEP_SECCOMP] = "seccomp filter",
    [STEP_EXEC] = "guest program",
};

const char *step_name(enum step step)
{
	return step < STEP_COUNT ? names[step] : "unknown step";
}
