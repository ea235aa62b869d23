/*
 * unpack_place.h: where the publish that was cut in a staging directory kept what it deleted and what lost.
 *
 * The journal names the run's directory. It lies in the workspace, so its word is good only with the key of
 * this workspace, and for a directory below the caller's own state directory, reached without a link.
 */
#ifndef AIRLOCK_SYNC_UNPACK_PLACE_H
#define AIRLOCK_SYNC_UNPACK_PLACE_H

#include <stddef.h>

#include "base/id.h"
#include "sync/journal.h"

/* Names of the staging directories below the root. Owned by the caller (strv_free). 0 or negative errno. */
int unpack_places(int root_fd, char ***ret_names);
/*
 * The run directory of that committed publish: descriptor, -ENOENT: none that may be used, or somebody is about to
 * remove it, errno. Until *ret_lock (owned by the caller; -1: none) is closed its run is locked against that; own_run,
 * which may be NULL, is a directory of the caller's own run: that one is locked by the caller, or needs no lock.
 */
int unpack_place_open(int root_fd, const char *name, const char *state_dir,
		      const uint8_t key[JOURNAL_KEY], const char *own_run, int *ret_lock);

#endif
