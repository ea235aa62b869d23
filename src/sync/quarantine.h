/*
 * quarantine.h: a bare repository of our own in which a sandbox's commits are judged.
 *
 * Policy: what a sandbox packed is first read by git here, never in the user's repository: own
 * config (nothing of the host's config, attributes, hooks), an empty work tree, the host's objects
 * as alternates, which are only read. The pack is indexed strictly (every object parsed and checked: no
 * `.git`, `..` or duplicate entry in a tree (F9), no broken link), its prerequisites must be commits that the
 * host has, and from the one commit every object must be reachable. No commit of it may bring the name of Airlock's
 * own staging place: a checkout would put a sandbox's files there. Nor does one make a directory that git takes for a repository,
 * with orders to git in it (quarantine_names.c). Size, memory and time limited.
 * Only what that commit (or a merge made here of it) reaches is then given to the host's store;
 * whatever else the pack held goes away with the quarantine.
 *
 * Not done here: refs and the index of the host (gitback.c, gitindex.c).
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_H
#define AIRLOCK_SYNC_QUARANTINE_H

#include <stdint.h>

#include "base/err.h"
#include "sync/git.h"
#include "wire/bundle.h"

struct quarantine;

/* Below run_dir, which the caller owns. host must outlive it. */
int quarantine_new(const struct git_repo *host, const char *run_dir, struct quarantine **ret,
		   struct err *e);
/* Removes the directory too. NULL is fine. */
void quarantine_free(struct quarantine *q);

struct quarantine_seen {
	uint64_t commits;  /* new over base */
	char flagged[512]; /* printable: names of what a program on the host runs or obeys, or "" */
	char outside
	    [1024]; /* printable: a link that leads out, or may, or ""; no branch is to have it unasked */
};

/*
 * Takes the pack of the bundle in fd. base: the commit that was sent in, "" for none. -EBADMSG with e when it does not
 * hold what it must, or holds what it must not.
 */
int quarantine_take(struct quarantine *q, int fd, const struct bundle *b, const char *base,
		    struct quarantine_seen *ret, struct err *e);
/* Commits that head reaches and base ("" for none) does not. */
int quarantine_count(const struct quarantine *q, const char *head, const char *base,
		     uint64_t *ret_commits, struct err *e);
/* Is commit a an ancestor of b, or b itself? 1, 0, negative errno. "" is the ancestor of all. */
int quarantine_is_ancestor(const struct quarantine *q, const char *a, const char *b, struct err *e);
/*
 * A merge commit of both with a neutral identity, `ours` first. 1: made. 0: conflict, or a git
 * that cannot (why says which; static).
 */
int quarantine_merge(const struct quarantine *q, const char *ours, const char *theirs,
		     const char *message, char ret[BUNDLE_OID_MAX + 1], const char **why,
		     struct err *e);
/* What tip reaches and have (NULL-ended, "" skipped) does not, into the host's objects. */
int quarantine_give(const struct quarantine *q, const char *tip, const char *const *have,
		    struct err *e);

/* Identity of what Airlock itself writes: merge commits, reflog lines. */
extern const char *const quarantine_identity[];

#endif
