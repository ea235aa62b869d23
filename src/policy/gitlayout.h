/*
 * gitlayout.h: what makes git take a directory for a repository by its layout, whatever its name. Part of door 1.
 *
 * Rule: HEAD beside objects and refs, or beside commondir, which says where those are. In such a directory git obeys config,
 * config.worktree and hooks, and commondir itself, on a mere status below it (CVE-2022-24765 and its kin): these are
 * orders. Who may bring which of them, and what counts as being there, is for those who ask: a stream
 * (sync/unpack_gitdir.c), commits (sync/quarantine_paths.c).
 *
 * Pure. Names count in every spelling that some file system takes for them.
 */
#ifndef AIRLOCK_POLICY_GITLAYOUT_H
#define AIRLOCK_POLICY_GITLAYOUT_H

#include <stdbool.h>
#include <stddef.h>

enum gitlayout_name {
	GITLAYOUT_CONFIG,
	GITLAYOUT_WORKTREE,
	GITLAYOUT_HOOKS,
	GITLAYOUT_COMMONDIR,
	GITLAYOUT_HEAD,
	GITLAYOUT_OBJECTS,
	GITLAYOUT_REFS,
	GITLAYOUT_COUNT
};

#define GITLAYOUT_BIT(n) (1u << (n))
#define GITLAYOUT_ORDERS                                                       \
	(GITLAYOUT_BIT(GITLAYOUT_CONFIG) | GITLAYOUT_BIT(GITLAYOUT_WORKTREE) | \
	 GITLAYOUT_BIT(GITLAYOUT_HOOKS) | GITLAYOUT_BIT(GITLAYOUT_COMMONDIR))

/* Which of them the segment of n bytes is in some spelling, or -1. */
int gitlayout_which(const char *segment, size_t n);
/* As git itself writes it. */
const char *gitlayout_on_disk(enum gitlayout_name which);
/* Do these bits make a repository? */
bool gitlayout_is(unsigned bits);

#endif
