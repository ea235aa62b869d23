/*
 * base.h: what this side knows of the tree that a machine keeps for the next run (guest/front_place.h, bases).
 *
 * Its name there is by chance, made once, beside the workspace's manifests here, so that no path of this machine can be guessed from it.
 * What its index is known by (struct rm_index) goes into the lease's directory when a workspace has landed, and beside the
 * name once its tree is a base: of each machine and directory its own. Both are hints about foreign bytes: without them, or when
 * another run was faster, the guest there reads files instead of trusting an index. sandbox: what
 * runs in one there (box.h) has trees of its own: they may be another user's.
 */
#ifndef AIRLOCK_PROVIDER_SSH_BASE_H
#define AIRLOCK_PROVIDER_SSH_BASE_H

#include "provider/provider.h"
#include "wire/remote.h"

/* Heap; "" where the spec has none, or it cannot be had: nothing is kept. */
char *ssh_base_name(const struct sandbox_spec *s, bool sandbox);
/* All zeros: not known. */
void ssh_base_index(const struct sandbox_spec *s, bool sandbox, struct rm_index *ret);
void ssh_base_landed(const struct sandbox_spec *s, const struct rm_index *x);
/* The tree of this lease is the base from now on. */
void ssh_base_kept(const struct sandbox_spec *s, bool sandbox);

#endif
