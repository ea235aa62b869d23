#include "policy/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

static const struct {
	enum method m;
	const char *name;
} methods[] = {
    {METHOD_GET, "GET"},       {METHOD_HEAD, "HEAD"}, {METHOD_OPTIONS, "OPTIONS"},
    {METHOD_POST, "POST"},     {METHOD_PUT, "PUT"},   {METHOD_PATCH, "PATCH"},
    {METHOD_DELETE, "DELETE"},
};

#define METHOD_BYTES_MAX 16 /* longer than any registered one; beyond it is no method */

int method_parse(struct view m)
{
	if (m.n == 0 || m.n > METHOD_BYTES_MAX)
		return -EINVAL;
	for (size_t i = 0; i < m.n; i++)
		if (m.p[i] < 'A' || m.p[i] > 'Z')
			return -EINVAL;
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (strlen(methods[i].name) == m.n && memcmp(methods[i].name, m.p, m.n) == 0)
			return (int)methods[i].m;
	return 0;
}

const char *method_name(enum method m)
{
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (methods[i].m == m)
			return methods[i].name;
	return "?";
}

/* --- patterns ----------------------------------------------------------------------------- */

static bool same(struct view a, struct view b)
{
	return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

static bool param_name(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') ||
		      (p[i] >= '0' && p[i] <= '9') || p[i] == '_' || p[i] == '-'))
			return false;
	return n > 0;
}

/* A literal is what a target may hold, with its escapes: the target parser is the judge. */
static bool literal_ok(struct view text, struct view suffix)
{
	_cleanup_buf_ struct buf b = BUF_INIT(BRIDGE_PATH_MAX + 8);
	struct target t;

	/* A parameter stands in as one byte, so that "." beside it is no dot segment. */
	(void)buf_putc(&b, '/');
	(void)buf_put(&b, text.p, text.n);
	(void)buf_putc(&b, 'x');
	(void)buf_put(&b, suffix.p, suffix.n);
	return b.err == 0 && target_parse(b.data, b.len, &t) == TARGET_OK && t.segments == 1 &&
	       !t.has_query;
}

static const char *segment_parse(struct view s, bool last, struct route_segment *ret)
{
	const char *open = memchr(s.p, '{', s.n), *close = memchr(s.p, '}', s.n);
	struct view name;

	if (!open && !close) {
		struct view none = {s.p, 0};
		struct target t;
		_cleanup_buf_ struct buf b = BUF_INIT(BRIDGE_PATH_MAX + 8);

		*ret = (struct route_segment){SEGMENT_LITERAL, s, none};
		(void)buf_putc(&b, '/');
		(void)buf_put(&b, s.p, s.n);
		if (s.n == 0)
			return "a segment is empty";
		if (b.err || target_parse(b.data, b.len, &t) != TARGET_OK || t.has_query)
			return "a literal holds bytes that no request path may hold";
		return NULL;
	}
	if (!open || !close || close < open)
		return "a brace has no partner";
	*ret = (struct route_segment){SEGMENT_AFFIX, {s.p, (size_t)(open - s.p)}, {close + 1, 0}};
	ret->suffix.n = (size_t)(s.p + s.n - (close + 1));
	name = (struct view){open + 1, (size_t)(close - open - 1)};
	if (memchr(ret->suffix.p, '{', ret->suffix.n) || memchr(ret->suffix.p, '}', ret->suffix.n))
		return "a segment has more than one parameter";
	if (ret->text.n == 0 && ret->suffix.n == 0)
		ret->kind = SEGMENT_PARAM;
	else if (!literal_ok(ret->text, ret->suffix))
		return "a literal holds bytes that no request path may hold";
	if (name.n > 3 && memcmp(name.p + name.n - 3, "...", 3) == 0) {
		if (ret->kind != SEGMENT_PARAM || !last)
			return "a {name...} must be the whole last segment";
		ret->kind = SEGMENT_REST;
		name.n -= 3;
	}
	return param_name(name.p, name.n) ? NULL : "a parameter name is not letters and digits";
}

static const char *pattern_parse(struct route *r)
{
	const char *p = r->pattern, *end = p + strlen(p);
	size_t n = 0;

	if (p[0] != '/')
		return "it does not begin with '/'";
	if (end - p > BRIDGE_PATH_MAX)
		return "it is longer than any path that passes";
	if (p[1] == '\0')
		return NULL;
	for (const char *s = p; s < end; s++)
		n += *s == '/';
	if (n > BRIDGE_SEGMENTS_MAX)
		return "it has more segments than any path that passes";
	r->segment = calloc(n, sizeof(*r->segment));
	if (!r->segment)
		return "out of memory";
	while (p < end) {
		const char *from = p + 1, *to = strchrnul(from, '/'), *why;

		why = segment_parse((struct view){from, (size_t)(to - from)}, to == end,
				    &r->segment[r->segments]);
		if (why)
			return why;
		r->segments++;
		p = to;
	}
	return NULL;
}

/* --- building ----------------------------------------------------------------------------- */

static char *default_id(unsigned bits, const char *pattern)
{
	struct buf b = BUF_INIT(BRIDGE_PATH_MAX + 128);

	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (bits & methods[i].m)
			(void)buf_putf(&b, "%s%s", b.len ? "," : "", methods[i].name);
	(void)buf_putf(&b, " %s", pattern);
	return buf_take(&b);
}

static void route_done(struct route *r)
{
	free(r->id);
	free(r->pattern);
	free(r->segment);
	header_list_done(&r->headers);
}

int route_add(struct route_table *t, const char *id, unsigned bits, const char *pattern,
	      struct route **ret, struct err *e)
{
	struct route r = {.methods = bits};
	const char *why;

	if (t->n == POLICY_ROUTES_MAX)
		return err_set(e, ERR_LIMIT,
			       "a policy may have %d routes: join some with {name} parameters",
			       POLICY_ROUTES_MAX);
	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 32;
		struct route *v = reallocarray(t->v, cap, sizeof(*v));

		if (!v)
			return err_set(e, ERR_NOMEM, "route %.80s: out of memory", pattern);
		t->v = v;
		t->cap = cap;
	}
	r.pattern = strdup(pattern);
	why = r.pattern ? pattern_parse(&r) : "out of memory";
	if (!why) {
		r.id = id ? strdup(id) : default_id(bits, pattern);
		why = r.id ? NULL : "out of memory";
	}
	if (why) {
		route_done(&r);
		return err_set(e, ERR_INVALID, "route pattern %.200s: %s", pattern, why);
	}
	t->v[t->n] = r;
	*ret = &t->v[t->n++];
	return 0;
}

static int order_view(struct view a, struct view b)
{
	int d = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);

	return d ? d : (a.n > b.n) - (a.n < b.n);
}

/* By kind first: a literal goes before an affix, that before a parameter, that before a rest. */
static int order_segment(const struct route_segment *a, const struct route_segment *b)
{
	int d = (int)a->kind - (int)b->kind;

	if (d == 0 && a->kind == SEGMENT_AFFIX) {
		/* The longer literal text is the narrower rule. */
		size_t na = a->text.n + a->suffix.n, nb = b->text.n + b->suffix.n;

		d = (na < nb) - (na > nb);
		if (d == 0)
			d = (a->text.n < b->text.n) - (a->text.n > b->text.n);
	}
	if (d == 0 && a->kind <= SEGMENT_AFFIX)
		d = order_view(a->text, b->text);
	if (d == 0 && a->kind == SEGMENT_AFFIX)
		d = order_view(a->suffix, b->suffix);
	return d;
}

static int order_pattern(const struct route *a, const struct route *b)
{
	size_t n = a->segments < b->segments ? a->segments : b->segments;

	for (size_t i = 0; i < n; i++) {
		int d = order_segment(&a->segment[i], &b->segment[i]);

		if (d)
			return d;
	}
	/* A longer pattern against its beginning: only a rest can match both, and it is already last. */
	return (a->segments < b->segments) - (a->segments > b->segments);
}

static int order_route(const void *a, const void *b)
{
	const struct route *x = a, *y = b;
	int d = order_pattern(x, y);

	/* Nothing but the methods tells them apart: any fixed order will do. */
	return d ? d : (x->methods > y->methods) - (x->methods < y->methods);
}

int route_compile(struct route_table *t, struct err *e)
{
	if (t->n > 1)
		qsort(t->v, t->n, sizeof(*t->v), order_route);
	for (size_t i = 0; i < t->n; i++) {
		for (size_t k = i + 1; k < t->n; k++) {
			const struct route *a = &t->v[i], *b = &t->v[k];

			if (strcmp(a->id, b->id) == 0)
				return err_set(e, ERR_INVALID,
					       "two routes have the id %.200s: give each its own",
					       a->id);
			if ((a->methods & b->methods) && order_pattern(a, b) == 0)
				return err_set(
				    e, ERR_INVALID,
				    "the routes %.200s and %.200s match the same paths: keep one",
				    a->id, b->id);
		}
	}
	return 0;
}

void route_table_done(struct route_table *t)
{
	for (size_t i = 0; i < t->n; i++)
		route_done(&t->v[i]);
	free(t->v);
	*t = (struct route_table){0};
}

/* --- matching ----------------------------------------------------------------------------- */

static bool segment_match(const struct route_segment *s, struct view seg)
{
	switch (s->kind) {
	case SEGMENT_LITERAL:
		return same(s->text, seg);
	case SEGMENT_AFFIX:
		return seg.n > s->text.n + s->suffix.n &&
		       seg.n - s->text.n - s->suffix.n <= BRIDGE_SEGMENT_MAX &&
		       memcmp(seg.p, s->text.p, s->text.n) == 0 &&
		       memcmp(seg.p + seg.n - s->suffix.n, s->suffix.p, s->suffix.n) == 0;
	case SEGMENT_PARAM:
	case SEGMENT_REST:
		return seg.n <= BRIDGE_SEGMENT_MAX;
	}
	return false;
}

static bool pattern_match(const struct route *r, const struct target *t)
{
	bool rest = r->segments && r->segment[r->segments - 1].kind == SEGMENT_REST;

	if (rest ? t->segments < r->segments : t->segments != r->segments)
		return false;
	for (size_t i = 0; i < t->segments; i++) {
		size_t k = i < r->segments ? i : r->segments - 1;

		if (!segment_match(&r->segment[k], t->segment[i]))
			return false;
	}
	return true;
}

const struct route *route_match(const struct route_table *t, enum method m,
				const struct target *target, unsigned *ret_other)
{
	unsigned other = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct route *r = &t->v[i];

		if (!(r->methods & m) && !ret_other)
			continue;
		if (!pattern_match(r, target))
			continue;
		if (r->methods & m)
			return r;
		other |= r->methods;
	}
	if (ret_other)
		*ret_other = other;
	return NULL;
}
