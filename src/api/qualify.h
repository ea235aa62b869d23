/*
 * qualify.h: records of what saved probes measured (api.md 6.4): written by the server alone, shown to nobody.
 *
 * A probe takes a qualify_ticket before its lease: what the environment is then. When the probe is over, the record is
 * written only while all of that is still so, in one transaction with the look at it; so an edit during a probe is
 * never qualified by what was measured before it (PR-09).
 */
#ifndef AIRLOCK_API_QUALIFY_H
#define AIRLOCK_API_QUALIFY_H

#include "api/api.h"
#include "store/environment.h"

struct qualify_ticket {
	char env_id[UUID_LEN + 1], company[UUID_LEN + 1];
	char *config; /* owned: as stored */
	char config_print[65], secret_print[65];
	char target[80]; /* "sha256:..."; "": mutable, nothing will be recorded */
};

/* 1: answered (403: it is bound to other companies; or our failure). */
int qualify_begin(struct call *c, const struct environment_row *row, const char *company,
		  struct qualify_ticket *t);
void qualify_done(struct qualify_ticket *t);
/* measured: what the probe's job says of platform, lease and cleanup; NULL: nothing. 1 recorded, 0 not. */
int qualify_record(struct api *a, const struct qualify_ticket *t, const json_t *measured,
		   struct err *e);

#endif
