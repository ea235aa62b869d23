/*
 * unpack_plan.h: the inside of the plan: what its files share. Part of door 1.
 *
 * unpack_plan.c goes through the list and decides each path; unpack_plan_tree.c first takes what comes as a new tree;
 * unpack_plan_act.c turns a decision into intents; unpack_plan_make.c makes contents that are needed for that.
 * Functions return 0 or a negative errno with e, unless they say more.
 */
#ifndef AIRLOCK_SYNC_UNPACK_PLAN_H
#define AIRLOCK_SYNC_UNPACK_PLAN_H

#include "sync/unpack_server.h"

#define PLAN_DETAIL_MAX (PATH_MEMBER_MAX + 64)

struct plan {
	struct unpack *u;
	struct journal *j;
	bool preview; /* report only */
	struct change c, other;
	struct manifest_entry b, below;
	bool have_b;
	bool failed, disputed; /* the path in work: not written; a conflict that the host won */
	uint32_t host_mode;    /* what the host will have */
	struct host h;
	struct merge_side side_b, side_s;
	struct gitdir_seen seen;
	char detail[PLAN_DETAIL_MAX];
	uint8_t dir_digest[INTENT_HASH]; /* of the host's directory in work */
	uint64_t
	    ids; /* numbers for the entries of trees that go one by one: this and the entry's index */
	char tree[PATH_MEMBER_MAX + 1]; /* top of the new tree whose inside was in work last */
	bool whole;			/* it goes as a whole */
	bool emptied;			/* directories of trees are to be dropped */
	char copied[PATH_MEMBER_MAX +
		    1]; /* in a preview: of which base a copy was made last, for hard links to it */
	uint64_t copied_id;
	char **cleared; /* owned: files and links that this publish turns into directories */
};

/* A line of the report about p->c. */
int plan_note(struct plan *p, enum unpack_action a, const char *rule, const char *detail,
	      struct err *e);
/* Adds an intent about path; in a preview the report line that it would lead to. */
int plan_intend(struct plan *p, struct intent *in, const char *path, size_t n, struct err *e);
/* Nothing of the stream is published; the rule and its text go into the record. Negative errno. */
int plan_reject(struct plan *p, const char *rule, const char *text, struct err *e);

/* unpack_plan_act.c. A new entry is as open as the user lets new entries be. */
uint32_t plan_new_mode(const struct plan *p, uint32_t mode);
/* True if the host's obstacle on the way to path is one that this publish takes away first. */
bool plan_way_is_cleared(const struct plan *p, const char *path);
int plan_keep_host(struct plan *p, const char *rule, struct err *e);
int plan_act(struct plan *p, struct merge_verdict v, struct err *e);

/* unpack_plan_make.c. The bytes of `from` become a staged content. */
int plan_copy(struct plan *p, int from, uint64_t *ret_id, struct err *e);
/* p->c, a hard link of the stream, becomes a file of its own: the bytes of the member that it names. 1: it names none. */
int plan_hardlink(struct plan *p, struct err *e);
/* 1: merged, *ret_id; 0: not mergeable; errno. */
int plan_merge(struct plan *p, uint64_t *ret_id, struct err *e);

/* unpack_plan_tree.c. Before anything else of p->c, an entry of a tree. skipped: the entry does not come in. */
int plan_meet_tree(struct plan *p, bool skipped, struct err *e);
/* p->c, entry i, does not come in: it leaves its tree, if it is in one that goes as a whole. */
int plan_leave_tree(struct plan *p, uint64_t i, struct err *e);
/* Entry i was accepted. 1: it comes with its tree; 0: it is an entry like others from now on; errno. */
int plan_with_tree(struct plan *p, uint64_t i, struct err *e);
/* Once all is decided: directories that left their trees. */
int plan_drop_emptied(struct plan *p, struct err *e);

#endif
