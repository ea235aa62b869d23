/*
 * quarantine_list.h: what git in the quarantine lists of a run's commits: changed paths, older commits, trees.
 *
 * Lists are files of the quarantine's directory; memory does not grow with them. Only for the files of quarantine.h.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_LIST_H
#define AIRLOCK_SYNC_QUARANTINE_LIST_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "wire/bundle.h"

#define QUARANTINE_EDGES_MAX 64 /* older commits of the host that new ones build on */

struct quarantine;

struct quarantine_list {
	const struct quarantine *q;
	const char *head, *base; /* base "": none */
	FILE *raw;		 /* owned: what diff-tree said */
	char edges[QUARANTINE_EDGES_MAX][BUNDLE_OID_MAX + 1];
	size_t edges_n; /* QUARANTINE_EDGES_MAX + 1: more */
};

/* One path that a commit adds or changes. */
struct quarantine_entry {
	char mode[7], oid[BUNDLE_OID_MAX + 1];
	char *path; /* owned; the buffer of getdelim */
	size_t cap;
};

/* Fills raw; -EBADMSG: more than COMMIT_PATHS_MAX, or than git can list in COMMIT_LIST_MEMORY. */
int quarantine_list_raw(struct quarantine_list *l, struct err *e);
/* Of raw, from where it stands. 1: another entry, 0: the end. */
int quarantine_list_next(struct quarantine_list *l, struct quarantine_entry *en, struct err *e);
/* Fills edges: commits of the host that are parents of new ones, but for the one that was sent. */
int quarantine_list_edges(struct quarantine_list *l, struct err *e);
/* Each NUL-ended name of what git prints, or each path of a tree; what fn returns but 0 ends it. */
int quarantine_list_paths(const struct quarantine *q, const char *const *words,
			  int (*fn)(void *arg, const char *p, size_t n), void *arg, struct err *e);
int quarantine_list_tree(const struct quarantine_list *l, const char *tree,
			 int (*fn)(void *arg, const char *p, size_t n), void *arg, struct err *e);
/* A file of this name, empty; NULL with e. */
FILE *quarantine_list_scratch(const struct quarantine_list *l, const char *name, struct err *e);
/* git with its stdin from one file and its stdout into another; both at their beginning afterwards. */
int quarantine_list_through(const struct quarantine_list *l, const char *const *words, FILE *in,
			    FILE *out, struct err *e);
void quarantine_list_done(struct quarantine_list *l);

/* -EPROTO: git answered something else than what it was asked. -EBADMSG: what is too much to judge. */
int quarantine_list_bad(struct err *e, const char *what);
int quarantine_list_too_much(struct err *e, const char *what);

#endif
