/*
 * Phase 2c of door 1: what a publish took away goes to the trash of its run.
 *
 * Policy: all is published by now, and what cannot go changes nothing of that: it is reported, and stays in the
 * staging place until a recovery can move it. What was copied, since the run lies on another file system, is
 * removed here only once the copies are known to be on disk; elsewhere nothing is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sync/unpack_entry.h"
#include "sync/unpack_steps.h"

/* Which records of the journal were copied: a bit each. */
struct copies {
	uint8_t *bits;
	size_t len;
};

static int copies_add(struct copies *c, uint64_t n)
{
	if (n / 8 >= c->len) {
		size_t len = (size_t)n / 4 + 64;
		uint8_t *more = realloc(c->bits, len);

		if (!more)
			return -ENOMEM;
		memset(more + c->len, 0, len - c->len);
		c->bits = more;
		c->len = len;
	}
	c->bits[n / 8] |= (uint8_t)(1u << (n % 8));
	return 0;
}

static bool copies_has(const struct copies *c, uint64_t n)
{
	return n / 8 < c->len && c->bits[n / 8] >> (n % 8) & 1;
}

/* The entry of c/ that a put was swapped for, or that it got aside, if it is here. 1, 0 or negative errno. */
static int find_replaced(struct unpack *u, const struct intent *in, char out[STAGE_ASIDE])
{
	struct stat st;
	char name[20];

	if (in->op != IN_PUT || !in->old.ino || !u->s.keep_trash)
		return 0;
	stage_aside(in->id, out);
	if (faccessat(u->st.content, out, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	if (errno != ENOENT)
		return -errno;
	stage_name(in->id, name);
	(void)snprintf(out, STAGE_ASIDE, "%s", name);
	if (fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return st.st_ino == in->old.ino;
}

/* The entry of c/ that lost to the host and waits for a place; *ret_side: whose it is. 1, 0 or negative errno. */
static int find_loser(struct unpack *u, const struct intent *in, char out[TREE_NAME],
		      const char **ret_side)
{
	struct stat st;
	int r = 0;

	if (in->op == IN_TREE)
		tree_name(in->path, in->path_len, TREE_WHOLE, out);
	else if (in->op == IN_PUT)
		stage_name(in->id, out);
	else
		return 0;
	if (fstatat(u->st.content, out, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	*ret_side = st.st_ino == in->new_ino ? "conflicts/sandbox" : "conflicts/host";
	if (in->op == IN_PUT && st.st_ino == in->old.ino) /* that was replaced as it was meant to */
		return 0;
	/* Safe because: it is the staged one, which has no other name. */
	if (st.st_ino == in->new_ino && S_ISREG(st.st_mode))
		r = step_chmod(u->st.content, out, 0600);
	return r < 0 ? r : 1;
}

/* 1: it was copied, 0: it is not here, or why what lost lies here still. */
static int keep_loser(struct unpack *u, const struct intent *in)
{
	char name[TREE_NAME], detail[PATH_MEMBER_MAX + 128];
	const char *side;
	int r = find_loser(u, in, name, &side);

	if (r <= 0)
		return r;
	r = save_whole(u, side, name, in->path, detail, sizeof(detail));
	if (r < 0)
		return r;
	u->copied = true;
	(void)tell(u, UA_CONFLICT, in->path, "changed_meanwhile", detail, NULL);
	return 1;
}

/* What a deletion moved into t/. 1, 0 or negative errno. */
static int find_deleted(struct unpack *u, const struct intent *in)
{
	struct stat st;
	char name[20];

	stage_name(in->id, name);
	if (fstatat(u->st.trash, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

/*
 * 1: it was copied, 0: it is not here, or why what this intent took away is not in the trash. Once it was seen here,
 * ENOENT means that the run's directory went away meanwhile: what is here is all there is.
 */
static int keep_old(struct unpack *u, const struct intent *in)
{
	bool deletes = in->op == IN_DELETE || in->op == IN_CLEAR;
	char name[STAGE_ASIDE];
	int r = deletes ? find_deleted(u, in) : find_replaced(u, in, name);

	if (r <= 0)
		return r;
	return deletes ? save_trash(u, in->id, in->path) : save_replaced(u, name, in->path);
}

/* Is something here that this intent took away? Of what cannot be told: yes. */
static bool holds_old(struct unpack *u, const struct intent *in)
{
	char name[STAGE_ASIDE];

	if (in->op != IN_DELETE && in->op != IN_CLEAR)
		return find_replaced(u, in, name) != 0;
	return find_deleted(u, in) != 0;
}

/* By renames on a file system without RENAME_NOREPLACE too. */
const char *trash_wait(struct unpack *u)
{
	if (faccessat(u->st.dir, STAGED_KEPT, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return STAGED_KEPT;
	if (entry_rename_new(u->st.dir, "c", u->st.dir, STAGED_KEPT) < 0)
		return "c";
	(void)beneath_sync_dir(u->st.dir);
	return STAGED_KEPT;
}

/* Reports what stays in the staging place, where it is and why (0: there is no run). */
static void tell_untrashed(struct unpack *u, const struct intent *in, int r)
{
	char name[STAGE_ASIDE], where[sizeof(u->st.path) + 256];
	const char *c = trash_wait(u);

	if (find_replaced(u, in, name) <= 0)
		stage_name(in->id, name);
	(void)snprintf(where, sizeof(where), "%s/%s/%s: %s", u->st.path, in->op == IN_PUT ? c : "t",
		       name, r ? strerror(-r) : STEP_NO_RUN_TEXT);
	(void)tell(u, UA_NOT_TRASHED, in->path, r ? step_fail_rule(-r) : STEP_NO_RUN, where, NULL);
	u->untrashed++;
}

/* Of what was copied nothing is sure to be there after a power cut: the originals stay. */
static void tell_copied(struct unpack *u, const struct copies *copied, uint64_t end, int r)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	uint64_t pos = 0;
	struct intent in;

	for (uint64_t n = 0; journal_next(u->st.journal, &k, &pos, end, &in) > 0; n++)
		if (copies_has(copied, n))
			tell_untrashed(u, &in, r);
}

static void drop(struct beneath *in, const char *name)
{
	char going[TREE_NAME + 1];

	(void)snprintf(going, sizeof(going), "%s-", name);
	/* Safe because: the copy is on disk, and the name is one of this place's own. */
	if (entry_rename_new(in->root, name, in->root, going) == 0)
		(void)beneath_remove_tree(in, going);
}

static void drop_entry(struct unpack *u, const struct intent *in)
{
	struct beneath content = {.root = u->st.content, .stepwise = u->root.stepwise};
	struct beneath trash = {.root = u->st.trash, .stepwise = u->root.stepwise};
	char name[TREE_NAME], aside[STAGE_ASIDE];

	stage_name(in->id, name);
	stage_aside(in->id, aside);
	if (in->op == IN_TREE)
		tree_name(in->path, in->path_len, TREE_WHOLE, name);
	else if (in->op == IN_PUT)
		drop(&content, aside);
	drop(in->op == IN_PUT || in->op == IN_TREE ? &content : &trash, name);
}

/*
 * The place stays for the sake of another entry: what is safe in the trash by now must not be copied again by
 * each recovery. By a rename first: a directory that is cut while it is being removed is not what was kept.
 */
static void drop_copied(struct unpack *u, const struct copies *copied, uint64_t end)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	uint64_t pos = 0;
	struct intent in;

	for (uint64_t n = 0; journal_next(u->st.journal, &k, &pos, end, &in) > 0; n++) {
		if (copies_has(copied, n))
			drop_entry(u, &in);
	}
}

/* What one intent left here, into the run. As keep_old. */
static int keep_one(struct unpack *u, const struct intent *in, bool carried)
{
	int r, s = 0;

	if (u->run_fd < 0) {
		if (holds_old(u, in))
			tell_untrashed(u, in, 0);
		return 0;
	}
	r = keep_old(u, in);
	if (r >= 0 && carried)
		s = keep_loser(u, in);
	return r < 0 ? r : s < 0 ? s : r || s;
}

void trash_keep(struct unpack *u, bool carried, uint64_t end)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	struct copies copied = {0};
	uint64_t pos = 0, before = u->untrashed;
	struct intent in;
	int r, s;

	/* What was kept for a month goes (engine/unpacks.c): from now on, not from when the run began. */
	if (u->run_fd >= 0)
		(void)futimens(u->run_fd, NULL);
	for (uint64_t n = 0; (r = journal_next(u->st.journal, &k, &pos, end, &in)) > 0; n++) {
		s = keep_one(u, &in, carried);
		if (s > 0)
			s = copies_add(&copied, n);
		if (s < 0)
			tell_untrashed(u, &in, s);
	}
	if (r < 0) {
		(void)trash_wait(u);
		(void)tell(u, UA_NOT_TRASHED, u->st.path, step_fail_rule(-r), strerror(-r), NULL);
		u->untrashed++;
	}
	/* The sweep that follows removes the only other copy. */
	if (u->copied && syncfs(u->run_fd) < 0)
		tell_copied(u, &copied, end, -errno);
	else if (u->untrashed > before)
		drop_copied(u, &copied, end);
	free(copied.bits);
}
