#include "sync/diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"

#define TEXT_CHUNK (256 << 10)

_Static_assert(sizeof(struct layer_item) <= SYNC_ENTRY_MEMORY, "limits.h says what an entry takes");

struct diff_text {
	struct diff_text *next;
	size_t used, cap;
	char data[];
};

static const char *keep(struct diff *d, const char *p, size_t n)
{
	struct diff_text *t = d->text;
	char *to;

	if (!t || t->cap - t->used < n + 1) {
		size_t cap = n + 1 > TEXT_CHUNK ? n + 1 : TEXT_CHUNK;

		t = malloc(sizeof(*t) + cap);
		if (!t)
			return NULL;
		*t = (struct diff_text){.next = d->text, .cap = cap};
		d->text = t;
	}
	to = t->data + t->used;
	memcpy(to, p, n);
	to[n] = '\0';
	t->used += n + 1;
	return to;
}

static struct layer_item *append(struct diff *d, const char *path, size_t n)
{
	struct layer_item *it;

	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 256;

		it = realloc(d->items, cap * sizeof(*it));
		if (!it)
			return NULL;
		d->items = it;
		d->cap = cap;
	}
	it = &d->items[d->n];
	*it = (struct layer_item){
	    .path_len = (uint32_t)n, .old_from = d->cur_pos, .old_to = d->cur_pos};
	it->path = keep(d, path, n);
	if (!it->path)
		return NULL;
	d->n++;
	return it;
}

/* An entry is decoded only where it is asked for: most are the same as in the workspace. */
static void advance(struct diff *d)
{
	d->cur_pos = d->pos;
	d->have = d->loaded = false;
	if (d->old)
		manifest_pass(d->old, &d->passed, d->pos);
}

static int load(struct diff *d, struct err *e)
{
	int r;

	if (d->loaded)
		return 0;
	r = d->old ? manifest_next(d->old, &d->pos, &d->cur) : 0;
	d->have = r == 1;
	d->loaded = true;
	return r < 0 ? err_set(e, ERR_PROTOCOL, "the manifest of the last sync in is broken") : 0;
}

int diff_init(struct diff *d, const struct manifest *old, struct err *e)
{
	*d = (struct diff){.old = old};
	return load(d, e);
}

void diff_done(struct diff *d)
{
	while (d->text) {
		struct diff_text *t = d->text;

		d->text = t->next;
		free(t);
	}
	free(d->items);
	d->items = NULL;
	d->n = d->cap = 0;
}

static int oom(struct err *e)
{
	return err_sys(e, ENOMEM, "list of changes");
}

static void was(const struct diff *d, struct layer_item *it)
{
	it->was_there = true;
	it->old_kind = d->cur.kind;
	it->old_size = d->cur.size;
	it->old_to = d->pos;
}

/* The current entry of the older manifest is not in the workspace any more. */
static int went_away(struct diff *d, struct err *e)
{
	struct layer_item *it = append(d, d->cur.path, d->cur.path_len);

	if (!it)
		return oom(e);
	it->kind = d->cur.kind;
	it->op = LAYER_WHITEOUT;
	was(d, it);
	advance(d);
	return load(d, e);
}

/* The same as unchanged(), without decoding the entry; false may also mean: look closer. */
static bool plainly_unchanged(struct diff *d, const struct select_entry *s)
{
	const struct manifest_stat st = {
	    .kind = s->kind,
	    .mode = s->mode,
	    .size = s->size,
	    .mtime_ns = s->mtime_ns,
	    .ctime_ns = s->ctime_ns,
	    .ino = s->ino,
	    .path = s->path,
	    .path_len = s->path_len,
	};

	return d->old && !d->loaded && s->kind != 'l' && manifest_skip_same(d->old, &d->pos, &st);
}

static bool same_content_likely(const struct manifest_entry *m, const struct select_entry *s)
{
	return m->size == s->size && m->mtime_ns == s->mtime_ns && m->mode == s->mode;
}

static bool unchanged(const struct manifest_entry *m, const struct select_entry *s)
{
	if (m->kind != s->kind)
		return false;
	if (s->kind == 'l')
		return m->target_len == s->target_len &&
		       memcmp(m->target, s->target, s->target_len) == 0;
	if (s->kind == 'd')
		return m->mode == s->mode;
	return same_content_likely(m, s) && m->ctime_ns == s->ctime_ns && m->ino == s->ino;
}

int diff_add(struct diff *d, const struct select_entry *s, struct err *e)
{
	struct layer_item *it;
	int c = 1, r;

	if (plainly_unchanged(d, s)) {
		d->same++;
		advance(d);
		return 0;
	}
	r = load(d, e);
	if (r < 0)
		return r;
	while (d->have) {
		c = manifest_path_cmp(d->cur.path, d->cur.path_len, s->path, s->path_len);
		if (c >= 0)
			break;
		r = went_away(d, e);
		if (r < 0)
			return r;
	}
	if (d->have && c == 0 && unchanged(&d->cur, s)) {
		d->same++;
		advance(d);
		return 0;
	}
	it = append(d, s->path, s->path_len);
	if (!it)
		return oom(e);
	it->kind = s->kind;
	it->mode = s->mode;
	it->size = s->size;
	it->ino = s->ino;
	it->mtime_ns = s->mtime_ns;
	it->ctime_ns = s->ctime_ns;
	if (s->kind == 'l') {
		it->target = keep(d, s->target, s->target_len);
		it->target_len = (uint32_t)s->target_len;
		if (!it->target)
			return oom(e);
	}
	if (!d->have || c != 0)
		return 0;
	was(d, it);
	if (d->cur.kind == 'f' && s->kind == 'f' && same_content_likely(&d->cur, s)) {
		it->op = LAYER_VERIFY;
		it->layer = d->cur.layer;
		memcpy(it->hash, d->cur.hash, sizeof(it->hash));
	}
	advance(d);
	return 0;
}

static const struct layer_item *find(const struct diff *d, const char *path, size_t n)
{
	size_t lo = 0, hi = d->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct layer_item *it = &d->items[mid];
		int c = manifest_path_cmp(it->path, it->path_len, path, n);

		if (!c)
			return it;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/*
 * A path below a directory that went away or became something else needs no whiteout: the one on
 * the directory, or what is there now, hides it.
 */
static bool hidden_by_parent(const struct diff *d, const struct layer_item *it)
{
	const char *slash = memrchr(it->path, '/', it->path_len);
	const struct layer_item *up = slash ? find(d, it->path, (size_t)(slash - it->path)) : NULL;

	return up && (up->op == LAYER_WHITEOUT || up->kind != 'd');
}

int diff_finish(struct diff *d, struct err *e)
{
	int r = load(d, e);

	while (!r && d->have)
		r = went_away(d, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < d->n; i++)
		if (d->items[i].op == LAYER_WHITEOUT && hidden_by_parent(d, &d->items[i]))
			d->items[i].outcome = LAYER_GONE;
	return 0;
}

static int from_manifest(struct diff *to, const struct manifest_entry *m)
{
	struct layer_item *it = append(to, m->path, m->path_len);

	if (!it)
		return -ENOMEM;
	it->kind = m->kind;
	it->op = m->kind == 'f' ? LAYER_REUSE : LAYER_TAKE;
	it->mode = m->mode;
	it->layer = m->layer;
	it->size = m->size;
	it->ino = m->ino;
	it->mtime_ns = m->mtime_ns;
	it->ctime_ns = m->ctime_ns;
	memcpy(it->hash, m->hash, sizeof(it->hash));
	if (m->kind == 'l') {
		it->target = keep(to, m->target, m->target_len);
		it->target_len = (uint32_t)m->target_len;
	}
	return m->kind == 'l' && !it->target ? -ENOMEM : 0;
}

static int take_over(struct diff *to, const struct layer_item *it)
{
	struct layer_item *n;

	if (it->op == LAYER_WHITEOUT)
		return 0;
	n = append(to, it->path, it->path_len);
	if (!n)
		return -ENOMEM;
	n->kind = it->kind;
	n->mode = it->mode;
	n->size = it->size;
	n->ino = it->ino;
	n->mtime_ns = it->mtime_ns;
	n->ctime_ns = it->ctime_ns;
	n->target_len = it->target_len;
	if (it->target)
		n->target = keep(to, it->target, it->target_len);
	return n->kind == 'l' && !n->target ? -ENOMEM : 0;
}

int diff_fill(struct diff *d, struct err *e)
{
	struct diff full = {0};
	_cleanup_free_ struct manifest_entry *m = malloc(sizeof(*m));
	size_t pos = 0, i = 0;
	int r = m ? 0 : -ENOMEM;

	while (!r && d->old && manifest_next(d->old, &pos, m) == 1) {
		int c = -1;

		while (!r && i < d->n &&
		       (c = manifest_path_cmp(d->items[i].path, d->items[i].path_len, m->path,
					      m->path_len)) < 0)
			r = take_over(&full, &d->items[i++]);
		if (!r && (i == d->n || c != 0))
			r = from_manifest(&full, m);
	}
	while (!r && i < d->n)
		r = take_over(&full, &d->items[i++]);
	if (r < 0) {
		diff_done(&full);
		return oom(e);
	}
	diff_done(d);
	full.same = d->same;
	*d = full;
	return 0;
}

struct out {
	struct manifest_writer w;
	struct manifest_entry m;
	struct diff_totals *t;
};

static void tally(struct diff_totals *t, char kind, uint64_t size, int sign)
{
	uint64_t one = (uint64_t)sign; /* -1 wraps to a subtraction */

	if (kind == 'f') {
		t->files += one;
		t->bytes += one * size;
	} else if (kind == 'd') {
		t->dirs += one;
	} else {
		t->links += one;
	}
}

static int put_item(struct out *o, const struct layer_item *it, struct err *e)
{
	struct manifest_entry *m = &o->m;

	if (it->op == LAYER_WHITEOUT || it->outcome == LAYER_GONE)
		return 0;
	memset(m, 0, offsetof(struct manifest_entry, path));
	m->kind = it->kind;
	m->mode = it->mode;
	m->layer = it->layer;
	m->size = it->size;
	m->ino = it->ino;
	m->mtime_ns = it->mtime_ns;
	m->ctime_ns = it->ctime_ns;
	memcpy(m->hash, it->hash, sizeof(m->hash));
	m->path_len = it->path_len;
	memcpy(m->path, it->path, it->path_len + 1);
	m->target_len = it->target_len;
	if (it->target)
		memcpy(m->target, it->target, it->target_len + 1);
	tally(o->t, m->kind, m->size, 1);
	return manifest_writer_add(&o->w, m, e);
}

static int merge(const struct diff *d, struct out *o, struct err *e)
{
	uint64_t left = d->old ? manifest_count(d->old) : 0;
	size_t pos = 0;
	int r = 0;

	for (size_t i = 0; i < d->n && !r; i++) {
		const struct layer_item *it = &d->items[i];

		if (d->old)
			r = manifest_writer_copy(&o->w, d->old, pos, it->old_from, 0, e);
		pos = it->old_to;
		if (d->old && it->was_there) {
			tally(o->t, it->old_kind, it->old_size, -1);
			left--;
		}
		if (!r)
			r = put_item(o, it, e);
	}
	if (!r && d->old)
		r = manifest_writer_copy(&o->w, d->old, pos, SIZE_MAX, left, e);
	return r;
}

int diff_manifest(const struct diff *d, int fd, struct diff_totals *t, struct err *e)
{
	struct out *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return oom(e);
	if (!d->old)
		*t = (struct diff_totals){0};
	o->t = t;
	r = manifest_writer_init(&o->w, fd, e);
	if (!r)
		r = merge(d, o, e);
	if (!r)
		r = manifest_writer_finish(&o->w, e);
	manifest_writer_done(&o->w);
	free(o);
	return r;
}
