/*
 * reseal.h: the values of a database, sealed anew with the first key.
 *
 * Rotation where the keys are files of the state directory is `airlock token rotate-seal`. Where they are systemd's credentials nobody
 * but the operator writes them, so the daemon does it at its start: with a new key as the first line of airlock-seal-key, and the
 * old one in a line below it or as airlock-seal-key-old, every value that another key sealed gets the new one, in one transaction. What no
 * key opens stays as it is.
 */
#ifndef AIRLOCK_API_RESEAL_H
#define AIRLOCK_API_RESEAL_H

#include "api/seal.h"

/*
 * `airlock token rotate-seal`, with keys that may be rotated here: a new key, every version sealed with it, the old ones dropped: how many.
 * Where one version cannot be opened it is refused by the id of its secret, and nothing is changed.
 */
int reseal_rotate(struct seal *s, struct db *db, const char *dir, int64_t *ret_n, struct err *e);
/*
 * At the daemon's start; what was done, or cannot be, is told in its log, and is no reason not to start. An error is that the keys cannot
 * be read or held any more: without that lock anybody could take them away under the daemon.
 */
int reseal_start(struct seal *s, struct db *db, const char *dir, struct err *e);
/*
 * `airlock token rotate-seal`: refused, with what to do instead, where the keys are a credential (here, or, as the database says, of the
 * service). Nothing is made by asking.
 */
int reseal_may_rotate(struct db *db, const char *dir, struct err *e);

#endif
