/*
 * A staged tree is put into the host tree: by one rename, or, where something is in the way by then, entry by
 * entry. Part of door 1.
 *
 * Policy: the rename replaces nothing. What the host made of the same name since the plan stays: each
 * entry of the tree then has to find its own name free, and what does not is a conflict whose bytes are kept.
 * An entry leaves the staging place only by the rename that puts it, so a kill at any point leaves each in
 * one of the two, and carrying out again takes up what is still staged. After a kill the names in the tree are
 * judged again, since others may have written in the staging place meanwhile: what no sandbox may bring in
 * (.git in any spelling) does not come in that way either.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "policy/member.h"
#include "sync/unpack_entry.h"
#include "sync/unpack_steps.h"

static int tell_entry(struct unpack *u, const struct change *c, size_t top, struct err *e)
{
	if (!(c->flags & CH_TREE) || c->id != top)
		return 0;
	if (c->kind != MK_DIR)
		u->bytes_written += c->size;
	return tell(u, UA_ADD, c->path, c->kind == MK_DIR ? "dir" : "", NULL, e);
}

/* Every entry that came with the tree. */
static int tell_tree(struct unpack *u, const struct intent *in, struct err *e)
{
	char below[PATH_MEMBER_MAX + 2];
	size_t n = in->path_len + 1;
	uint64_t i;
	struct change c;
	int r;

	r = chlist_seek(u->list, in->path, in->path_len, &i);
	if (r == 0 && i < chlist_count(u->list) && !change_skipped(u, i) &&
	    chlist_get(u->list, i, &c) == 0 && c.path_len == in->path_len)
		r = tell_entry(u, &c, in->path_len, e);
	/* Others sort between a directory and what is in it: "a", "a.c", "a/b". */
	(void)snprintf(below, sizeof(below), "%s/", in->path);
	if (r == 0)
		r = chlist_seek(u->list, below, n, &i);
	for (; r == 0 && i < chlist_count(u->list); i++) {
		r = chlist_get(u->list, i, &c);
		if (r < 0 || c.path_len <= n || memcmp(c.path, below, n) != 0)
			break;
		if (!change_skipped(u, i))
			r = tell_entry(u, &c, in->path_len, e);
	}
	return r < 0 ? err_sys(e, -r, "read the list of changes") : 0;
}

/* The same from what is there: after a kill there is no list. */
static int tell_found(struct unpack *u, int parent, const char *name, char *path, size_t n,
		      struct err *e)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	int r;

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
	r = tell(u, UA_ADD, path, "dir", NULL, e);
	while (r == 0 && (de = readdir(d))) {
		size_t k = strlen(de->d_name);
		struct stat st;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") ||
		    n + 1 + k > PATH_MEMBER_MAX ||
		    fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		path[n] = '/';
		memcpy(path + n + 1, de->d_name, k + 1);
		if (S_ISDIR(st.st_mode)) {
			r = tell_found(u, dirfd(d), de->d_name, path, n + 1 + k, e);
		} else {
			u->bytes_written += (uint64_t)st.st_size;
			r = tell(u, UA_ADD, path, "", NULL, e);
		}
		path[n] = '\0';
	}
	return r;
}

int tree_foretell(struct unpack *u, uint64_t end, struct err *e)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	uint64_t pos = 0, before = u->bytes_written;
	uint8_t begin = 1, over = 0;
	struct intent in;
	int r = chan_queue(&u->ch, UF_EXPECT, &begin, 1, e), n = 0;

	while (r == 0 && (n = journal_next(u->st.journal, &k, &pos, end, &in)) > 0)
		if (in.op == IN_TREE)
			r = tell_tree(u, &in, e);
	if (r == 0 && n < 0)
		r = err_sys(e, -n, "read the journal in %s", u->st.path);
	if (r == 0)
		r = chan_queue(&u->ch, UF_EXPECT, &over, 1, e);
	if (r == 0)
		r = chan_flush(&u->ch, INT64_MAX, e);
	u->foretold_bytes = u->bytes_written - before;
	u->foretold = r == 0;
	return r;
}

/*
 * `at` does not come as a whole: nothing of what was foretold counts any more, and the trees before it, which came,
 * are told now. A listener that went away does not stop a publish.
 */
static int take_back(struct unpack *u, const struct intent *at, struct err *e)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	uint64_t pos = 0;
	struct intent in;
	int r = 0, n = 0;

	if (!u->foretold)
		return 0;
	u->foretold = false;
	u->bytes_written -= u->foretold_bytes;
	(void)chan_queue(&u->ch, UF_UNTOLD, NULL, 0, NULL);
	while (r == 0 && (n = journal_next(u->st.journal, &k, &pos, UINT64_MAX, &in)) > 0) {
		if (in.op != IN_TREE)
			continue;
		if (!strcmp(in.path, at->path))
			break;
		r = tell_tree(u, &in, e);
	}
	return n < 0 ? err_sys(e, -n, "read the journal in %s", u->st.path) : r;
}

/* Put before the kill, or just now. */
static int tell_put(struct unpack *u, const struct intent *in, struct err *e)
{
	_cleanup_fd_ int dir = -1;
	char path[PATH_MEMBER_MAX + 1];
	const char *base;

	if (u->list)
		return tell_tree(u, in, e);
	dir = beneath_parent(&u->root, in->path, &base);
	memcpy(path, in->path, in->path_len + 1);
	return dir < 0 ? 0 : tell_found(u, dir, base, path, in->path_len, e);
}

/* --- entry by entry ----------------------------------------------------------------------- */

struct walk {
	struct unpack *u;
	char path[PATH_MEMBER_MAX + 1]; /* of the directory in work */
	size_t n;
	unsigned depth;
	const char *staged; /* name of the whole tree */
};

static int walk_dir(struct walk *w, int parent, const char *name, struct err *e);

static int put_leaf(struct walk *w, int from, const char *name, const struct stat *st,
		    struct err *e)
{
	char detail[PATH_MEMBER_MAX + 128];
	struct unpack *u = w->u;
	_cleanup_fd_ int dir = -1;
	const char *base;
	int r, s;

	dir = step_parent(u, w->path, &base);
	if (dir == -ELOOP || dir == -ENOTDIR)
		r = RACED;
	else if (dir < 0)
		r = dir;
	else
		r = entry_rename_new(from, name, dir, base);
	if (r == -EEXIST)
		r = RACED;
	if (r == DONE) {
		u->bytes_written += (uint64_t)st->st_size;
		return tell(u, UA_ADD, w->path, "", NULL, e);
	}
	if (step_waits(u, w->path, r, e))
		return r;
	if (u->run_fd < 0) {
		step_where(u, w->staged, detail, sizeof(detail));
		u->untrashed++;
		return step_lost(u, w->path, r, detail, e);
	}
	s = save_entry(u, "conflicts/sandbox", from, name, w->path, detail, sizeof(detail), e);
	return s < 0 ? s : step_lost(u, w->path, r, detail, e);
}

/* w->path is that of the entry `name` in directory `from` of the staged tree. */
static int put_entry(struct walk *w, int from, const char *name, struct err *e)
{
	struct intent in = {.op = IN_MKDIR, .path_len = (uint32_t)w->n};
	struct stat st;
	int r;

	if (member_name_rule(w->path, w->n))
		return step_refuse(w->u, w->path, member_name_rule(w->path, w->n), e);
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "look at the staged %s", w->path);
	if (!S_ISDIR(st.st_mode))
		return put_leaf(w, from, name, &st, e);
	memcpy(in.path, w->path, w->n + 1);
	in.mode = st.st_mode & 0777;
	r = step_mkdir(w->u, &in);
	if (r == DONE)
		r = tell(w->u, UA_ADD, in.path, "dir", NULL, e);
	else if (r != NOTHING && !step_waits(w->u, in.path, r, e))
		r = step_lost(w->u, in.path, r, "", e);
	if (r == NOTHING)
		r = 0;
	if (r == 0)
		r = walk_dir(w, from, name, e);
	if (r < 0)
		return r;
	(void)step_finish_dir(w->u, &in); /* stays private where the host refuses: no loss */
	(void)unlinkat(from, name, AT_REMOVEDIR);
	return 0;
}

static int walk_dir(struct walk *w, int parent, const char *name, struct err *e)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	size_t n = w->n;
	struct dirent *de;

	if (!d) {
		r = err_sys(e, errno, "open the staged directory %s", w->path);
		if (fd >= 0)
			(void)close(fd);
		return r;
	}
	if (w->depth++ >= PATH_DEPTH_MAX)
		return err_set(e, ERR_PROTOCOL, "the staged tree in %s is too deep", w->u->st.path);
	while (r == 0 && (errno = 0, de = readdir(d))) {
		size_t k = strlen(de->d_name);

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (n + 1 + k > PATH_MEMBER_MAX)
			return err_set(e, ERR_PROTOCOL,
				       "the staged tree in %s has an unusable name", w->u->st.path);
		w->path[n] = '/';
		memcpy(w->path + n + 1, de->d_name, k + 1);
		w->n = n + 1 + k;
		r = put_entry(w, dirfd(d), de->d_name, e);
		w->path[n] = '\0';
		w->n = n;
	}
	if (r == 0 && errno)
		r = err_sys(e, errno, "list the staged directory %s", w->path);
	w->depth--;
	return r;
}

/* Has the tree only names that a sandbox may bring in? What cannot be read is not known to. */
static bool names_pass(int parent, const char *name, unsigned depth)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	struct stat st;

	if (!d && fd >= 0)
		(void)close(fd);
	if (!d || depth >= PATH_DEPTH_MAX)
		return false;
	while ((errno = 0, de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (member_name_rule(de->d_name, strlen(de->d_name)) ||
		    fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    (S_ISDIR(st.st_mode) && !names_pass(dirfd(d), de->d_name, depth + 1)))
			return false;
	}
	return errno == 0;
}

int tree_graft(struct unpack *u, const struct intent *in, struct err *e)
{
	struct walk w = {.u = u, .n = in->path_len};
	_cleanup_fd_ int dir = -1;
	char name[TREE_NAME];
	const char *base;
	struct stat st;
	int r;

	tree_name(in->path, in->path_len, TREE_WHOLE, name);
	if (fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno != ENOENT ? err_sys(e, errno, "find the staged tree of %s", in->path)
		       : u->list       ? take_back(u, in, e)
				       : tell_put(u, in, e);
	if (!S_ISDIR(st.st_mode) || st.st_ino != in->new_ino) {
		r = take_back(u, in, e);
		return r < 0 ? r : step_refuse(u, in->path, "foreign_tree", e);
	}
	dir = step_parent(u, in->path, &base);
	/* Safe because: both names are resolved from descriptors, neither is followed, nothing is replaced. */
	if (dir >= 0 && (u->list || names_pass(u->st.content, name, 0)) &&
	    renameat2(u->st.content, name, dir, base, RENAME_NOREPLACE) == 0)
		return u->foretold ? 0 : tell_put(u, in, e);
	r = take_back(u, in, e);
	if (r < 0)
		return r;
	memcpy(w.path, in->path, in->path_len + 1);
	w.staged = name;
	return put_entry(&w, u->st.content, name, e);
}
