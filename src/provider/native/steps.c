/* Words for each step that can fail, and the remedy that fits this host. */
#include "provider/native/step.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "os/probe.h"
#include "os/self.h"

/* The layers that a step stands on, in the order in which a missing one explains the others. */
static const enum layer under_namespaces[] = {LAYER_USERNS, LAYER_IDMAP,    LAYER_MNTNS,
					      LAYER_PIDNS,  LAYER_IPCNS,    LAYER_UTSNS,
					      LAYER_NETNS,  LAYER_CGROUPNS, LAYER_TMPFS,
					      LAYER_ROBIND, LAYER_PIVOT,    LAYER_COUNT};
static const enum layer under_proc[] = {LAYER_PROC, LAYER_COUNT};
static const enum layer under_dev[] = {LAYER_DEVPTS, LAYER_COUNT};
static const enum layer under_overlay[] = {LAYER_OVERLAY, LAYER_WHITEOUT, LAYER_COUNT};
static const enum layer under_seccomp[] = {LAYER_SECCOMP, LAYER_COUNT};
static const enum layer under_landlock[] = {LAYER_LANDLOCK, LAYER_COUNT};

static const enum layer *layers_of(uint32_t step)
{
	switch (step) {
	case STEP_NAMESPACES:
	case STEP_IDMAP:
	case STEP_IDS:
	case STEP_ROOT:
	case STEP_PIVOT:
	case STEP_LOOPBACK:
	case STEP_HOSTNAME:
		return under_namespaces;
	case STEP_PROC:
		return under_proc;
	case STEP_DEV:
		return under_dev;
	case STEP_OVERLAY:
		return under_overlay;
	case STEP_SECCOMP:
		return under_seccomp;
	case STEP_LANDLOCK:
		return under_landlock;
	default:
		return NULL;
	}
}

/*
 * One errno has many causes (FR-B010), and clone3 gives one for seven namespaces: the layers below the failed
 * step are tried one by one, as `airlock doctor` does, until one fails for a reason that can be named.
 */
static bool find_cause(const struct failure *f, const struct plan *p, struct buf *why,
		       struct buf *remedy)
{
	const enum layer *l = layers_of(f->step);
	_cleanup_free_ char *launch = NULL;
	struct probe_env env = {
	    .state_dir = p->lease_dir, .id_inside = p->uid_inside, .id_host = p->uid_host};
	struct probe_result r;

	(void)self_helper("airlock-launch", &launch, NULL);
	env.own_programs = launch;
	for (; l && *l != LAYER_COUNT; l++) {
		/* Whoever starts sandboxes holds the credentials of their bridges. */
		if (probe_apart(&env, *l, &r) < 0)
			return false;
		if (r.state != PROBE_MISSING)
			continue;
		(void)buf_putf(why, "%s: ", layer_info(*l)->name);
		(void)cause_expand(why, cause_info(r.cause)->why, r.object);
		(void)cause_expand(remedy, cause_info(r.cause)->remedy, r.object);
		return !why->err && !remedy->err;
	}
	return false;
}

/* For steps that stand on no layer, or when each layer by itself works. */
static const char *remedy_of(const struct failure *f)
{
	switch (f->step) {
	case STEP_BIND:
		return f->sys == ELOOP	   ? "the path changed after it was resolved: try again"
		       : f->sys == ENOTSUP ? "only directories and regular files can be bound"
					   : "name an existing directory or file that you may read";
	case STEP_STORAGE:
		return f->sys == ELOOP
			   ? "a link stands where sandbox storage is expected: remove the "
			     "lease with `airlock rm`"
			   : "check that the state directory is yours and has space";
	case STEP_EXEC:
		return "the guest program could not be started: install Airlock again";
	default:
		return "`airlock doctor` tries each layer and says more";
	}
}

int step_explain(const struct failure *f, const struct plan *p, struct err *e)
{
	enum err_code code =
	    f->sys == ENOSPC && f->step != STEP_NAMESPACES ? ERR_NO_SPACE : ERR_UNAVAILABLE;
	_cleanup_buf_ struct buf why = BUF_INIT(1024), remedy = BUF_INIT(1024);
	int r;

	if (code == ERR_UNAVAILABLE && find_cause(f, p, &why, &remedy))
		r = err_set(
		    e, code,
		    "sandbox not started: %s. Remedy: %s. `airlock doctor` shows every layer",
		    buf_text(&why), buf_text(&remedy));
	else
		r = err_set(
		    e, code,
		    "sandbox not started: %s (%s): %s. Remedy: %s. `airlock doctor` shows every layer",
		    step_name(f->step), f->object, strerror(f->sys), remedy_of(f));
	if (e)
		e->sys = f->sys;
	return r;
}
