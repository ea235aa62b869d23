/* A part of a change set that waits, for one apply, and what is left of it afterwards; see review.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sync/pending.h"
#include "sync/review_internal.h"

/* Directories that entries of a part need, as hashes: one too many does no harm. */
struct needed {
	uint64_t *v; /* owned; 0: free */
	size_t n, cap;
};

static uint64_t hash_path(const char *path, size_t n)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)path[i]) * UINT64_C(1099511628211);
	return h ? h : 1;
}

static uint64_t *slot(struct needed *d, uint64_t h)
{
	size_t i = h & (d->cap - 1);

	while (d->v[i] && d->v[i] != h)
		i = (i + 1) & (d->cap - 1);
	return &d->v[i];
}

static int need(struct needed *d, uint64_t h)
{
	uint64_t *s;

	if (2 * d->n >= d->cap) {
		struct needed more = {.cap = d->cap ? d->cap * 2 : 256};

		more.v = calloc(more.cap, sizeof(*more.v));
		if (!more.v)
			return -ENOMEM;
		for (size_t i = 0; i < d->cap; i++)
			if (d->v[i])
				*slot(&more, d->v[i]) = d->v[i];
		more.n = d->n;
		free(d->v);
		*d = more;
	}
	s = slot(d, h);
	d->n += !*s;
	*s = h;
	return 0;
}

struct part {
	bool (*match)(void *arg, const char *path);
	void *arg;
	struct needed dirs;
	uint64_t taken;
};

static int collect_needed(struct review *r, struct part *p)
{
	int k = 0;

	for (uint64_t i = 0; k == 0 && i < chlist_count(r->all); i++) {
		k = chlist_get(r->all, i, &r->c);
		if (k < 0 || r->c.kind == MK_ABSENT || !p->match(p->arg, r->c.path))
			continue;
		for (size_t n = r->c.path_len; k == 0 && n-- > 0;)
			if (r->c.path[n] == '/')
				k = need(&p->dirs, hash_path(r->c.path, n));
	}
	return k;
}

/* A deletion below something that takes the whole directory's place is said by that already. */
static int said_above(struct review *r, const struct part *p, const struct change *c)
{
	int k = 0;

	for (size_t i = c->path_len; k == 0 && i-- > 0;) {
		if (c->path[i] != '/')
			continue;
		k = chlist_find(r->all, c->path, i, &r->other);
		if (k > 0)
			k = (r->other.kind == MK_FILE || r->other.kind == MK_LINK) &&
			    p->match(p->arg, r->other.path);
	}
	return k;
}

/* A directory that was one before is there without the change of its mode, which nobody asked for. */
static bool is_needed(struct review *r, struct part *p, const struct change *c)
{
	return c->kind == MK_DIR && p->dirs.n && *slot(&p->dirs, hash_path(c->path, c->path_len)) &&
	       !(r->m && manifest_find(r->m, c->path, c->path_len, &r->b) > 0 && r->b.kind == 'd');
}

static int put_part(struct review *r, struct part *p, struct pending_writer *w)
{
	int k = 0;

	for (uint64_t i = 0; k == 0 && i < chlist_count(r->list); i++) {
		k = chlist_get(r->list, i, &r->c);
		if (k == 0 && r->c.kind == MK_UNKNOWN) /* nothing below it is known to be gone */
			k = pending_put(w, &r->c);
	}
	for (uint64_t i = 0; k == 0 && i < chlist_count(r->all); i++) {
		bool taken;

		k = chlist_get(r->all, i, &r->c);
		if (k < 0)
			break;
		taken = p->match(p->arg, r->c.path);
		p->taken += taken;
		if (!taken && !is_needed(r, p, &r->c))
			continue;
		if (r->c.kind == MK_ABSENT && r->c.flags & CH_OPAQUE)
			r->c.flags |= CH_ALONE;
		r->c.flags &= (uint8_t)~CH_OPAQUE;
		k = r->c.kind == MK_ABSENT ? said_above(r, p, &r->c) : 0;
		if (k == 0)
			k = pending_put(w, &r->c);
		k = k > 0 ? 0 : k;
	}
	return k;
}

static int write_part(struct review *r, struct part *p, const char *name, struct err *e)
{
	struct pending_writer w;
	_cleanup_fd_ int fd = -1;
	int k = collect_needed(r, p), s;

	if (k == 0) {
		fd = openat(r->run_fd, PENDING_LIST ".new",
			    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
		k = fd < 0 ? -errno : 0;
	}
	if (k == 0) {
		pending_begin(&w, fd);
		k = put_part(r, p, &w);
		s = pending_end(&w);
		k = k < 0 ? k : s;
	}
	if (k == 0 && renameat(r->run_fd, PENDING_LIST ".new", r->run_fd, name) < 0)
		k = -errno;
	free(p->dirs.v);
	return k < 0 ? err_sys(e, -k, "write %s of the run", name) : 0;
}

int review_select(struct review *r, bool (*match)(void *arg, const char *path), void *arg,
		  uint64_t *ret_n, struct err *e)
{
	struct part p = {.match = match, .arg = arg};
	int k = 0;

	if (!match && unlinkat(r->run_fd, PENDING_SELECT, 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "remove " PENDING_SELECT " of the run");
	if (match)
		k = write_part(r, &p, PENDING_SELECT, e);
	*ret_n = match ? p.taken : chlist_count(r->all);
	return k;
}

int review_keep(struct review *r, bool (*left)(void *arg, const char *path), void *arg,
		uint64_t *ret_n, struct err *e)
{
	struct part p = {.match = left, .arg = arg};
	int k = write_part(r, &p, PENDING_LIST, e);

	*ret_n = p.taken;
	return k;
}
