#include "sync/select.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define LIST_PIECE (64 << 10)
#define NAMES_MAX (UINT64_C(1) << 30) /* bytes of names in one directory */

struct kernel_dirent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* A name of the listing. A directory has two places in byte order: "x" and, for its contents, "x/". */
struct item {
	const char *name; /* followed by '/' */
	uint32_t len;	  /* with the '/' for the contents' place */
	bool contents;
	struct dir_state *dir; /* set for both places of a directory */
	uint8_t type;
};

struct dir_state {
	int fd; /* owned, -1: not entered */
	enum rules_mode below;
};

struct listing {
	struct buf names;
	struct item *items;	/* owned */
	struct dir_state *dirs; /* owned */
	size_t n, dirs_n;
	bool has_git;
};

struct walk {
	struct select_opts *o;
	struct err *e;
	char *list_buf; /* owned, LIST_PIECE; free between listings */
	char path[PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 2];
	char target[LINK_TARGET_MAX + 1];
	unsigned depth;
	bool probe; /* only asks whether anything below is taken */
	bool found;
};

static int walk_dir(struct walk *w, int fd, size_t n, enum rules_mode mode);

static int note(struct walk *w, size_t n, const char *reason)
{
	return w->probe ? 0 : w->o->note(w->o->arg, w->path, n, reason);
}

static int add_name(struct listing *l, const struct kernel_dirent *d)
{
	size_t len = strlen(d->name);

	if (len == 1 && d->name[0] == '.')
		return 0;
	if (len == 2 && d->name[0] == '.' && d->name[1] == '.')
		return 0;
	if (len == 4 && memcmp(d->name, ".git", 4) == 0) {
		l->has_git = true;
		return 0;
	}
	l->n++;
	(void)buf_putc(&l->names, (char)d->type);
	(void)buf_put(&l->names, d->name, len);
	return buf_put(&l->names, "/", 2); /* with the NUL */
}

static int read_names(struct walk *w, int fd, struct listing *l)
{
	for (;;) {
		long got = syscall(SYS_getdents64, fd, w->list_buf, LIST_PIECE);

		if (got < 0)
			return -errno;
		if (got == 0)
			return 0;
		for (long at = 0; at < got;) {
			const struct kernel_dirent *d =
			    (const struct kernel_dirent *)(const void *)(w->list_buf + at);
			int r = add_name(l, d);

			if (r < 0)
				return r;
			at += d->reclen;
		}
	}
}

static int by_name(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	size_t n = x->len < y->len ? x->len : y->len;
	int r = memcmp(x->name, y->name, n);

	return r ? r : (x->len > y->len) - (x->len < y->len);
}

/* d_type may be unknown on old file systems; then the stat says it. */
static uint8_t sure_type(int fd, const char *rec)
{
	char name[PATH_SEGMENT_MAX + 1];
	size_t len = strlen(rec + 1) - 1;
	struct stat st;

	if ((uint8_t)rec[0] != 0 || len > PATH_SEGMENT_MAX)
		return (uint8_t)rec[0];
	memcpy(name, rec + 1, len);
	name[len] = '\0';
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (uint8_t)(st.st_mode >> 12 & 017);
}

static int list(struct walk *w, int fd, struct listing *l)
{
	size_t count, k = 0;
	char *p;
	int r = read_names(w, fd, l);

	if (r < 0)
		return r;
	count = l->n;
	l->items = calloc(2 * count + 1, sizeof(*l->items));
	l->dirs = calloc(count + 1, sizeof(*l->dirs));
	if (!l->items || !l->dirs)
		return -ENOMEM;
	p = l->names.data;
	for (size_t i = 0; i < count; i++, p += strlen(p + 1) + 2) {
		size_t len = strlen(p + 1) - 1;
		uint8_t type = sure_type(fd, p);
		struct dir_state *d = NULL;

		if (type == DT_DIR) {
			d = &l->dirs[l->dirs_n++];
			d->fd = -1;
			l->items[k++] = (struct item){p + 1, (uint32_t)len + 1, true, d, type};
		}
		l->items[k++] = (struct item){p + 1, (uint32_t)len, false, d, type};
	}
	l->n = k;
	qsort(l->items, l->n, sizeof(*l->items), by_name);
	return 0;
}

static void listing_done(struct listing *l)
{
	for (size_t i = 0; i < l->dirs_n; i++)
		cleanup_fd(&l->dirs[i].fd);
	free(l->items);
	free(l->dirs);
	buf_done(&l->names);
}

static int64_t ns_of(struct statx_timestamp t)
{
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int give(struct walk *w, size_t n, char kind, const struct statx *st, size_t target_len)
{
	struct select_entry s = {
	    .kind = kind,
	    .mode = st->stx_mode & 0777,
	    .path = w->path,
	    .path_len = n,
	    .target = w->target,
	    .target_len = target_len,
	    .ino = st->stx_ino,
	};

	if (w->probe) {
		w->found = true;
		return 1;
	}
	if (kind == 'f') {
		s.size = st->stx_size;
		s.mtime_ns = ns_of(st->stx_mtime);
		s.ctime_ns = ns_of(st->stx_ctime);
	}
	return w->o->emit(w->o->arg, &s, w->e);
}

static int give_link(struct walk *w, int fd, const char *name, size_t n, const struct statx *st)
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
	r = walk_dir(w, dup, n, mode);
	w->probe = false;
	(void)close(dup);
	return r < 0 ? r : w->found;
}

static int visit_dir(struct walk *w, int fd, const struct item *it, size_t n,
		     const struct rules_verdict *v)
{
	const char *name = w->path + n - it->len;
	struct statx st;
	int r;

	it->dir->below = v->below;
	/* O_NOFOLLOW: a directory swapped for a link is not followed out of the workspace. */
	it->dir->fd = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (it->dir->fd < 0)
		return note(w, n, errno == EACCES || errno == EPERM ? "unreadable" : "vanished");
	if (statx(it->dir->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0)
		return note(w, n, "unreadable");
	if ((st.stx_attributes & STATX_ATTR_MOUNT_ROOT) ||
	    (st.stx_ino == w->o->skip_ino &&
	     makedev(st.stx_dev_major, st.stx_dev_minor) == w->o->skip_dev)) {
		cleanup_fd(&it->dir->fd);
		return note(w, n, "mount");
	}
	if (w->depth + 1 >= PATH_DEPTH_MAX) {
		cleanup_fd(&it->dir->fd);
		return note(w, n, "too_long");
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

static int visit_other(struct walk *w, int fd, const struct item *it, size_t n)
{
	const char *name = w->path + n - it->len;
	struct statx st;

	if (statx(fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &st) < 0)
		return note(w, n, errno == ENOENT ? "vanished" : "unreadable");
	switch (st.stx_mode & S_IFMT) {
	case S_IFREG:
		return give(w, n, 'f', &st, 0);
	case S_IFLNK:
		return give_link(w, fd, name, n, &st);
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

static int visit(struct walk *w, int fd, const struct item *it, size_t n, enum rules_mode mode)
{
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
		if (mode != RULES_REST || v.why == WHY_EXCLUDED)
			w->o->excluded++;
	}
	if (is_dir)
		return v.take || v.descend ? visit_dir(w, fd, it, n, &v) : 0;
	return v.take ? visit_other(w, fd, it, n) : 0;
}

static int walk_items(struct walk *w, int fd, size_t n, struct listing *l, enum rules_mode mode)
{
	size_t at = n + (n ? 1 : 0);

	if (n)
		w->path[n] = '/';
	for (size_t i = 0; i < l->n; i++) {
		const struct item *it = &l->items[i];
		size_t len = at + it->len - (it->contents ? 1 : 0);
		int r;

		if (w->o->cancel && *w->o->cancel)
			return err_set(w->e, ERR_CANCELLED, "sync in was stopped");
		if (it->len > PATH_SEGMENT_MAX + 1)
			continue;
		memcpy(w->path + at, it->name, it->len);
		w->path[len] = '\0';
		if (it->contents) {
			if (it->dir->fd < 0)
				continue;
			r = walk_dir(w, it->dir->fd, len, it->dir->below);
			cleanup_fd(&it->dir->fd);
		} else if (len >= PATH_MEMBER_MAX) { /* PATH_MAX counts the NUL */
			r = note(w, PATH_MEMBER_MAX - 1, "too_long");
		} else {
			r = visit(w, fd, it, len, mode);
		}
		if (r)
			return r;
	}
	return 0;
}

static int walk_dir(struct walk *w, int fd, size_t n, enum rules_mode mode)
{
	struct listing l = {.names = BUF_INIT(NAMES_MAX)};
	int r = list(w, fd, &l);

	if (r < 0) {
		listing_done(&l);
		w->path[n] = '\0';
		/* A listing that fails is unknown, not empty: nothing of it may pass for deleted. */
		return r == -ENOMEM || r == -E2BIG
			   ? err_sys(w->e, -r, "%s", w->path)
			   : err_sys(w->e, -r, "cannot list %s", n ? w->path : "the workspace");
	}
	w->depth++;
	if (n && l.has_git)
		r = note(w, n, "submodule_git");
	if (!r)
		r = rules_enter(w->o->rules, fd, w->path, n, l.has_git, w->e);
	if (!r) {
		r = walk_items(w, fd, n, &l, mode);
		rules_leave(w->o->rules);
	}
	w->depth--;
	listing_done(&l);
	return r;
}

int select_walk(struct select_opts *o, struct err *e)
{
	struct walk w = {.o = o, .e = e, .list_buf = malloc(LIST_PIECE)};
	_cleanup_fd_ int fd = openat(o->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (!w.list_buf || fd < 0) {
		r = err_sys(e, fd < 0 ? errno : ENOMEM, "the workspace cannot be listed");
		free(w.list_buf);
		return r;
	}
	r = walk_dir(&w, fd, 0, RULES_NORMAL);
	free(w.list_buf);
	return r < 0 ? r : 0;
}
