/*
 * unpack_repair.h: publishes that were cut are finished or undone, by helpers that do nothing else.
 */
#ifndef AIRLOCK_SYNC_UNPACK_REPAIR_H
#define AIRLOCK_SYNC_UNPACK_REPAIR_H

#include "sync/unpack.h"

/*
 * One helper: the staging directory `name`, or all (NULL); run_fd (borrowed) -1: no place to keep things. 1: something
 * was repaired, and ret says what; 0; negative errno.
 */
int repair_one(const struct unpack_opts *o, const char *name, int run_fd, struct unpack_report *ret,
	       struct err *e);
/*
 * All of o->root: those whose run is known each into its directory, the others into run_dir (NULL: none). What
 * somebody must see to goes to left. 1, 0 or negative errno, as repair_one.
 */
int repair_all(const struct unpack_opts *o, const char *run_dir, struct unpack_report *left,
	       struct err *e);
/* What repairs left to see to, in words; once for all of a kind. Nothing: ret stays as it is. */
void repair_say_left(const char *root, const struct unpack_report *left, struct err *ret);

#endif
