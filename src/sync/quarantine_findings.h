/*
 * quarantine_findings.h: paths of a run's commits that may not come as they are, until it is known whether the commit that was sent has
 * just the same: then they are the user's own. Part of door 1; only for quarantine_names.c.
 *
 * Bounded: of more than FINDINGS_MAX the rest is not looked up, and `more` says so.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_FINDINGS_H
#define AIRLOCK_SYNC_QUARANTINE_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "sync/quarantine_list.h"

#define FINDINGS_MAX 32 /* looked up in the commit that was sent; more are refused unseen */

struct finding {
	const char *rule;
	char *path;   /* owned */
	char *target; /* of a link, owned, printable; or NULL */
	size_t dir_n; /* of git_layout: bytes of the path that name the directory */
	char mode[7], oid[BUNDLE_OID_MAX + 1];
	bool same; /* in the commit that was sent */
};

struct findings {
	struct finding v[FINDINGS_MAX];
	size_t n;
	const char *more; /* why there may be others; NULL: these are all */
};

/* rule NULL: nothing to add. 0, 1 when no more can be held, -ENOMEM. */
int quarantine_findings_add(struct findings *to, const struct quarantine_entry *en,
			    const char *rule);
/* The first that the commit which was sent has not; NULL: none. */
int quarantine_findings_first(const struct quarantine_list *l, struct findings *all,
			      const struct finding **ret, struct err *e);
void quarantine_findings_done(struct findings *all);

#endif
