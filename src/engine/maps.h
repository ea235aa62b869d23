/*
 * maps.h: files and directories besides the workspace that go into a sandbox and come back (--map).
 *
 * SRC is on the host and is the root of the mapping: nothing of it is written anywhere else. DST is inside, below
 * the sandbox's home or /tmp. Both are the orchestrator's; nothing inside can change them. In: a manifest of exactly
 * the bytes that are sent, at <lease>/map-<n>; the sandbox's tar unpacks them. Out: its tar again (tarout.h), through
 * airlock-unpack with SRC as root, a journal of its own, and a report in runs/<id>/maps/<n>/. A single file (S1-08)
 * has its directory as root and comes back as that one name or not at all: any other member is hostile. It is staged
 * privately with its final mode and renamed, so it is old or new, and never more readable than either.
 *
 * A vector of three words each: "dir" or "file", SRC, DST.
 */
#ifndef AIRLOCK_ENGINE_MAPS_H
#define AIRLOCK_ENGINE_MAPS_H

#include "engine/request.h"
#include "engine/transfer.h"

/* SRC:DST[:file|dir], appended to *maps. ERR_USAGE with the reason. */
int maps_add(char ***maps, const char *word, struct err *e);
/* Places that lie in one another, in the workspace, in Airlock's state (may be NULL), in a bind. */
int maps_check(const struct request *q, const char *state_dir, struct err *e);
int maps_in(struct sandbox *sb, const struct lease_spec *s, const char *lease_dir, struct err *e);
/*
 * After the workspace, in order; a mapping that fails does not keep the others from coming back. *ret_kept: something
 * could not be read inside, so the storage must stay. 0, or the first failure.
 */
int maps_out(const struct transfer_job *j, bool *ret_kept, struct err *e);

#endif
