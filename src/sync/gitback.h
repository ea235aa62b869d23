/*
 * gitback.h: commits that were made in a sandbox come back into the user's repository.
 *
 * Policy: a bundle from a sandbox is a stranger's file. Its header is judged by our own parser
 * (wire/bundle.h), its objects in a quarantine (quarantine.h); then only what its one commit
 * reaches enters the host's store, under refs/airlock/imported/<run>. After that only the branch
 * that was recorded at sync-in may move, by compare-and-swap, and only when the commit builds on the
 * one that was sent and the host's branch does too: forward, or by a merge commit when the host moved on
 * and git merges cleanly. In every other case nothing moves and the imported ref stays: detached
 * HEAD, history rewritten inside or here (F15, F16), no common ancestor, links that lead out, a conflict (F13), a merge or rebase
 * in progress here, the branch checked out in another work tree. Names and messages from inside
 * never become a ref name, an option or a path (F27).
 *
 * No byte of the work tree is written or cleaned: files come back through airlock-unpack, before this
 * and whatever happens here. Order: imported ref, index, branch, imported ref away; index and branch under git's own lock of the
 * index. Killed anywhere in between, the same call with the same bundle finishes: an index that is ahead of its branch shows the
 * sandbox's work as staged, and the second time its entries are there already; a lock that was left is known as ours, and a git that was left sets no
 * ref (gitref.h).
 *
 * Not done: placing other branches, tags and stashes made inside (the engine keeps them as bytes); notes; objects of submodules and LFS.
 */
#ifndef AIRLOCK_SYNC_GITBACK_H
#define AIRLOCK_SYNC_GITBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "sync/quarantine_show.h"
#include "wire/bundle.h"

/* In the run's directory; the second is never read here. */
#define GITBACK_BUNDLE "commits.bundle"
#define GITBACK_OTHERS "others.bundle"
#define GITBACK_LINES \
	"commits.lines" /* what a held bundle brings (quarantine_show.h): printable lines */
#define GITBACK_REFUSED "commits.refused" /* a held bundle that will not be imported */

enum history_outcome {
	HISTORY_NONE,	  /* nothing new, or the branch has it already */
	HISTORY_FORWARD,  /* the branch moved forward */
	HISTORY_MERGED,	  /* the host had moved on; a merge commit */
	HISTORY_IMPORTED, /* kept under the imported ref; the branch had no part in it */
	HISTORY_CONFLICT, /* kept under the imported ref; the branch could not take it */
	HISTORY_FAILED,
	HISTORY_HELD, /* judged; the bundle waits for 'airlock apply' */
	HISTORY_OUTCOME_COUNT
};

/* Commits of other branches, tags and the stash. */
enum history_others { OTHERS_NONE, OTHERS_KEPT, OTHERS_FAILED };

struct history {
	bool asked; /* the workspace is a repository that went in */
	enum history_outcome outcome;
	uint64_t commits; /* new to the branch that moved, else over the one that was sent */
	char head[BUNDLE_OID_MAX + 1]; /* of the sandbox, when a bundle came */
	char ref[96];		       /* imported ref that is there now, or "" */
	enum history_others others;
	char others_why[384]; /* OTHERS_FAILED: printable, or "" */
	char flagged[512];    /* printable: host-executable data that the commits bring, or "" */
	char missing
	    [512]; /* printable: files that the commits have and the workspace has not, or "" */
	char differs
	    [512]; /* printable: files of which the commits have other bytes or modes than the workspace, or "" */
	char *branch;  /* owned; refs/heads/..., may be NULL */
	bool retry;    /* failed here or on the way: the sandbox may still hold commits */
	char why[768]; /* printable; "" when there is nothing to say */
};

struct gitback_opts {
	const char *workspace; /* absolute, real: top of the work tree */
	const char *run_dir;   /* holds GITBACK_BUNDLE */
	const char *run_id;
	const char *head;   /* commit that was sent, "" when unborn */
	const char *branch; /* recorded; NULL when detached */
	/* Files did not come back: the branch must not claim they did. */
	bool import_only;
	/* Only judge: nothing enters the repository, the bundle stays for a later import, GITBACK_LINES tells of it. */
	bool hold;
	int (*has)(void *arg, const char *path,
		   struct quarantine_file *ret); /* as in quarantine_show.h; may be NULL */
	void *has_arg;
	const volatile int *cancel;
};

/* Fills all of ret but `asked` and `others`. The bundle is removed unless the outcome is HISTORY_FAILED or _HELD. */
void gitback_import(const struct gitback_opts *o, struct history *ret);
void history_done(struct history *h);
/* "none", "fast_forwarded", "merged", "imported", "conflict", "failed", "held". */
const char *history_outcome_name(enum history_outcome o);
/* One line for a person. */
void history_text(const struct history *h, struct buf *b);

#endif
