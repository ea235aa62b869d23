/*
 * native.h: shared by the files of the native provider; no one else's business.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_H
#define AIRLOCK_PROVIDER_NATIVE_H

#include <stdint.h>

#include "provider/plan.h"
#include "provider/provider.h"

/*
 * Started by root, a sandbox runs as this id of the host, which is nobody's: above every range that
 * distributions, systemd (61184-65519, 524288-1879048191) and container engines hand out.
 */
#define SANDBOX_UID 1879050001u
#define SANDBOX_UID_INSIDE 1000u

/* From what the engine wants to a plan that plan_check has passed. Release with plan_done. */
int native_plan(const struct sandbox_spec *s, struct plan *ret, struct err *e);
/* WITHOUT_OVERLAY: fills lease_dir/upper with what the layers show together. */
int native_copy_layers(const struct plan *p, struct err *e);
/* What is in force, from the plan and what airlock-launch reported in GM_READY. */
void native_isolation(struct sandbox *sb, const struct plan *p, uint32_t landlock, uint32_t limits);

#endif
