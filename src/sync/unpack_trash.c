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

/* What a put was swapped for, if it was: by now the staging place has nothing else under that number. */
static int keep_replaced(struct unpack *u, const struct intent *in)
{
	struct stat st;
	char name[20];

	stage_name(in->id, name);
	if (!in->old.ino || fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    st.st_ino != in->old.ino)
		return 0;
	return save_replaced(u, in->id, in->path);
}

/* 1: it was copied, 0: it is not here, or why what this intent took away is not in the trash. */
static int keep_old(struct unpack *u, const struct intent *in)
{
	int r = 0;

	if (in->op == IN_DELETE || in->op == IN_CLEAR)
		r = save_trash(u, in->id, in->path);
	else if (in->op == IN_PUT && u->s.keep_trash)
		r = keep_replaced(u, in);
	return r == -ENOENT ? 0 : r;
}

/* The steps must not be carried out once more, on files that were edited since: only the trash waits. */
static const char *set_aside(struct unpack *u)
{
	if (faccessat(u->st.dir, STAGED_KEPT, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return STAGED_KEPT;
	if (renameat2(u->st.dir, "c", u->st.dir, STAGED_KEPT, RENAME_NOREPLACE) < 0)
		return "c";
	(void)fsync(u->st.dir);
	return STAGED_KEPT;
}

/* Reports what stays in the staging place, where it is and why. */
static void tell_untrashed(struct unpack *u, const struct intent *in, int r)
{
	char name[20], where[sizeof(u->st.path) + 256];
	const char *c = set_aside(u);

	stage_name(in->id, name);
	(void)snprintf(where, sizeof(where), "%s/%s/%s: %s", u->st.path, in->op == IN_PUT ? c : "t",
		       name, strerror(-r));
	(void)tell(u, UA_NOT_TRASHED, in->path, step_fail_rule(-r), where, NULL);
	u->untrashed++;
}

/* Of what was copied nothing is sure to be there after a power cut: the originals stay. */
static void tell_copied(struct unpack *u, const struct copies *copied, uint64_t end, int r)
{
	_cleanup_journal_cache_ struct journal_cache k = {0};
	uint64_t pos = 0;
	struct intent in;

	for (uint64_t n = 0; journal_next(u->st.journal, &k, &pos, end, &in) > 0; n++)
		if (copies_has(copied, n))
			tell_untrashed(u, &in, r);
}

/*
 * The place stays for the sake of another entry: what is safe in the trash by now must not be copied again by
 * each recovery. By a rename first: a directory that is cut while it is being removed is not what was kept.
 */
static void drop_copied(struct unpack *u, const struct copies *copied, uint64_t end)
{
	_cleanup_journal_cache_ struct journal_cache k = {0};
	uint64_t pos = 0;
	struct intent in;

	for (uint64_t n = 0; journal_next(u->st.journal, &k, &pos, end, &in) > 0; n++) {
		struct beneath b = {.root = in.op == IN_PUT ? u->st.content : u->st.trash,
				    .stepwise = u->root.stepwise};
		char name[20], going[24];

		if (!copies_has(copied, n))
			continue;
		stage_name(in.id, name);
		(void)snprintf(going, sizeof(going), "%s-", name);
		/* Safe because: the copy is on disk, and the name is one of this place's own numbers. */
		if (renameat2(b.root, name, b.root, going, RENAME_NOREPLACE) == 0)
			(void)beneath_remove_tree(&b, going);
	}
}

void trash_keep(struct unpack *u, uint64_t end)
{
	_cleanup_journal_cache_ struct journal_cache k = {0};
	struct copies copied = {0};
	uint64_t pos = 0, before = u->untrashed;
	struct intent in;
	int r, s;

	for (uint64_t n = 0; (r = journal_next(u->st.journal, &k, &pos, end, &in)) > 0; n++) {
		s = keep_old(u, &in);
		if (s > 0)
			s = copies_add(&copied, n);
		if (s < 0)
			tell_untrashed(u, &in, s);
	}
	if (r < 0) {
		(void)set_aside(u);
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
