/* A difference per side (lines.h), then one sweep over both edit lists. */
#include "sync/merge3.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "sync/lines.h"

struct side {
	const struct lines *t;
	const struct line_hunk *h, *end;
	uint32_t from, to; /* lines of the side that stand for the region */
	int64_t shift;	   /* side line minus base line, after the hunks used up so far */
};

/* Takes into the region every hunk that starts in it or touches it. True if it grew. */
static bool absorb(struct side *s, uint32_t lo, uint32_t *hi, bool *used)
{
	bool grew = false;

	while (s->h < s->end && s->h->b <= *hi && s->h->b >= lo) {
		if (s->h->b + s->h->nb > *hi)
			*hi = s->h->b + s->h->nb;
		s->shift += (int64_t)s->h->ns - s->h->nb;
		s->h++;
		grew = *used = true;
	}
	return grew;
}

static bool same_lines(const struct side *x, const struct side *y)
{
	uint32_t a = x->t->off[x->from], b = y->t->off[y->from], n = x->t->off[x->to] - a;

	return n == y->t->off[y->to] - b && !memcmp(x->t->p + a, y->t->p + b, n);
}

static int put_lines(const struct lines *t, uint32_t from, uint32_t to, merge3_emit emit, void *arg)
{
	if (!emit || t->off[from] == t->off[to])
		return 0;
	return emit(arg, t->p + t->off[from], t->off[to] - t->off[from]);
}

/* One sweep in base order; emit NULL: only judge. */
static int sweep(const struct lines *base, struct side x, struct side y, merge3_emit emit,
		 void *arg)
{
	uint32_t at = 0;
	int r;

	while (x.h < x.end || y.h < y.end) {
		bool in_x = false, in_y = false, grew = true;
		uint32_t lo, hi;

		lo = x.h < x.end ? x.h->b : UINT32_MAX;
		if (y.h < y.end && y.h->b < lo)
			lo = y.h->b;
		hi = lo;
		x.from = (uint32_t)(lo + x.shift);
		y.from = (uint32_t)(lo + y.shift);
		while (grew) {
			grew = absorb(&x, lo, &hi, &in_x);
			grew |= absorb(&y, lo, &hi, &in_y);
		}
		x.to = (uint32_t)(hi + x.shift);
		y.to = (uint32_t)(hi + y.shift);
		if (in_x && in_y && !same_lines(&x, &y))
			return MERGE3_CONFLICT;
		r = put_lines(base, at, lo, emit, arg);
		if (r == 0)
			r = in_x ? put_lines(x.t, x.from, x.to, emit, arg)
				 : put_lines(y.t, y.from, y.to, emit, arg);
		if (r)
			return r;
		at = hi;
	}
	return put_lines(base, at, base->n, emit, arg);
}

bool merge3_is_text(struct view v)
{
	return !v.n || !memchr(v.p, '\0', v.n);
}

int merge3(struct view base, struct view ours, struct view theirs, merge3_emit emit, void *arg)
{
	struct view in[3] = {base, ours, theirs};
	struct lines t[3] = {{0}};
	struct line_hunks h[2] = {{0}};
	int r = 0;

	for (int i = 0; i < 3 && r == 0; i++)
		r = in[i].n > MERGE_TEXT_MAX ? MERGE3_TOO_BIG
		    : merge3_is_text(in[i])  ? 0
					     : MERGE3_NOT_TEXT;
	for (int i = 0; i < 3 && r == 0; i++)
		r = lines_init(&t[i], in[i], MERGE_LINES_MAX);
	for (int i = 0; i < 2 && r == 0; i++)
		r = lines_compare(&t[0], &t[i + 1], 0, &h[i]);
	if (r == -E2BIG)
		r = MERGE3_TOO_BIG;
	if (r == 0) {
		struct side x = {.t = &t[1], .h = h[0].v, .end = h[0].v + h[0].n};
		struct side y = {.t = &t[2], .h = h[1].v, .end = h[1].v + h[1].n};

		r = sweep(&t[0], x, y, NULL, NULL);
		if (r == 0)
			r = sweep(&t[0], x, y, emit, arg);
	}
	for (int i = 0; i < 3; i++)
		lines_done(&t[i]);
	free(h[0].v);
	free(h[1].v);
	return r;
}
