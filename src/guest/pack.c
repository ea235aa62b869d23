#include "guest/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guest/pack_internal.h"

#define STREAM_MAX 262144
#define NAMES_BUDGET (3u << 20) /* bytes of names over all open directories, roughly */
#define NAMES_LEAST 16384

/* Directories. ------------------------------------------------------------------------------ */

static size_t names_limit(const struct pack *p)
{
	size_t used = 0;

	for (size_t i = 0; i < p->depth; i++)
		used += names_size(&p->levels[i].names);
	if (used + 2 * NAMES_LEAST > NAMES_BUDGET)
		return NAMES_LEAST;
	return (NAMES_BUDGET - used) / 2;
}

/* Opens a level below the last one. Its first names are read before its member is written, for
 * a directory that turns out to be unreadable must not have been announced as a plain one. */
static int put_open_dir(struct pack *p, int dir, const char *name, size_t path_len,
			const struct stat *before, bool lent)
{
	_cleanup_fd_ int fd =
	    openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct level *l = p->depth < ARRAY_LEN(p->levels) ? &p->levels[p->depth] : NULL;
	struct names names = {0};
	struct tar_member m;
	struct stat st;
	bool too_deep = !l || path_len + 1 + PATH_SEGMENT_MAX > PATH_MEMBER_MAX;
	int r;

	if (fd < 0)
		return pack_put_unopened(p, path_len, TAR_DIR, errno);
	r = names_read(&names, fd, NULL, too_deep ? 0 : names_limit(p));
	if (r == -ENOMEM) {
		names_done(&names);
		return r;
	}
	/* A renamed lower directory (redirect) has contents that are not in this layer. */
	if (r < 0 || fstat(fd, &st) < 0 || (too_deep && names.n) ||
	    (!p->base &&
	     pack_has_mark(fd, "user.overlay.redirect", "trusted.overlay.redirect", '\0'))) {
		names_done(&names);
		return pack_put_op(p, path_len, TAR_DIR, TAR_OP_UNREADABLE);
	}
	if (lent)
		st.st_mode = before->st_mode;
	m = pack_member_of(p, path_len, TAR_DIR, &st);
	if (p->base ? p->look == DELTA_KIND
		    : pack_has_mark(fd, "user.overlay.opaque", "trusted.overlay.opaque", 'y'))
		m.op = TAR_OP_OPAQUE;
	r = p->look == DELTA_SAME ? 0 : pack_put_member(p, &m);
	/* An empty one has nothing to walk, unless something may have gone from it. */
	if (r < 0 || !l || (!names.n && !p->base)) {
		names_done(&names);
		return r;
	}
	*l = (struct level){.fd = TAKE_FD(fd),
			    .names = names,
			    .path_len = path_len,
			    .own_mode = before->st_mode,
			    .lent = lent};
	if (p->base)
		delta_enter(p->base, p->path, path_len, &l->base_at);
	p->depth++;
	return 0;
}

static int put_dir(struct pack *p, int dir, const char *name, size_t path_len,
		   const struct stat *before)
{
	bool lent = pack_lend(p, path_len, before, S_IRUSR | S_IXUSR);
	size_t depth = p->depth;
	int r = put_open_dir(p, dir, name, path_len, before, lent);

	/* Otherwise close_level does it. */
	if (lent && p->depth == depth)
		(void)pack_set_mode(p, path_len, before->st_mode);
	return r;
}

/*
 * An attempt on git's own files is announced by name, without bytes: the host refuses it, and a person
 * reads of it (S1-05). git itself writes none of these when it commits.
 */
static int put_attempt(struct pack *p, int dir, const char *in, const char *name)
{
	struct tar_member m = {.type = TAR_FILE, .target = {"", 0}, .mode = 0600};
	struct stat st;
	int n;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return 0;
	/* A whiteout only takes something away. */
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0))
		return 0;
	if (p->base && delta_older(p->base, &st))
		return 0;
	n = snprintf(p->path, sizeof(p->path), "%s%s", in, name);
	m.path = (struct view){p->path, (size_t)n};
	return pack_put_member(p, &m);
}

static int put_hooks(struct pack *p, int git)
{
	static const char sample[] = ".sample"; /* git's own examples, which git never runs */
	_cleanup_fd_ int fd = openat(git, "hooks", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct names names = {0};
	int r = 0;

	if (fd < 0)
		return put_attempt(p, git, ".git/", "hooks"); /* a link, or nothing */
	/* One list's worth: who makes more hooks than that is seen anyway. */
	if (names_read(&names, fd, NULL, NAMES_LEAST) == 0)
		for (size_t i = 0; r == 0 && i < names.n; i++) {
			const char *name = names_get(&names, i);
			size_t n = strlen(name), k = sizeof(sample) - 1;

			if (n < k || strcmp(name + n - k, sample) != 0)
				r = put_attempt(p, fd, ".git/hooks/", name);
		}
	names_done(&names);
	return r;
}

static int put_git(struct pack *p, int dir)
{
	_cleanup_fd_ int git = openat(dir, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int info = -1;
	int r;

	if (git < 0)
		return put_attempt(p, dir, "", ".git"); /* a pointer elsewhere */
	r = put_attempt(p, git, ".git/", "config");
	if (r == 0)
		r = put_hooks(p, git);
	info = openat(git, "info", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r == 0 && info >= 0)
		r = put_attempt(p, info, ".git/info/", "attributes");
	return r;
}

/* Never travels: the host would refuse it anyway, and it may be large. */
static bool left_out(const struct pack *p, const char *name)
{
	return p->depth == 1 &&
	       (strcmp(name, ".git") == 0 || strcmp(name, ".airlock-staging") == 0);
}

/* Appends name to the level's path; the whole length. */
static size_t set_path(struct pack *p, const struct level *l, const char *name)
{
	size_t at = l->path_len, n = strlen(name);

	if (at)
		p->path[at++] = '/';
	memcpy(p->path + at, name, n + 1);
	return at + n;
}

/* What the index has in this directory before `until` (NULL: up to its end) and the tree has not. */
static int put_gone(struct pack *p, struct level *l, const char *until)
{
	struct view v;
	int r;

	while ((r = delta_before(p->base, &l->base_at, p->path, l->path_len, until, &v)) > 0) {
		const char *name = v.p + (l->path_len ? l->path_len + 1 : 0);
		struct stat st;

		/* There after all: made since the names were read, or found by another spelling. */
		if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
			continue;
		r = pack_put_op(p, set_path(p, l, name), TAR_FILE, TAR_OP_DELETE);
		if (r < 0)
			return r;
	}
	return r;
}

/* Sets p->look, after what has gone before this name; p->path is the entry's. */
static int look(struct pack *p, struct level *l, const char *name, size_t path_len,
		const struct stat *st)
{
	int r;

	p->look = DELTA_SAME;
	if (delta_plainly_same(p->base, &l->base_at, p->path, path_len, st))
		return 0;
	r = put_gone(p, l, name);
	if (r < 0)
		return r;
	(void)set_path(p, l, name);
	r = delta_judge(p->base, &l->base_at, p->path, path_len, st, l->fd, name);
	if (r >= 0)
		p->look = (enum delta_look)r;
	return r < 0 ? r : 0;
}

static int put_entry(struct pack *p, struct level *l, const char *name)
{
	struct stat st;
	size_t at;
	int r;

	if (left_out(p, name)) {
		p->res->left_out++;
		return strcmp(name, ".git") == 0 && !p->plain ? put_git(p, l->fd) : 0;
	}
	at = set_path(p, l, name);
	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return pack_put_unopened(p, at, TAR_FILE, errno);
	if (p->base) {
		r = look(p, l, name, at, &st);
		if (r < 0 || (p->look == DELTA_SAME && !S_ISDIR(st.st_mode)))
			return r;
	}
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		return pack_put_file(p, l->fd, name, at, &st);
	case S_IFDIR:
		return put_dir(p, l->fd, name, at, &st);
	case S_IFLNK:
		return pack_put_link(p, l->fd, name, at, &st);
	case S_IFCHR:
		if (!p->base && major(st.st_rdev) == 0 && minor(st.st_rdev) == 0)
			return pack_put_op(p, at, TAR_FILE, TAR_OP_DELETE);
		return pack_put_special(p, at, &st);
	default:
		return pack_put_special(p, at, &st);
	}
}

/* The walk. --------------------------------------------------------------------------------- */

/* Next name of the last level, or NULL at its end. */
static int next_name(struct pack *p, struct level *l, const char **ret)
{
	char floor[PATH_SEGMENT_MAX + 1];
	int r;

	*ret = NULL;
	if (l->next == l->names.n && l->names.more) {
		(void)snprintf(floor, sizeof(floor), "%s", names_get(&l->names, l->next - 1));
		r = names_read(&l->names, l->fd, floor, names_limit(p));
		if (r < 0)
			return r;
		l->next = 0;
	}
	if (l->next < l->names.n)
		*ret = names_get(&l->names, l->next++);
	return 0;
}

static void close_level(struct pack *p)
{
	struct level *l = &p->levels[--p->depth];

	names_done(&l->names);
	(void)close(l->fd);
	if (l->lent)
		(void)pack_set_mode(p, l->path_len, l->own_mode);
}

static int walk(struct pack *p)
{
	while (p->depth) {
		struct level *l = &p->levels[p->depth - 1];
		const char *name;
		int r = next_name(p, l, &name);

		if (r < 0)
			return r;
		if (!name) {
			r = p->base ? put_gone(p, l, NULL) : 0;
			close_level(p);
			if (r < 0)
				return r;
			continue;
		}
		r = put_entry(p, l, name);
		if (r < 0)
			return r;
	}
	return 0;
}

static int open_top(struct pack *p, int upper)
{
	_cleanup_fd_ int fd = -1;
	struct level *l = &p->levels[0];
	struct stat st, work;
	int r;

	if (fstat(upper, &st) < 0)
		return -errno;
	/* An overlay has a device of its own. */
	p->plain = !p->base && p->work >= 0 && fstat(p->work, &work) == 0 &&
		   work.st_dev == st.st_dev && work.st_ino == st.st_ino;
	l->own_mode = st.st_mode;
	l->lent = pack_lend(p, 0, &st, S_IRUSR | S_IXUSR);
	fd = openat(upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = names_read(&l->names, fd, NULL, names_limit(p));
	if (r < 0)
		return r;
	l->fd = TAKE_FD(fd);
	if (p->base)
		delta_enter(p->base, "", 0, &l->base_at);
	p->depth = 1;
	return 0;
}

static int run(int tree, int work, int out, struct delta *base, struct pack_result *ret)
{
	struct pack *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->out = out;
	p->work = work;
	p->res = ret;
	p->base = base;
	p->look = DELTA_NEW;
	buf_init(&p->stream, STREAM_MAX);
	r = open_top(p, tree);
	if (r == 0)
		r = walk(p);
	while (p->depth)
		close_level(p);
	if (r == 0)
		r = tar_put_end(&p->stream);
	if (r == 0)
		r = pack_flush(p);
	names_done(&p->levels[0].names);
	buf_done(&p->stream);
	free(p);
	return r;
}

int pack_write(int upper, int work, int out, struct pack_result *ret)
{
	return run(upper, work, out, NULL, ret);
}

int delta_write(struct delta *d, int tree, int out, struct pack_result *ret)
{
	return run(tree, tree, out, d, ret);
}
