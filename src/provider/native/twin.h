/*
 * twin.h: airlock-launch on another machine, where it was sent to.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_TWIN_H
#define AIRLOCK_PROVIDER_NATIVE_TWIN_H

#include "base/cursor.h"
#include "base/err.h"
#include "provider/plan.h"

/*
 * From the first frame (wire/remote_box.h) to a plan that plan_check has passed, with its storage made: there is nobody else on this machine
 * to do that. Release with plan_done, also after failure.
 */
int twin_plan(struct view v, struct plan *ret, struct err *e);

#endif
