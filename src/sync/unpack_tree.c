/*
 * New trees: directories that neither the manifest nor the host has are staged as they will be, and
 * published by one rename. Part of door 1.
 *
 * Policy: a tree lies in the private staging place under a name made of the hash of its path, and every
 * step into it is resolved beneath that place without following a link, though links of the sandbox lie
 * there already. Whether it may be published as a whole is decided again under the lock
 * (unpack_plan.c) and by the rename itself, which replaces nothing (unpack_graft.c). What a new directory would
 * get from the one that it is made in (set-group-id) it gets only where it is made there, so such places
 * have no trees; nor have file systems that are blind to case. What is staged here is no more trusted than a
 * single staged file, and a member that may not come takes what came before it of the same name away.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "sync/unpack_server.h"

#define IMPLIED_MODE 0755 /* of a directory that no member declares; as beneath_mkparents gets it */

void tree_open(struct unpack *u)
{
	struct trees *t = &u->trees;

	*t = (struct trees){.fd = -1};
	t->on = u->s.mode == UM_STREAM && !u->s.dry_run && !u->s.only[0] && u->st.dir >= 0 &&
		!u->fold_case && !(u->root_st.st_mode & S_ISGID);
	/* As root: new entries belong to whom the workspace belongs. */
	t->gives = geteuid() == 0 && (u->root_st.st_uid || u->root_st.st_gid);
}

/* What is ordered for it may be under way still. */
static void close_dir(struct unpack *u)
{
	struct trees *t = &u->trees;

	if (t->fd >= 0 && t->used)
		writer_close(u->writer, TAKE_FD(t->fd), t->dir, t->dir_len);
	cleanup_fd(&t->fd);
	t->used = false;
}

void tree_close(struct unpack *u)
{
	close_dir(u);
	u->trees.dir_len = 0;
}

void tree_name(const char *top, size_t n, char state, char out[TREE_NAME])
{
	uint8_t h[TREE_HASH];

	(void)crypto_generichash(h, sizeof(h), (const uint8_t *)top, n, NULL, 0);
	out[0] = state;
	(void)sodium_bin2hex(out + 1, TREE_NAME - 1, h, sizeof(h));
}

void tree_path(const char *path, size_t n, size_t top, char state, char out[PATH_MEMBER_MAX + 1])
{
	tree_name(path, top, state, out);
	memcpy(out + TREE_NAME - 1, path + top, n - top);
	out[TREE_NAME - 1 + n - top] = '\0';
}

int tree_open_staged(struct unpack *u, const char *path, size_t n, size_t top, int flags)
{
	struct beneath c = {.root = u->st.content, .stepwise = u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];

	tree_path(path, n, top, TREE_WHOLE, at);
	return beneath_open(&c, at, flags, 0);
}

int staged_open(struct unpack *u, const struct change *c)
{
	char name[20];
	int fd;

	if (c->flags & CH_TREE)
		return tree_open_staged(u, c->path, c->path_len, (size_t)c->id, O_RDONLY);
	stage_name(c->id, name);
	fd = openat(u->st.content, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

ssize_t staged_readlink(struct unpack *u, const struct change *c, char *out, size_t max)
{
	struct beneath in = {.root = u->st.content, .stepwise = u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	_cleanup_fd_ int dir = -1;
	const char *base;
	ssize_t n;

	if (c->flags & CH_TREE)
		tree_path(c->path, c->path_len, (size_t)c->id, TREE_WHOLE, at);
	else
		stage_name(c->id, at);
	dir = beneath_parent(&in, at, &base);
	n = dir < 0 ? dir : readlinkat(dir, base, out, max);
	return n < 0 && dir >= 0 ? -errno : n;
}

/* Is the path, or anything below it, in the manifest? */
static bool in_manifest(struct unpack *u, const char *path, size_t n)
{
	_cleanup_free_ struct manifest_entry *b = NULL;
	size_t pos = 0;

	if (!u->m)
		return false;
	b = malloc(sizeof(*b));
	if (!b || manifest_find(u->m, path, n, b) != 0)
		return true;
	manifest_seek_below(u->m, path, n, &pos);
	return manifest_next(u->m, &pos, b) != 0 && b->path_len > n && !memcmp(b->path, path, n) &&
	       b->path[n] == '/';
}

/* Bytes of directory `dir` that name the first directory on its way which is new on both sides; 0: none. */
static size_t top_of(struct unpack *u, const char *dir, size_t n)
{
	char part[PATH_MEMBER_MAX + 1];
	struct stat st;

	memcpy(part, dir, n);
	part[n] = '\0';
	if (beneath_stat(&u->root, part, &st) != -ENOENT)
		return 0;
	for (size_t i = 1; i <= n; i++) {
		int r;

		if (i < n && dir[i] != '/')
			continue;
		part[i] = '\0';
		r = beneath_stat(&u->root, part, &st);
		if (r == -ENOENT)
			return in_manifest(u, part, i) ? 0 : i;
		if (r < 0 || !S_ISDIR(st.st_mode) || st.st_mode & S_ISGID)
			return 0;
		part[i] = dir[i];
	}
	return 0;
}

static bool below_last(const struct trees *t, const char *dir, size_t n)
{
	return t->top && n >= t->top && !memcmp(dir, t->dir, t->top) &&
	       (n == t->top || dir[t->top] == '/');
}

/*
 * Makes `dir` the directory in work: t->top of it, and t->fd open, if it lies in a new tree (or is one).
 * make: else a tree that is not staged yet stays so. 0 or negative errno.
 */
static int enter(struct unpack *u, const char *dir, size_t n, bool make, struct err *e)
{
	struct beneath c = {.root = u->st.content, .stepwise = u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	struct trees *t = &u->trees;
	int r;

	if (t->known && t->dir_len == n && !memcmp(t->dir, dir, n) && (t->fd >= 0 || !t->top))
		return 0;
	t->top = !n ? 0 : t->known && below_last(t, dir, n) ? t->top : top_of(u, dir, n);
	t->known = true;
	close_dir(u);
	memcpy(t->dir, dir, n);
	t->dir_len = n;
	if (t->top && TREE_NAME + n - t->top + 1 + PATH_SEGMENT_MAX > PATH_MEMBER_MAX)
		t->top = 0;
	if (!t->top)
		return 0;
	tree_path(dir, n, t->top, TREE_WHOLE, at);
	/* Safe because: beneath the staging place, following no link. */
	t->fd = beneath_open(&c, at, O_RDONLY | O_DIRECTORY, 0);
	if (t->fd == -ENOENT && make) {
		r = beneath_mkdirs(&c, at, (IMPLIED_MODE & ~u->s.umask) | 0700);
		t->fd = r < 0 ? r : beneath_open(&c, at, O_RDONLY | O_DIRECTORY, 0);
		if (t->fd >= 0 && t->gives &&
		    fchown(t->fd, u->root_st.st_uid, u->root_st.st_gid) < 0)
			errno = 0; /* as give_to */
	}
	if (t->fd >= 0 || (t->fd == -ENOENT && !make))
		return 0;
	r = t->fd;
	t->fd = -1;
	t->known = false;
	return err_sys(e, -r, "stage directory %.*s in %s", (int)n, dir, u->st.path);
}

static int enter_parent(struct unpack *u, const struct change *c, bool make, const char **ret_base,
			struct err *e)
{
	size_t n;

	*ret_base = path_base(c->path);
	n = (size_t)(*ret_base - c->path);
	return enter(u, c->path, n ? n - 1 : 0, make, e);
}

int tree_dir(struct unpack *u, struct change *c, struct err *e)
{
	struct trees *t = &u->trees;
	int r;

	if (!t->on || !(c->flags & CH_NEW) || !c->path_len)
		return 0;
	r = enter(u, c->path, c->path_len, true, e);
	if (r < 0 || !t->top)
		return r;
	/* Stays as it was made where the file system has no modes: no loss. */
	if (fchmod(t->fd, (c->mode & ~u->s.umask & 0777) | 0700) < 0)
		errno = 0;
	c->flags |= CH_TREE;
	c->id = t->top;
	return 0;
}

int tree_place(struct unpack *u, struct change *c, struct writer_entry *ret, struct err *e)
{
	struct trees *t = &u->trees;
	int r;

	if (!t->on || !(c->flags & CH_NEW) || (c->kind != MK_FILE && c->kind != MK_LINK) ||
	    c->flags & CH_HARDLINK)
		return 0;
	r = enter_parent(u, c, true, &ret->name, e);
	if (r < 0 || !t->top)
		return r;
	ret->dir = t->fd;
	ret->give = t->gives;
	ret->again = true;
	t->used = true;
	c->flags |= CH_TREE;
	c->id = t->top;
	return 1;
}

int tree_drop(struct unpack *u, const struct change *c, struct err *e)
{
	struct trees *t = &u->trees;
	const char *base;
	int r;

	if (!t->on || !(c->flags & CH_NEW) || !c->path_len)
		return 0;
	r = enter_parent(u, c, false, &base, e);
	if (r < 0 || t->fd < 0)
		return r;
	t->used = true;
	return writer_unlink(u->writer, t->fd, base, c->path, e);
}
