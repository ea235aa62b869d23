/*
 * maps.h: files and directories besides the workspace that go into a sandbox and come back (--map).
 *
 * SRC is on the host and is the root of the mapping: nothing of it is written anywhere else. DST is inside, below
 * the sandbox's home or /tmp; on another machine without a sandbox below /tmp, where it is made, and removed at the end. Both are the orchestrator's; nothing inside can change them. In: a manifest of exactly
 * the bytes that are sent, at <lease>/map-<n>; the sandbox's tar unpacks them. Out: its tar again (tarout.h), through
 * airlock-unpack with SRC as root, a journal of its own, and a report in runs/<id>/maps/<n>/. A single file (S1-08)
 * has its directory as root and comes back as that one name or not at all: any other member is hostile. It is staged
 * privately with its final mode and renamed, so it is old or new, and its mode is no wider than the host's was.
 *
 * In a kept sandbox each command brings back what is new, against a baseline that moves on as the workspace's does
 * (<lease>/map-<n>.baseline). With --review nothing is written: the changes wait in runs/<id>/maps/<n>/pending, as
 * a part of the run's set (changeset.h); the manifest they are measured against lies beside them.
 *
 * A vector of three words each: "dir" or "file", SRC, DST.
 */
#ifndef AIRLOCK_ENGINE_MAPS_H
#define AIRLOCK_ENGINE_MAPS_H

#include <limits.h>

#include "engine/request.h"
#include "engine/transfer.h"

#define MAP_MANIFEST "manifest" /* in runs/<id>/maps/<n>: what was sent */

struct map {
	bool file;
	const char *src, *dst; /* borrowed */
	char root[PATH_MAX];   /* SRC, or the directory of it */
	uint64_t dev, ino;     /* of root when it was sent; ino 0: not known */
};

size_t maps_count(char *const *maps);
/* i < maps_count(s->maps). */
struct map maps_at(const struct lease_spec *s, size_t i);
/* runs/<id>/maps/<i>. Heap or NULL. */
char *maps_run_dir(const char *run_dir, size_t i);
/* One result per mapping, nothing done yet. 0 or -ENOMEM. */
int maps_results(const struct lease_spec *s, const char *run_dir, struct transfer *t,
		 struct err *e);

/* SRC:DST[:file|dir], appended to *maps. ERR_USAGE with the reason. */
int maps_add(char ***maps, const char *word, struct err *e);
/* Places that lie in one another, in the workspace, in Airlock's state (may be NULL), in a bind. */
int maps_check(const struct request *q, const char *state_dir, struct err *e);
/* Fills s->map_roots once all of them are there whole; the lease is saved with it before a command runs. */
int maps_in(struct sandbox *sb, struct lease_spec *s, const char *lease_dir, struct err *e);
/*
 * Another machine's places that are not gone with a sandbox: removed once all has come back, or nothing ran. They were made by maps_in, which refuses
 * one that is there.
 */
void maps_gone(struct sandbox *sb, struct lease_spec *s);
/* The directories that its places lie in, one for each, appended to *ret. 0 or -ENOMEM. */
int maps_parents(const struct lease_spec *s, char ***ret);
/*
 * After the workspace, in order, into t->maps; a mapping that fails does not keep the others from coming back.
 * One that is not in map_roots had not gone in whole and is not taken back.
 * *ret_kept: something could not be read inside, so the storage must stay. 0, or the first failure.
 */
int maps_out(const struct transfer_job *j, struct transfer *t, bool *ret_kept, struct err *e);

#endif
