/*
 * unpacks.h: where `airlock unpack` keeps what lost and what went: <state>/unpacks/<id>/.
 *
 *   conflicts/{host,sandbox}/<path>   losers of conflicts
 *   trash/<path>                      what was deleted or replaced
 *   rejected.tar                      start of a rejected stream
 *   changes.jsonl, record.json        the report
 *
 * A place that holds none of the first three, and is not awaited, is removed at the end. The others go
 * UNPACKS_KEEP_S after something was last put there; nobody else reads them.
 */
#ifndef AIRLOCK_ENGINE_UNPACKS_H
#define AIRLOCK_ENGINE_UNPACKS_H

#include <stdbool.h>

#include "base/id.h"
#include "engine/state.h"

struct unpacks_place {
	char id[ID_LEN + 1];
	char *dir; /* owned, absolute; NULL: none */
	/* It stays though it is empty: a recovery moves something into it, or somebody must read the report there. */
	bool awaited;
};

/* Makes a place, and removes the places whose time is over. */
int unpacks_open(struct state *st, struct unpacks_place *ret, struct err *e);
/* Writes record.json, or removes the place where nothing is kept. */
int unpacks_close(struct state *st, struct unpacks_place *p, const char *record, struct err *e);
void unpacks_done(struct unpacks_place *p);
/*
 * Seconds: when something was last put into the directory of a run or of an unpack. A recovery, or an apply, may put
 * the only copy of something there long after it was made; 0: it cannot be told.
 */
int64_t unpacks_last_put(int dir);

#endif
