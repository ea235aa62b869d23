/* Lines of a text, and Myers' linear-space difference of two. */
#include "sync/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"

struct myers {
	const struct lines *a, *b;
	uint8_t *del, *ins; /* a line of a, of b, is not in the common sequence */
	int32_t *vf, *vb;   /* furthest points, forward and backward; index k + HALF */
	uint64_t work;	    /* diagonals and lines that may still be looked at */
	bool whole;	    /* beyond the bounds: what is left is different as a whole */
};

#define HALF (MERGE_EDITS_MAX / 2 + 2)

void lines_done(struct lines *t)
{
	free(t->off);
	free(t->hash);
}

int lines_init(struct lines *t, struct view v, uint32_t max)
{
	size_t n = 0, at = 0;

	*t = (struct lines){.p = v.p, .bytes = v.n};
	for (const char *q = v.p; q && q < v.p + v.n; n++) {
		const char *nl = memchr(q, '\n', (size_t)(v.p + v.n - q));

		q = nl ? nl + 1 : v.p + v.n;
	}
	if (n > max)
		return -E2BIG;
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

bool lines_eq(const struct lines *a, uint32_t i, const struct lines *b, uint32_t j)
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
static bool half_step(struct myers *d, struct box x, int32_t e, bool fwd, struct box *snake)
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
		       (fwd ? lines_eq(d->a, x.a + (uint32_t)qx, d->b, x.b + (uint32_t)qy)
			    : lines_eq(d->a, x.a + (uint32_t)(n - 1 - qx), d->b,
				       x.b + (uint32_t)(m - 1 - qy)))) {
			qx++;
			qy++;
		}
		d->work -= d->work < (uint64_t)(qx - px) + 1 ? d->work : (uint64_t)(qx - px) + 1;
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

static int all_differs(struct myers *d, struct box x)
{
	memset(d->del + x.a, 1, x.n);
	memset(d->ins + x.b, 1, x.m);
	return 0;
}

/* Marks what differs. 0 or -E2BIG. Recursion is as deep as log2 of the edits. */
static int mark(struct myers *d, struct box x)
{
	struct box snake = {0};
	bool met = false;
	int r;

	while (x.n && x.m && lines_eq(d->a, x.a, d->b, x.b)) {
		x.a++, x.b++;
		x.n--, x.m--;
	}
	while (x.n && x.m && lines_eq(d->a, x.a + x.n - 1, d->b, x.b + x.m - 1))
		x.n--, x.m--;
	if (!x.n || !x.m)
		return all_differs(d, x);
	d->vf[HALF + 1] = d->vb[HALF + 1] = 0;
	for (int32_t e = 0; !met; e++) {
		if (e > MERGE_EDITS_MAX / 2 || !d->work)
			return d->whole ? all_differs(d, x) : -E2BIG;
		met = half_step(d, x, e, true, &snake) || half_step(d, x, e, false, &snake);
	}
	r = mark(d, (struct box){x.a, snake.a, x.b, snake.b});
	if (r)
		return r;
	snake.a += snake.n;
	snake.b += snake.n;
	return mark(d, (struct box){x.a + snake.a, x.n - snake.a, x.b + snake.b, x.m - snake.b});
}

static int collect(const struct myers *d, struct line_hunks *out)
{
	uint32_t i = 0, j = 0;

	while (i < d->a->n || j < d->b->n) {
		struct line_hunk h = {i, 0, j, 0};

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
			struct line_hunk *v = reallocarray(out->v, cap, sizeof(*v));

			if (!v)
				return -ENOMEM;
			out->v = v;
			out->cap = cap;
		}
		out->v[out->n++] = h;
	}
	return 0;
}

int lines_compare(const struct lines *base, const struct lines *side, uint64_t work,
		  struct line_hunks *out)
{
	_cleanup_free_ uint8_t *marks = calloc((size_t)base->n + side->n + 2, 1);
	_cleanup_free_ int32_t *v = calloc(4 * (size_t)HALF + 4, sizeof(*v));
	struct myers d = {.a = base,
			  .b = side,
			  .del = marks,
			  .vf = v,
			  .work = work ? work : UINT64_MAX,
			  .whole = work != 0};
	int r;

	if (!marks || !v)
		return -ENOMEM;
	d.ins = marks + base->n + 1;
	d.vb = v + 2 * HALF + 2;
	r = mark(&d, (struct box){0, base->n, 0, side->n});
	return r ? r : collect(&d, out);
}
