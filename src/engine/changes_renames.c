/* Which of the deleted and added files of a set that waits are one that was renamed, as git finds them; see changes.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "engine/changes_internal.h"

static bool may_be_old(const struct shown *s)
{
	return s->letter == 'D' && s->a.kind == MK_FILE && s->a.size && !s->flags;
}

static bool may_be_new(const struct shown *s)
{
	return s->letter == 'A' && s->b.kind == MK_FILE && s->b.size &&
	       !(s->flags & ~(unsigned)CHANGE_HOST_EXEC);
}

static int pair(struct shown *d, struct shown *a, unsigned similarity)
{
	a->from = strdup(d->path);
	if (!a->from)
		return -ENOMEM;
	a->a = d->a;
	a->letter = 'R';
	a->similarity = similarity;
	d->letter = '\0'; /* taken out later */
	return 0;
}

static int by_bytes(const void *x, const void *y)
{
	const struct shown *const *a = x, *const *b = y;
	int r = memcmp((*a)->a.hash, (*b)->a.hash, MANIFEST_HASH);

	return r ? r : strcmp((*a)->path, (*b)->path);
}

/* The first of the sorted old files that is not below these bytes. */
static size_t first_of(struct shown *const *old, size_t n, const uint8_t *hash)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (memcmp(old[mid]->a.hash, hash, MANIFEST_HASH) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Files of equal bytes, the same last name first. */
static int exact(struct changes *c, size_t *ret_old, size_t *ret_new)
{
	_cleanup_free_ struct shown **old = calloc(c->n + 1, sizeof(*old));
	size_t n = 0;
	int r = old ? 0 : -ENOMEM;

	*ret_old = *ret_new = 0;
	for (size_t i = 0; r == 0 && i < c->n; i++)
		if (may_be_old(&c->v[i]))
			old[n++] = &c->v[i];
	if (n)
		qsort(old, n, sizeof(struct shown *), by_bytes);
	for (size_t i = 0; r == 0 && i < c->n; i++) {
		struct shown *best = NULL;
		const uint8_t *hash = c->v[i].b.hash;
		size_t looked = 0;

		if (!may_be_new(&c->v[i]))
			continue;
		for (size_t k = first_of(old, n, hash);
		     k < n && !memcmp(old[k]->a.hash, hash, MANIFEST_HASH) &&
		     looked++ < DIFF_RENAMES_MAX;
		     k++)
			if (may_be_old(old[k]) && (!best || strcmp(path_base(old[k]->path),
								   path_base(c->v[i].path)) == 0))
				best = old[k];
		++*ret_new;
		if (best)
			r = pair(best, &c->v[i], 100);
	}
	for (size_t i = 0; i < c->n; i++)
		*ret_old += may_be_old(&c->v[i]);
	return r;
}

struct texts {
	size_t at;
	struct buf b;
};

static void read_old(struct changes *c, struct texts *t, struct review_entry *en)
{
	uint64_t size;

	buf_init(&t->b, DIFF_RENAME_TEXT_MAX + (64 << 10) + 1);
	if (review_sent(c->review, c->v[t->at].path, en) < 0 ||
	    review_read(c->review, en, REVIEW_SENT, DIFF_RENAME_TEXT_MAX, &t->b, &size) != 1)
		buf_reset(&t->b);
}

static int similar(struct changes *c, struct err *e)
{
	_cleanup_free_ struct texts *old = calloc(DIFF_RENAMES_MAX, sizeof(*old));
	_cleanup_free_ struct review_entry *en = malloc(sizeof(*en));
	_cleanup_buf_ struct buf none = BUF_INIT(DIFF_TEXT_MAX + (64 << 10) + 1);
	_cleanup_buf_ struct buf now = BUF_INIT(DIFF_TEXT_MAX + (64 << 10) + 1);
	struct patch_file f;
	size_t n = 0;
	int r = old && en ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < c->n; i++) {
		if (!may_be_old(&c->v[i]) || c->v[i].a.size > DIFF_RENAME_TEXT_MAX)
			continue;
		old[n].at = i;
		read_old(c, &old[n++], en);
	}
	for (size_t i = 0; r == 0 && i < c->n; i++) {
		struct shown *best = NULL;
		unsigned most = 49;

		if (!may_be_new(&c->v[i]) || c->v[i].b.size > DIFF_RENAME_TEXT_MAX)
			continue;
		buf_reset(&now);
		r = changes_sides(c, &c->v[i], &none, &now, &f, e);
		for (size_t k = 0; r == 0 && k < n; k++) {
			struct view v = {buf_text(&old[k].b), old[k].b.len};
			unsigned s;

			if (!may_be_old(&c->v[old[k].at]) || v.n > 2 * now.len || now.len > 2 * v.n)
				continue;
			s = patch_similarity(v, (struct view){buf_text(&now), now.len});
			if (s > most) {
				most = s;
				best = &c->v[old[k].at];
			}
		}
		if (r == 0 && best)
			r = pair(best, &c->v[i], most > 99 ? 99 : most);
	}
	for (size_t k = 0; k < n; k++)
		buf_done(&old[k].b);
	return r;
}

/* As git shows them: only in a set that waits, where both hashes are known. */
int changes_find_renames(struct changes *c, struct err *e)
{
	size_t n_old, n_new, to = 0;
	int r = exact(c, &n_old, &n_new);

	if (r == 0 && n_old && n_new && n_old <= DIFF_RENAMES_MAX && n_new <= DIFF_RENAMES_MAX)
		r = similar(c, e);
	for (size_t i = 0; i < c->n; i++) {
		if (c->v[i].letter || c->v[i].flags)
			c->v[to++] = c->v[i];
		else
			changes_shown_done(&c->v[i]);
	}
	c->n = to;
	return r < 0 ? err_set(e, ERR_NOMEM, "out of memory") : 0;
}
