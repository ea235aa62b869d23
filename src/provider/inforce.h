/*
 * inforce.h: what is in force in a sandbox, in words, from its plan and what airlock-launch said of it.
 */
#ifndef AIRLOCK_PROVIDER_INFORCE_H
#define AIRLOCK_PROVIDER_INFORCE_H

#include "provider/plan.h"
#include "provider/provider.h"

/* sb->isolation. landlock: ABI in force, 0: none; limits: GR_* (wire/guest.h). Of p counts what asks for a layer, and uid_host. */
void inforce_fill(struct sandbox *sb, const struct plan *p, uint32_t landlock, uint32_t limits);

#endif
