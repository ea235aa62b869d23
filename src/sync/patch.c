#include "sync/patch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/lines.h"

#define FLUSH_AT (64 << 10)
#define OUT_MAX (64 << 20)
#define FUNC_MAX 80	 /* bytes of the line after @@, as git */
#define BINARY_LOOK 8000 /* bytes that git looks at */

enum paint { META, FRAG, OLD, NEW, PLAIN, MARK };

struct out {
	const struct patch_style *s;
	struct buf b;
	int r;
};

static void flush(struct out *o, bool always)
{
	if (o->r == 0 && o->b.err)
		o->r = o->b.err;
	if (o->r == 0 && o->b.len && (always || o->b.len >= FLUSH_AT)) {
		o->r = o->s->emit(o->s->arg, o->b.data, o->b.len);
		buf_reset(&o->b);
	}
}

static void paint(struct out *o, enum paint p)
{
	static const char *const code[] = {"\033[1m",  "\033[36m", "\033[31m",
					   "\033[32m", "",	   "\033[33m"};

	if (o->s->color)
		(void)buf_puts(&o->b, code[p]);
}

static void unpaint(struct out *o, enum paint p)
{
	if (o->s->color && p != PLAIN)
		(void)buf_puts(&o->b, "\033[m");
}

uint32_t patch_mode(bool link, uint32_t perm)
{
	return link ? 0120000 : perm & 0100 ? 0100755 : 0100644;
}

struct patch_side patch_side_of(uint32_t mode, struct view text)
{
	struct patch_side s = {.what = PATCH_TEXT, .mode = mode, .size = text.n, .text = text};

	if (text.n && memchr(text.p, '\0', text.n < BINARY_LOOK ? text.n : BINARY_LOOK))
		s.what = PATCH_BINARY;
	return s;
}

int patch_quote(struct buf *b, const char *prefix, const char *path)
{
	static const char named[] = "\a\b\t\n\v\f\r\"\\", letter[] = "abtnvfr\"\\";
	bool quote = false;

	for (const char *p = path; *p && !quote; p++)
		quote = (unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f || *p == '"' ||
			*p == '\\';
	if (!quote) {
		(void)buf_puts(b, prefix);
		return buf_puts(b, path);
	}
	(void)buf_putf(b, "\"%s", prefix);
	for (const char *p = path; *p; p++) {
		const char *at = strchr(named, *p);

		if (at)
			(void)buf_putf(b, "\\%c", letter[at - named]);
		else if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			(void)buf_putf(b, "\\%03o", (unsigned char)*p);
		else
			(void)buf_putc(b, *p);
	}
	return buf_putc(b, '"');
}

int patch_visible(struct buf *b, const char *p, size_t n)
{
	for (size_t i = 0; i < n && !b->err;) {
		unsigned char c = (unsigned char)p[i];
		size_t k = c == '\n' || c == '\t' ? 1 : str_printable_len(p + i, n - i);

		if (k)
			(void)buf_put(b, p + i, k);
		else if (c < 0x20 || c == 0x7f)
			(void)buf_putf(b, "^%c", c ^ 0x40);
		else
			(void)buf_putf(b, "<%02X>", c);
		i += k ? k : 1;
	}
	return b->err;
}

static void content(struct out *o, const char *p, size_t n)
{
	if (o->s->eyes)
		(void)patch_visible(&o->b, p, n);
	else
		(void)buf_put(&o->b, p, n);
}

/* --- hunks -------------------------------------------------------------------------------- */

/* Pure additions and deletions are shown as far down as they go, as git shows them. */
static void slide(const struct lines *a, const struct lines *b, struct line_hunks *h)
{
	size_t out = 0;

	for (size_t i = 0; i < h->n; i++) {
		struct line_hunk x = h->v[i];
		uint32_t stop = i + 1 < h->n ? h->v[i + 1].b : a->n;

		if (!x.nb != !x.ns) {
			const struct lines *t = x.nb ? a : b;

			while (x.b + x.nb < stop) {
				uint32_t at = x.nb ? x.b : x.s, n = x.nb ? x.nb : x.ns;

				if (!lines_eq(t, at, t, at + n))
					break;
				x.b++;
				x.s++;
			}
		}
		if (i + 1 < h->n && x.b + x.nb == h->v[i + 1].b) { /* met the next one */
			h->v[i + 1].b = x.b;
			h->v[i + 1].nb += x.nb;
			h->v[i + 1].s = x.s;
			h->v[i + 1].ns += x.ns;
			continue;
		}
		h->v[out++] = x;
	}
	h->n = out;
}

static void range(struct out *o, char sign, uint32_t at, uint32_t n)
{
	if (n == 1)
		(void)buf_putf(&o->b, "%c%u", sign, at + 1);
	else
		(void)buf_putf(&o->b, "%c%u,%u", sign, n ? at + 1 : at, n);
}

/* The nearest line above `from` that looks like the head of something, not above `down_to`. */
static bool find_head(const struct lines *a, uint32_t from, uint32_t down_to, struct view *ret)
{
	for (uint32_t i = from; i-- > down_to;) {
		const char *p = a->p + a->off[i];
		size_t n = a->off[i + 1] - a->off[i];
		unsigned char c = (unsigned char)*p;

		if (!((c | 0x20) >= 'a' && (c | 0x20) <= 'z') && c != '_' && c != '$')
			continue;
		n = n > FUNC_MAX ? FUNC_MAX : n;
		while (n && strchr(" \t\n\r\f\v", p[n - 1]))
			n--;
		*ret = (struct view){p, n};
		return true;
	}
	return false;
}

static void put_line(struct out *o, enum paint color, char sign, const struct lines *t, uint32_t i)
{
	const char *p = t->p + t->off[i];
	size_t n = t->off[i + 1] - t->off[i];
	bool ended = n && p[n - 1] == '\n';

	paint(o, color);
	(void)buf_putc(&o->b, sign);
	content(o, p, ended ? n - 1 : n);
	unpaint(o, color);
	(void)buf_puts(&o->b, ended ? "\n" : "\n\\ No newline at end of file\n");
	flush(o, false);
}

/* Hunks [from, to) as one, with their context. */
static void put_hunk(struct out *o, const struct lines *a, const struct lines *b,
		     const struct line_hunk *from, const struct line_hunk *to, struct view head)
{
	uint32_t c = o->s->context, before = from->b < c ? from->b : c, x = from->b - before;
	uint32_t y = from->s - before, end = to[-1].b + to[-1].nb;
	uint32_t after = a->n - end < c ? a->n - end : c;

	paint(o, FRAG);
	(void)buf_puts(&o->b, "@@ ");
	range(o, '-', x, end + after - x);
	(void)buf_putc(&o->b, ' ');
	range(o, '+', y, to[-1].s + to[-1].ns + after - y);
	(void)buf_puts(&o->b, " @@");
	unpaint(o, FRAG);
	if (head.n) {
		(void)buf_putc(&o->b, ' ');
		content(o, head.p, head.n);
	}
	(void)buf_putc(&o->b, '\n');
	for (const struct line_hunk *h = from; h < to && o->r == 0; h++) {
		for (; x < h->b; x++)
			put_line(o, PLAIN, ' ', a, x);
		for (; x < h->b + h->nb && o->r == 0; x++)
			put_line(o, OLD, '-', a, x);
		for (y = h->s; y < h->s + h->ns && o->r == 0; y++)
			put_line(o, NEW, '+', b, y);
	}
	for (; x < end + after; x++)
		put_line(o, PLAIN, ' ', a, x);
}

static void put_hunks(struct out *o, const struct lines *a, const struct lines *b,
		      const struct line_hunks *h)
{
	uint32_t looked = 0;
	struct view head = {0};

	for (size_t i = 0, k; i < h->n && o->r == 0; i = k) {
		uint32_t start = h->v[i].b < o->s->context ? 0 : h->v[i].b - o->s->context;

		for (k = i + 1;
		     k < h->n && h->v[k].b - (h->v[k - 1].b + h->v[k - 1].nb) <= 2 * o->s->context;)
			k++;
		(void)find_head(a, start, looked, &head);
		looked = start;
		put_hunk(o, a, b, h->v + i, h->v + k, head);
	}
}

/* --- headers ------------------------------------------------------------------------------ */

static void header(struct out *o, const char *fmt, uint32_t mode)
{
	paint(o, META);
	(void)buf_putf(&o->b, "%s %06o", fmt, mode);
	unpaint(o, META);
	(void)buf_putc(&o->b, '\n');
}

static void named(struct out *o, const char *word, const char *prefix, const char *path, bool tab)
{
	paint(o, META);
	(void)buf_puts(&o->b, word);
	if (path)
		(void)patch_quote(&o->b, prefix, path);
	else
		(void)buf_puts(&o->b, "/dev/null");
	/* As git: tells patch(1) where a name with spaces ends. */
	if (tab && path && strchr(path, ' '))
		(void)buf_putc(&o->b, '\t');
	unpaint(o, META);
	(void)buf_putc(&o->b, '\n');
}

static void marks(struct out *o, const char *text)
{
	while (text && *text) {
		size_t n = strcspn(text, "\n");

		paint(o, MARK);
		(void)buf_puts(&o->b, "# airlock: ");
		(void)buf_put(&o->b, text, n);
		unpaint(o, MARK);
		(void)buf_putc(&o->b, '\n');
		text += n + (text[n] == '\n');
	}
}

static void headers(struct out *o, const struct patch_file *f)
{
	bool renamed = strcmp(f->old_path, f->new_path) != 0;

	marks(o, f->mark);
	paint(o, META);
	(void)buf_puts(&o->b, "diff --git ");
	(void)patch_quote(&o->b, "a/", f->old_path);
	(void)buf_putc(&o->b, ' ');
	(void)patch_quote(&o->b, "b/", f->new_path);
	unpaint(o, META);
	(void)buf_putc(&o->b, '\n');
	if (f->a.what == PATCH_NONE)
		header(o, "new file mode", f->b.mode);
	else if (f->b.what == PATCH_NONE)
		header(o, "deleted file mode", f->a.mode);
	else if (f->a.mode != f->b.mode) {
		header(o, "old mode", f->a.mode);
		header(o, "new mode", f->b.mode);
	}
	if (!renamed)
		return;
	paint(o, META);
	(void)buf_putf(&o->b, "similarity index %u%%", f->similarity);
	unpaint(o, META);
	(void)buf_putc(&o->b, '\n');
	named(o, "rename from ", "", f->old_path, false);
	named(o, "rename to ", "", f->new_path, false);
}

static void binary(struct out *o, const struct patch_file *f)
{
	const char *why = f->a.what == PATCH_LOST || f->b.what == PATCH_LOST
			      ? "the bytes of one side are not kept any more, or not what was kept"
			      : NULL;

	if (why) {
		marks(o, why);
		return;
	}
	(void)buf_puts(&o->b, "Binary files ");
	if (f->a.what == PATCH_NONE)
		(void)buf_puts(&o->b, "/dev/null");
	else
		(void)patch_quote(&o->b, "a/", f->old_path);
	(void)buf_puts(&o->b, " and ");
	if (f->b.what == PATCH_NONE)
		(void)buf_puts(&o->b, "/dev/null");
	else
		(void)patch_quote(&o->b, "b/", f->new_path);
	(void)buf_puts(&o->b, " differ\n");
}

/* --- both --------------------------------------------------------------------------------- */

struct texts {
	struct lines a, b;
	struct line_hunks h;
};

static void texts_done(struct texts *t)
{
	lines_done(&t->a);
	lines_done(&t->b);
	free(t->h.v);
}

/* 0, 1: not to be shown as text, -ENOMEM. */
static int compare(const struct patch_file *f, struct texts *t)
{
	int r;

	*t = (struct texts){0};
	if ((f->a.what != PATCH_TEXT && f->a.what != PATCH_NONE) ||
	    (f->b.what != PATCH_TEXT && f->b.what != PATCH_NONE))
		return 1;
	r = lines_init(&t->a, f->a.text, DIFF_LINES_MAX);
	if (r == 0)
		r = lines_init(&t->b, f->b.text, DIFF_LINES_MAX);
	if (r == 0)
		r = lines_compare(&t->a, &t->b, DIFF_WORK_MAX, &t->h);
	if (r == 0)
		slide(&t->a, &t->b, &t->h);
	return r == -E2BIG ? 1 : r;
}

static void tally(const struct texts *t, struct patch_count *ret)
{
	for (size_t i = 0; i < t->h.n; i++) {
		ret->deleted += t->h.v[i].nb;
		ret->added += t->h.v[i].ns;
	}
}

int patch_count(const struct patch_file *f, struct patch_count *ret)
{
	struct texts t;
	int r;

	*ret = (struct patch_count){0};
	if (f->same)
		return 0;
	r = compare(f, &t);
	if (r == 0)
		tally(&t, ret);
	ret->binary = r > 0;
	texts_done(&t);
	return r < 0 ? r : 0;
}

int patch_write(const struct patch_file *f, const struct patch_style *s, struct patch_count *count)
{
	struct out o = {.s = s, .b = BUF_INIT(OUT_MAX)};
	struct patch_count own = {0};
	struct texts t = {0};
	int r = 0;

	count = count ? count : &own;
	*count = (struct patch_count){0};
	headers(&o, f);
	if (!f->same)
		r = compare(f, &t);
	if (r > 0) {
		count->binary = true;
		binary(&o, f);
		r = 0;
	} else if (r == 0 && t.h.n) {
		tally(&t, count);
		named(&o, "--- ", "a/", f->a.what == PATCH_NONE ? NULL : f->old_path, true);
		named(&o, "+++ ", "b/", f->b.what == PATCH_NONE ? NULL : f->new_path, true);
		put_hunks(&o, &t.a, &t.b, &t.h);
	}
	flush(&o, true);
	texts_done(&t);
	buf_done(&o.b);
	return r < 0 ? r : o.r;
}

/* --- renames ------------------------------------------------------------------------------ */

static int by_hash(const void *x, const void *y)
{
	uint32_t a = (uint32_t) * (const uint64_t *)x, b = (uint32_t) * (const uint64_t *)y;

	return a < b ? -1 : a > b;
}

unsigned patch_similarity(struct view va, struct view vb)
{
	struct lines a = {0}, b = {0};
	uint64_t *x = NULL, *y = NULL, common = 0;
	size_t larger = va.n > vb.n ? va.n : vb.n;
	unsigned ret = 0;

	/* Hash in the low half, which is what is sorted by first; length in the high half. */
	if (!va.n || !vb.n || lines_init(&a, va, DIFF_LINES_MAX) < 0 ||
	    lines_init(&b, vb, DIFF_LINES_MAX) < 0)
		goto out;
	x = calloc(a.n, sizeof(*x));
	y = calloc(b.n, sizeof(*y));
	if (!x || !y)
		goto out;
	for (uint32_t i = 0; i < a.n; i++)
		x[i] = (uint64_t)(a.off[i + 1] - a.off[i]) << 32 | a.hash[i];
	for (uint32_t i = 0; i < b.n; i++)
		y[i] = (uint64_t)(b.off[i + 1] - b.off[i]) << 32 | b.hash[i];
	qsort(x, a.n, sizeof(*x), by_hash);
	qsort(y, b.n, sizeof(*y), by_hash);
	for (size_t i = 0, j = 0; i < a.n && j < b.n;) {
		uint32_t hx = (uint32_t)x[i], hy = (uint32_t)y[j];

		if (hx == hy)
			common += x[i] >> 32;
		i += hx <= hy;
		j += hy <= hx;
	}
	ret = (unsigned)(common * 100 / larger);
	ret = ret > 100 ? 100 : ret;
out:
	free(x);
	free(y);
	lines_done(&a);
	lines_done(&b);
	return ret;
}
