/*
 * fill.h: what of a plan is the machine's own, on which its sandbox is to run.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_FILL_H
#define AIRLOCK_PROVIDER_NATIVE_FILL_H

#include "provider/plan.h"

/*
 * Started by root, a sandbox runs as this id of the host, which is nobody's: above every range that
 * distributions, systemd (61184-65519, 524288-1879048191) and container engines hand out.
 */
#define SANDBOX_UID 1879050001u
#define SANDBOX_UID_INSIDE 1000u

/* Adds to p->forbidden: workspace (may be NULL), keys and sessions below home, and those of the system, each also where its links lead. */
int plan_forbid(struct plan *p, const char *workspace, const char *home, struct err *e);
/* Ids inside and outside for who runs this. ERR_UNAVAILABLE: root of a user namespace that has too few. */
int plan_ids(struct plan *p, struct err *e);

#endif
