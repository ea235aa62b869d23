/*
 * New trees in the plan: each goes as a whole if the host has nothing in its place yet, else entry by entry. Part of
 * door 1.
 *
 * Policy: what does not come in, ignored or refused, leaves its tree before that is put; so do directories that
 * were there for it only. All names are resolved beneath the private staging place.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sync/unpack_plan.h"

static bool in_last_tree(const struct plan *p, size_t top)
{
	return !memcmp(p->c.path, p->tree, top) && !p->tree[top];
}

static bool tree_is_whole(struct plan *p, size_t top)
{
	char name[TREE_NAME];

	if (in_last_tree(p, top))
		return p->whole;
	tree_name(p->c.path, top, TREE_WHOLE, name);
	return faccessat(p->u->st.content, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The tree of p->c goes as a whole if the host still has nothing there; else its entries are apart from now on. */
static int judge_tree(struct plan *p, size_t top, bool skipped, struct err *e)
{
	struct intent in = {.op = IN_TREE, .action = UA_ACTION_COUNT};
	char whole[TREE_NAME], apart[TREE_NAME], path[PATH_MEMBER_MAX + 1];
	struct stat st;
	int r;

	memcpy(path, p->c.path, top);
	path[top] = '\0';
	r = host_look(p->u, path, &p->h, e);
	if (r < 0)
		return r;
	tree_name(path, top, TREE_WHOLE, whole);
	if (!skipped && p->h.side.kind == MK_ABSENT && !p->h.blocked) {
		if (fstatat(p->u->st.content, whole, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_sys(e, errno, "find the staged tree of %s", path);
		in.new_ino = st.st_ino;
		return plan_intend(p, &in, path, top, e);
	}
	tree_name(path, top, TREE_APART, apart);
	r = save_rename(p->u->st.content, whole, p->u->st.content, apart);
	if (r < 0)
		return err_sys(e, -r, "take the staged tree of %s apart", path);
	return 0;
}

/* Once per tree, at the first of its entries: is it one? */
int plan_meet_tree(struct plan *p, bool skipped, struct err *e)
{
	size_t top = (size_t)p->c.id;
	int r;

	if (p->c.path_len == top)
		return judge_tree(p, top, skipped, e);
	if (in_last_tree(p, top))
		return 0;
	/* Its own entry, where a member declared it, came before what is in it. */
	r = chlist_find(p->u->list, p->c.path, top, &p->other);
	if (r < 0)
		return err_sys(e, -r, "look up %s", p->c.path);
	r = r > 0 && p->other.flags & CH_TREE ? 0 : judge_tree(p, top, false, e);
	if (r < 0)
		return r;
	p->whole = tree_is_whole(p, top);
	memcpy(p->tree, p->c.path, top);
	p->tree[top] = '\0';
	return 0;
}

/* p->c has left its tree: directories on its way that no member declared were there for it only. */
static int drop_implied(struct plan *p, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	size_t top = (size_t)p->c.id, n = p->c.path_len;
	char at[PATH_MEMBER_MAX + 1];
	int r = 0;

	while (r == 0 && n > top) {
		while (n > top && p->c.path[--n] != '/')
			;
		r = chlist_find(p->u->list, p->c.path, n, &p->other);
		if (r != 0)
			return r < 0 ? err_sys(e, -r, "look up %s", p->c.path) : 0;
		tree_path(p->c.path, n, top, TREE_WHOLE, at);
		r = beneath_rmdir(&content, at);
	}
	return r == 0 || r == -ENOTEMPTY || r == -ENOENT
		   ? 0
		   : err_sys(e, -r, "take %s out of its tree", p->c.path);
}

/* p->c, entry i, does not come in: it leaves the tree. Directories do once all is decided. */
int plan_leave_tree(struct plan *p, uint64_t i, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	_cleanup_fd_ int dir = -1;
	const char *base;

	if (!(p->c.flags & CH_TREE) || !tree_is_whole(p, (size_t)p->c.id))
		return 0;
	p->u->skip[i / 8] |= (uint8_t)(1u << (i % 8));
	if (p->c.kind == MK_DIR) {
		p->emptied = true;
		return 0;
	}
	tree_path(p->c.path, p->c.path_len, (size_t)p->c.id, TREE_WHOLE, at);
	dir = beneath_parent(&content, at, &base);
	if (dir < 0 || unlinkat(dir, base, 0) < 0)
		return err_sys(e, dir < 0 ? -dir : errno, "take %s out of its tree", p->c.path);
	return drop_implied(p, e);
}

/* What is left in such a directory comes in all the same, and then so does the directory. */
int plan_drop_emptied(struct plan *p, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	int r = 0;

	for (uint64_t i = chlist_count(p->u->list); p->emptied && r == 0 && i-- > 0;) {
		if (!change_skipped(p->u, i))
			continue;
		r = chlist_get(p->u->list, i, &p->c);
		if (r < 0)
			return err_sys(e, -r, "read the list of changes");
		if (p->c.kind != MK_DIR || !(p->c.flags & CH_TREE))
			continue;
		tree_path(p->c.path, p->c.path_len, (size_t)p->c.id, TREE_WHOLE, at);
		r = beneath_rmdir(&content, at);
		if (r == 0)
			r = drop_implied(p, e);
		else if (r != -ENOTEMPTY && r != -ENOENT)
			return err_sys(e, -r, "take %s out of its tree", p->c.path);
		else
			r = 0;
	}
	return r;
}

int plan_with_tree(struct plan *p, uint64_t i, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	uint32_t mode = p->c.kind == MK_LINK ? 0 : plan_new_mode(p, p->c.mode);
	char at[PATH_MEMBER_MAX + 1], name[20];
	_cleanup_fd_ int dir = -1, fd = -1;
	const char *base;
	int r;

	if (!(p->c.flags & CH_TREE))
		return 0;
	if (tree_is_whole(p, (size_t)p->c.id)) {
		if (p->c.kind == MK_DIR)
			mode |= 0700;
		r = baseline_note(p->u, &p->c, NULL, mode, true, e);
		return r < 0 ? r : 1;
	}
	tree_path(p->c.path, p->c.path_len, (size_t)p->c.id, TREE_APART, at);
	p->c.flags &= (uint8_t)~CH_TREE;
	p->c.id = 0;
	if (p->c.kind == MK_DIR)
		return 0;
	p->c.id = p->ids + i;
	stage_name(p->c.id, name);
	dir = beneath_parent(&content, at, &base);
	r = dir < 0 ? dir : save_rename(dir, base, p->u->st.content, name);
	if (r < 0)
		return err_sys(e, -r, "take %s out of its tree", p->c.path);
	if (!(p->c.flags & CH_UNHASHED))
		return 0;
	fd = openat(p->u->st.content, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : change_hash(&p->c, fd);
	return r < 0 ? err_sys(e, -r, "read the staged content of %s", p->c.path) : 0;
}
