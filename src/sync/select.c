#include "sync/select.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "sync/ahead.h"
#include "sync/listing.h"

#define AHEAD_MIN 128 /* items listed; in a smaller tree a thread costs more than it brings */

/* A directory that the walk is in. */
struct level {
	struct level *up;
	struct listing *l;
	int fd; /* borrowed */
	size_t n, depth, rules_level;
	enum rules_mode mode;
	size_t at, offered; /* items visited; items looked at for what to read ahead */
};

struct walk {
	struct select_opts *o;
	struct err *e;
	char *list_buf;	     /* owned, LISTING_PIECE; free between listings */
	struct ahead *ahead; /* owned; NULL: not started */
	bool alone;	     /* there can be no thread */
	size_t listed;
	struct level *level;
	char next[PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 2]; /* path that is offered */
	char path[PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 2];
	char target[LINK_TARGET_MAX + 1];
	unsigned depth;
	bool probe; /* only asks whether anything below is taken */
	bool found;
};

static int walk_dir(struct walk *w, int fd, size_t n, enum rules_mode mode,
		    struct ahead_dir *ready);

static int note(struct walk *w, size_t n, const char *reason)
{
	return w->probe ? 0 : w->o->note(w->o->arg, w->path, n, reason);
}

static int give(struct walk *w, size_t n, char kind, const struct listing_stat *st,
		size_t target_len)
{
	struct select_entry s = {
	    .kind = kind,
	    .mode = st->mode & 0777,
	    .path = w->path,
	    .path_len = n,
	    .target = w->target,
	    .target_len = target_len,
	    .ino = st->ino,
	};

	if (w->probe) {
		w->found = true;
		return 1;
	}
	if (kind == 'f') {
		s.size = st->size;
		s.mtime_ns = st->mtime_ns;
		s.ctime_ns = st->ctime_ns;
	}
	return w->o->emit(w->o->arg, &s, w->e);
}

static int give_link(struct walk *w, int fd, const char *name, size_t n,
		     const struct listing_stat *st)
{
	ssize_t len = readlinkat(fd, name, w->target, sizeof(w->target));

	if (len < 0)
		return note(w, n, errno == ENOENT || errno == EINVAL ? "vanished" : "unreadable");
	if (len == 0 || len > LINK_TARGET_MAX)
		return note(w, n, "too_long");
	w->target[len] = '\0';
	return give(w, n, 'l', st, (size_t)len);
}

/* Would anything below the directory travel? Asked only where an include may reach into it. */
static int probe_below(struct walk *w, int fd, size_t n, enum rules_mode mode)
{
	int dup = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (dup < 0)
		return 0;
	w->probe = true;
	w->found = false;
	r = walk_dir(w, dup, n, mode, NULL);
	w->probe = false;
	(void)close(dup);
	return r < 0 ? r : w->found;
}

/* Opens the directory: 1, or what the note returned. */
static int enter_dir(struct walk *w, int fd, const struct listing_item *it, size_t n,
		     struct listing_stat *ret)
{
	const char *name = w->path + n - it->len;
	struct statx st;

	/* O_NOFOLLOW: a directory swapped for a link is not followed out of the workspace. */
	it->dir->fd = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (it->dir->fd < 0)
		return note(w, n, errno == EACCES || errno == EPERM ? "unreadable" : "vanished");
	if (statx(it->dir->fd, "", AT_EMPTY_PATH, LISTING_STAT_MASK, &st) < 0)
		return note(w, n, "unreadable");
	if ((st.stx_attributes & STATX_ATTR_MOUNT_ROOT) ||
	    (st.stx_ino == w->o->skip_ino &&
	     makedev(st.stx_dev_major, st.stx_dev_minor) == w->o->skip_dev)) {
		cleanup_fd(&it->dir->fd);
		return note(w, n, "mount");
	}
	if (w->depth + 1 >= PATH_DEPTH_MAX) {
		cleanup_fd(&it->dir->fd);
		return note(w, n, "too_deep");
	}
	listing_from_statx(&st, ret);
	return 1;
}

/* The nearest directories that are sure to be walked, `like` their parent, from items[*at] on. */
static void offer(struct walk *w, const struct listing *l, size_t *at, struct ahead_dir *like,
		  size_t n, enum rules_mode mode, bool near)
{
	size_t name_at = n + (n ? 1 : 0);

	if (n)
		w->next[n] = '/';
	for (; *at < l->n; ++*at) {
		const struct listing_item *it = &l->items[*at];
		size_t len = name_at + it->len;

		if (!it->dir || it->contents || it->len > PATH_SEGMENT_MAX ||
		    len >= PATH_MEMBER_MAX)
			continue;
		if (w->ahead && !ahead_room(w->ahead, near))
			return;
		memcpy(w->next + name_at, it->name, it->len);
		w->next[len] = '\0';
		if (!rules_surely_takes(w->o->rules, like->rules_level, w->next, len, mode,
					&like->below))
			continue;
		if (!w->ahead)
			w->ahead = ahead_new(w->o->skip_dev, w->o->skip_ino);
		w->alone = !w->ahead;
		if (w->alone)
			return;
		like->key = it->dir;
		ahead_offer(w->ahead, like, w->next, len, name_at);
	}
}

/* What lies below directories that are read already comes first: it is nearer. */
static void feed(struct walk *w)
{
	struct ahead_dir *d = NULL;

	if (w->alone || w->probe || w->listed < AHEAD_MIN)
		return;
	while (w->ahead && ahead_room(w->ahead, false) && (d = ahead_next_read(w->ahead, d))) {
		struct ahead_dir like = {
		    .parent_fd = d->fd, .rules_level = d->rules_level, .depth = d->depth + 1};

		/* Its own ignore files are read when the walk is there: too early to judge. */
		if (d->l.has_git || d->l.has_rules || d->depth + 2 >= PATH_DEPTH_MAX) {
			d->offered = d->l.n;
			continue;
		}
		memcpy(w->next, d->path, d->path_len);
		offer(w, &d->l, &d->offered, &like, d->path_len, d->below, false);
	}
	for (struct level *lv = w->level; lv && !w->alone; lv = lv->up) {
		struct ahead_dir like = {
		    .parent_fd = lv->fd, .rules_level = lv->rules_level, .depth = lv->depth};

		if (lv->offered <= lv->at)
			lv->offered = lv->at + 1;
		if (lv->offered >= lv->l->n || lv->mode == RULES_REST ||
		    lv->depth + 1 >= PATH_DEPTH_MAX)
			continue;
		memcpy(w->next, w->path, lv->n);
		offer(w, lv->l, &lv->offered, &like, lv->n, lv->mode, true);
	}
}

/* The directory as the other thread read it, if it did. */
static bool take_ready(struct walk *w, const struct listing_item *it, struct listing_stat *ret)
{
	struct ahead_dir *d = ahead_take(w->ahead, it->dir, w->list_buf);

	if (!d)
		return false;
	it->dir->ready = d;
	it->dir->fd = TAKE_FD(d->fd);
	*ret = d->st;
	return true;
}

static int visit_dir(struct walk *w, int fd, const struct listing_item *it, size_t n,
		     const struct rules_verdict *v)
{
	struct listing_stat st = {0};
	int r;

	it->dir->below = v->below;
	if (!w->ahead || w->probe || v->only_if_below || !take_ready(w, it, &st)) {
		r = enter_dir(w, fd, it, n, &st);
		if (r <= 0)
			return r;
	}
	if (v->only_if_below && !w->probe) {
		r = probe_below(w, it->dir->fd, n, v->below);
		if (r <= 0) {
			cleanup_fd(&it->dir->fd);
			return r;
		}
	} else if (v->only_if_below) {
		return 0;
	}
	return give(w, n, 'd', &st, 0);
}

static int visit_other(struct walk *w, int fd, const struct listing_item *it, size_t n,
		       const struct listing_stat *ready)
{
	const char *name = w->path + n - it->len;
	struct listing_stat now = {0};
	const struct listing_stat *st = ready ? ready : &now;

	if (!ready)
		listing_stat_one(fd, name, &now);
	if (st->err)
		return note(w, n, st->err == ENOENT ? "vanished" : "unreadable");
	switch (st->mode & S_IFMT) {
	case S_IFREG:
		return give(w, n, 'f', st, 0);
	case S_IFLNK:
		return give_link(w, fd, name, n, st);
	case S_IFSOCK:
		return note(w, n, "socket");
	case S_IFIFO:
		return note(w, n, "fifo");
	case S_IFDIR: /* became one since it was listed: the next pass takes it */
		return note(w, n, "changed");
	default:
		return note(w, n, "device");
	}
}

static int visit(struct walk *w, const struct level *lv, const struct listing_item *it, size_t n)
{
	const struct listing_stat *stats = lv->l->stats;
	enum rules_mode mode = lv->mode;
	int fd = lv->fd;
	struct rules_verdict v;
	bool is_dir = it->dir != NULL;
	int r = rules_judge(w->o->rules, w->path, n, is_dir, mode, &v, w->e);

	if (r < 0)
		return r;
	if (!v.take && !w->probe && !v.only_if_below) {
		if (v.why == WHY_EXCLUDED && w->o->held)
			w->o->held(w->o->arg, w->path, n);
		if (v.why == WHY_SECRET)
			return note(w, n, "secret");
		if (v.why == WHY_HEAVY)
			(void)note(w, n, "heavy");
		if (mode != RULES_REST || v.why == WHY_EXCLUDED)
			w->o->excluded++;
	}
	if (is_dir)
		return v.take || v.descend ? visit_dir(w, fd, it, n, &v) : 0;
	return v.take ? visit_other(w, fd, it, n, stats ? &stats[it - lv->l->items] : NULL) : 0;
}

static int walk_items(struct walk *w, struct level *lv)
{
	size_t n = lv->n, at = n + (n ? 1 : 0);

	if (n)
		w->path[n] = '/';
	for (size_t i = 0; i < lv->l->n; i++) {
		const struct listing_item *it = &lv->l->items[i];
		size_t len = at + it->len - (it->contents ? 1 : 0);
		int r;

		if (w->o->cancel && *w->o->cancel)
			return err_set(w->e, ERR_CANCELLED, "sync in was stopped");
		if (it->len > PATH_SEGMENT_MAX + 1)
			continue;
		lv->at = i;
		memcpy(w->path + at, it->name, it->len);
		w->path[len] = '\0';
		if (it->contents) {
			if (it->dir->fd < 0)
				continue;
			r = walk_dir(w, it->dir->fd, len, it->dir->below, TAKE_PTR(it->dir->ready));
			cleanup_fd(&it->dir->fd);
		} else if (len >= PATH_MEMBER_MAX) { /* PATH_MAX counts the NUL */
			r = note(w, PATH_MEMBER_MAX - 1, "too_long");
		} else {
			r = visit(w, lv, it, len);
		}
		if (r)
			return r;
	}
	return 0;
}

static int walk_level(struct walk *w, struct level *lv)
{
	int r;

	w->level = lv;
	feed(w);
	r = walk_items(w, lv);
	w->level = lv->up;
	/* Nothing may go on reading below descriptors and names that go now. */
	if (w->ahead)
		ahead_drop_below(w->ahead, w->path, lv->n);
	for (size_t i = 0; i < lv->l->dirs_n; i++)
		ahead_dir_free(TAKE_PTR(lv->l->dirs[i].ready));
	return r;
}

static int walk_listed(struct walk *w, int fd, struct level *lv)
{
	size_t n = lv->n;
	int r = 0;

	w->depth++;
	if (n && lv->l->has_git)
		r = note(w, n, "submodule_git");
	if (!r)
		r = rules_enter(w->o->rules, fd, w->path, n, lv->l->has_git, w->e);
	if (!r) {
		lv->depth = w->depth;
		lv->rules_level = rules_level(w->o->rules);
		r = walk_level(w, lv);
		rules_leave(w->o->rules);
	}
	w->depth--;
	return r;
}

/* ready: owned; the directory as read ahead, or NULL. */
static int walk_dir(struct walk *w, int fd, size_t n, enum rules_mode mode, struct ahead_dir *ready)
{
	struct listing own = {0}, *l = ready ? &ready->l : &own;
	struct level lv = {.up = w->level,
			   .l = l,
			   .fd = fd,
			   .n = n,
			   .mode = mode,
			   .offered = ready ? ready->offered : 0};
	int r = ready ? 0 : listing_read(fd, w->list_buf, SIZE_MAX, l);

	if (r < 0) {
		w->path[n] = '\0';
		/* A listing that fails is unknown, not empty: nothing of it may pass for deleted. */
		r = r == -ENOMEM || r == -E2BIG
			? err_sys(w->e, -r, "%s", w->path)
			: err_sys(w->e, -r, "cannot list %s", n ? w->path : "the workspace");
	} else {
		w->listed += l->n;
		r = walk_listed(w, fd, &lv);
	}
	if (r && w->ahead)
		ahead_drop_below(w->ahead, w->path, n);
	listing_done(&own);
	ahead_dir_free(ready);
	return r;
}

int select_walk(struct select_opts *o, struct err *e)
{
	struct walk w = {.o = o, .e = e, .list_buf = malloc(LISTING_PIECE)};
	_cleanup_fd_ int fd = openat(o->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (!w.list_buf || fd < 0) {
		r = err_sys(e, fd < 0 ? errno : ENOMEM, "the workspace cannot be listed");
		free(w.list_buf);
		return r;
	}
	r = walk_dir(&w, fd, 0, RULES_NORMAL, NULL);
	ahead_free(w.ahead);
	free(w.list_buf);
	return r < 0 ? r : 0;
}
