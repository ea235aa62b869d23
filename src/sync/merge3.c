/* Myers' linear-space difference per side, then one sweep over both edit lists. */
#include "sync/merge3.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"

struct text {
	const char *p;
	size_t bytes;
	uint32_t n;	/* lines */
	uint32_t *off;	/* n + 1 offsets */
	uint32_t *hash; /* n */
};

struct hunk { /* base lines [b, b + nb) became side lines [s, s + ns) */
	uint32_t b, nb, s, ns;
};

struct hunks {
	struct hunk *v;
	size_t n, cap;
};

struct diff {
	const struct text *a, *b;
	uint8_t *del, *ins; /* a line of a, of b, is not in the common sequence */
	int32_t *vf, *vb;   /* furthest points, forward and backward; index k + HALF */
};

#define HALF (MERGE_EDITS_MAX / 2 + 2)

static void text_done(struct text *t)
{
	free(t->off);
	free(t->hash);
}

static int text_init(struct text *t, struct view v)
{
	size_t n = 0, at = 0;

	*t = (struct text){.p = v.p, .bytes = v.n};
	for (const char *q = v.p; q && q < v.p + v.n; n++) {
		const char *nl = memchr(q, '\n', (size_t)(v.p + v.n - q));

		q = nl ? nl + 1 : v.p + v.n;
	}
	if (n > MERGE_LINES_MAX)
		return MERGE3_TOO_BIG;
	t->off = malloc((n + 1) * sizeof(*t->off));
	t->hash = malloc((n + 1) * sizeof(*t->hash));
	if (!t->off || !t->hash)
		return -ENOMEM;
	t->n = (uint32_t)n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t h = 2166136261u; /* FNV-1a; equality is always checked on the bytes */

		t->off[i] = (uint32_t)at;
		do {
			h = (h ^ (uint8_t)v.p[at]) * 16777619u;
		} while (v.p[at++] != '\n' && at < v.n);
		t->hash[i] = h;
	}
	t->off[n] = (uint32_t)at;
	return 0;
}

static bool eq(const struct text *a, uint32_t i, const struct text *b, uint32_t j)
{
	uint32_t n = a->off[i + 1] - a->off[i];

	return a->hash[i] == b->hash[j] && n == b->off[j + 1] - b->off[j] &&
	       !memcmp(a->p + a->off[i], b->p + b->off[j], n);
}

struct box { /* lines [a, a + n) against [b, b + m) */
	uint32_t a, n, b, m;
};

/*
 * One half step: extends every diagonal of `v` by one edit. Returns true with the snake when it
 * meets the other direction's furthest points `w`.
 */
static bool half_step(struct diff *d, struct box x, int32_t e, bool fwd, struct box *snake)
{
	int32_t n = (int32_t)x.n, m = (int32_t)x.m, delta = n - m;
	int32_t *v = (fwd ? d->vf : d->vb) + HALF, *w = (fwd ? d->vb : d->vf) + HALF;
	int32_t reach = fwd ? e - 1 : e;
	bool odd = delta & 1;

	for (int32_t k = -e; k <= e; k += 2) {
		int32_t px, py, qx, qy;

		if (k < -m || k > n) { /* outside the grid: a value that no neighbour prefers */
			v[k] = -1;
			continue;
		}
		px = k == -e || (k != e && v[k - 1] < v[k + 1]) ? v[k + 1] : v[k - 1] + 1;
		py = px - k;
		qx = px;
		qy = py;
		while (qx < n && qy < m &&
		       (fwd ? eq(d->a, x.a + (uint32_t)qx, d->b, x.b + (uint32_t)qy)
			    : eq(d->a, x.a + (uint32_t)(n - 1 - qx), d->b,
				 x.b + (uint32_t)(m - 1 - qy)))) {
			qx++;
			qy++;
		}
		v[k] = qx;
		if (odd != fwd || delta - k < -reach || delta - k > reach || w[delta - k] < 0)
			continue;
		if (qx + w[delta - k] < n)
			continue;
		*snake = fwd ? (struct box){(uint32_t)px, (uint32_t)(qx - px), (uint32_t)py, 0}
			     : (struct box){(uint32_t)(n - qx), (uint32_t)(qx - px),
					    (uint32_t)(m - qy), 0};
		return true;
	}
	return false;
}

/* Marks what differs. 0 or MERGE3_TOO_BIG. Recursion is as deep as log2 of the edits. */
static int mark(struct diff *d, struct box x)
{
	struct box snake = {0};
	bool met = false;
	int r;

	while (x.n && x.m && eq(d->a, x.a, d->b, x.b)) {
		x.a++, x.b++;
		x.n--, x.m--;
	}
	while (x.n && x.m && eq(d->a, x.a + x.n - 1, d->b, x.b + x.m - 1))
		x.n--, x.m--;
	if (!x.n || !x.m) {
		memset(d->del + x.a, 1, x.n);
		memset(d->ins + x.b, 1, x.m);
		return 0;
	}
	d->vf[HALF + 1] = d->vb[HALF + 1] = 0;
	for (int32_t e = 0; !met; e++) {
		if (e > MERGE_EDITS_MAX / 2)
			return MERGE3_TOO_BIG;
		met = half_step(d, x, e, true, &snake) || half_step(d, x, e, false, &snake);
	}
	r = mark(d, (struct box){x.a, snake.a, x.b, snake.b});
	if (r)
		return r;
	snake.a += snake.n;
	snake.b += snake.n;
	return mark(d, (struct box){x.a + snake.a, x.n - snake.a, x.b + snake.b, x.m - snake.b});
}

static int collect(const struct diff *d, struct hunks *out)
{
	uint32_t i = 0, j = 0;

	while (i < d->a->n || j < d->b->n) {
		struct hunk h = {i, 0, j, 0};

		while (i < d->a->n && d->del[i])
			i++, h.nb++;
		while (j < d->b->n && d->ins[j])
			j++, h.ns++;
		if (!h.nb && !h.ns) {
			i++;
			j++;
			continue;
		}
		if (out->n == out->cap) {
			size_t cap = out->cap ? out->cap * 2 : 64;
			struct hunk *v = reallocarray(out->v, cap, sizeof(*v));

			if (!v)
				return -ENOMEM;
			out->v = v;
			out->cap = cap;
		}
		out->v[out->n++] = h;
	}
	return 0;
}

static int compare(const struct text *base, const struct text *side, struct hunks *out)
{
	_cleanup_free_ uint8_t *marks = calloc((size_t)base->n + side->n + 2, 1);
	_cleanup_free_ int32_t *v = calloc(4 * (size_t)HALF + 4, sizeof(*v));
	struct diff d = {.a = base, .b = side, .del = marks, .vf = v};
	int r;

	if (!marks || !v)
		return -ENOMEM;
	d.ins = marks + base->n + 1;
	d.vb = v + 2 * HALF + 2;
	r = mark(&d, (struct box){0, base->n, 0, side->n});
	return r ? r : collect(&d, out);
}

struct side {
	const struct text *t;
	const struct hunk *h, *end;
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

static int put_lines(const struct text *t, uint32_t from, uint32_t to, merge3_emit emit, void *arg)
{
	if (!emit || t->off[from] == t->off[to])
		return 0;
	return emit(arg, t->p + t->off[from], t->off[to] - t->off[from]);
}

/* One sweep in base order; emit NULL: only judge. */
static int sweep(const struct text *base, struct side x, struct side y, merge3_emit emit, void *arg)
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
	struct text t[3] = {{0}};
	struct hunks h[2] = {{0}};
	int r = 0;

	for (int i = 0; i < 3 && r == 0; i++)
		r = in[i].n > MERGE_TEXT_MAX ? MERGE3_TOO_BIG
		    : merge3_is_text(in[i])  ? 0
					     : MERGE3_NOT_TEXT;
	for (int i = 0; i < 3 && r == 0; i++)
		r = text_init(&t[i], in[i]);
	for (int i = 0; i < 2 && r == 0; i++)
		r = compare(&t[0], &t[i + 1], &h[i]);
	if (r == 0) {
		struct side x = {.t = &t[1], .h = h[0].v, .end = h[0].v + h[0].n};
		struct side y = {.t = &t[2], .h = h[1].v, .end = h[1].v + h[1].n};

		r = sweep(&t[0], x, y, NULL, NULL);
		if (r == 0)
			r = sweep(&t[0], x, y, emit, arg);
	}
	for (int i = 0; i < 3; i++)
		text_done(&t[i]);
	free(h[0].v);
	free(h[1].v);
	return r;
}
