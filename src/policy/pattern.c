#include "policy/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"

enum token_kind {
	T_BYTE,
	T_ANY,	   /* '?' */
	T_SET,	   /* bracket expression */
	T_STAR,	   /* any bytes but '/' */
	T_ALL,	   /* "**" at the end: any bytes */
	T_DIRS,	   /* "**" + '/': nothing, or whole segments; enters T_DIRS_IN */
	T_DIRS_IN, /* inside those segments; '/' may leave */
};

struct pattern_token {
	enum token_kind kind;
	uint8_t byte;
	uint8_t set[32];
};

/* A longer glob can match no member path that differs from a shorter one; it never matches. */
#define GLOB_MAX PATH_MEMBER_MAX

static bool special(char c)
{
	return c == '*' || c == '?' || c == '[' || c == '\\';
}

static void set_add(uint8_t set[32], unsigned lo, unsigned hi)
{
	for (unsigned c = lo; c <= hi; c++)
		set[c >> 3] |= (uint8_t)(1u << (c & 7));
}

static const struct {
	const char *name;
	uint8_t range[6]; /* pairs, 0-terminated */
} classes[] = {
    {"alpha", {'A', 'Z', 'a', 'z'}},
    {"digit", {'0', '9'}},
    {"lower", {'a', 'z'}},
    {"upper", {'A', 'Z'}},
    {"space", {9, 13, ' ', ' '}},
    {"blank", {9, 9, ' ', ' '}},
    {"cntrl", {1, 31, 127, 127}},
    {"print", {32, 126}},
    {"graph", {33, 126}},
    {"alnum", {'0', '9', 'A', 'Z', 'a', 'z'}},
    {"punct", {0}},
    {"xdigit", {0}},
};

static bool set_class(uint8_t set[32], const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
		const uint8_t *r = classes[i].range;

		if (strlen(classes[i].name) != n || memcmp(classes[i].name, name, n) != 0)
			continue;
		for (size_t k = 0; k + 1 < sizeof(classes[i].range) && r[k]; k += 2)
			set_add(set, r[k], r[k + 1]);
		if (strcmp(classes[i].name, "punct") == 0) {
			set_add(set, 33, 47);
			set_add(set, 58, 64);
			set_add(set, 91, 96);
			set_add(set, 123, 126);
		} else if (strcmp(classes[i].name, "xdigit") == 0) {
			set_add(set, '0', '9');
			set_add(set, 'A', 'F');
			set_add(set, 'a', 'f');
		}
		return true;
	}
	return false;
}

/* One literal member of a bracket at p[*i], quoting resolved. -1 at the end. */
static int bracket_byte(const char *p, size_t n, size_t *i)
{
	if (*i < n && p[*i] == '\\')
		(*i)++;
	return *i < n ? (uint8_t)p[(*i)++] : -1;
}

/* p[0] is the byte after '['. Returns bytes used including ']', 0 if it is broken. */
static size_t parse_bracket(const char *p, size_t n, uint8_t set[32])
{
	bool negate = n && (p[0] == '!' || p[0] == '^');
	size_t i = negate ? 1 : 0;
	bool first = true;

	while (i < n && (first || p[i] != ']')) {
		int lo, hi;

		first = false;
		if (p[i] == '[' && i + 1 < n && p[i + 1] == ':') {
			const char *end = memchr(p + i + 2, ']', n - i - 2);

			if (!end)
				return 0;
			if (end > p + i + 2 && end[-1] == ':') {
				if (!set_class(set, p + i + 2, (size_t)(end - 1 - (p + i + 2))))
					return 0;
				i = (size_t)(end - p) + 1;
				continue;
			}
			/* Not ":]" at its end: the '[' stands for itself. */
		}
		lo = hi = bracket_byte(p, n, &i);
		if (i + 1 < n && p[i] == '-' && p[i + 1] != ']') {
			i++;
			hi = bracket_byte(p, n, &i);
		}
		if (lo < 0 || hi < 0)
			return 0;
		if (lo <= hi)
			set_add(set, (unsigned)lo, (unsigned)hi);
	}
	if (i >= n)
		return 0;
	if (negate)
		for (size_t k = 0; k < 32; k++)
			set[k] = (uint8_t)~set[k];
	set['/' >> 3] &= (uint8_t) ~(1u << ('/' & 7));
	return i + 1;
}

/* Tokens for the stars at g[*i]; advances over them. */
static void put_stars(const struct pattern *p, size_t *i, struct pattern_token *t, size_t *k)
{
	size_t from = *i, to = *i;
	bool whole;

	while (to < p->glob_len && p->glob[to] == '*')
		to++;
	whole = p->anchored && to - from >= 2 && (from == 0 || p->glob[from - 1] == '/');
	*i = to;
	if (whole && to == p->glob_len) {
		t[(*k)++].kind = T_ALL;
	} else if (whole && p->glob[to] == '/') {
		t[(*k)++].kind = T_DIRS;
		t[(*k)++].kind = T_DIRS_IN;
		*i = to + 1;
	} else {
		t[(*k)++].kind = T_STAR;
	}
}

/* False: the glob is broken and never matches. */
static bool compile(struct pattern *p, struct pattern_token *t, size_t *ret_n)
{
	size_t i = 0, k = 0, used;

	while (i < p->glob_len) {
		char c = p->glob[i];

		if (c == '*') {
			put_stars(p, &i, t, &k);
			continue;
		}
		i++;
		if (c == '[') {
			used = parse_bracket(p->glob + i, p->glob_len - i, t[k].set);
			if (!used)
				return false;
			i += used;
			t[k++].kind = T_SET;
		} else if (c == '?') {
			t[k++].kind = T_ANY;
		} else {
			if (c == '\\') {
				if (i == p->glob_len)
					return false;
				c = p->glob[i++];
			}
			t[k].kind = T_BYTE;
			t[k++].byte = (uint8_t)c;
		}
	}
	*ret_n = k;
	return true;
}

static int prepare(struct pattern *p, bool *usable)
{
	*usable = p->glob_len > 0 && p->glob_len <= GLOB_MAX;
	while (p->literal < p->glob_len && !special(p->glob[p->literal]))
		p->literal++;
	if (!*usable || p->literal == p->glob_len)
		return 0;
	if (!p->anchored && p->glob[0] == '*') {
		size_t i = 1;

		while (i < p->glob_len && !special(p->glob[i]))
			i++;
		if (i == p->glob_len) {
			p->suffix = true;
			return 0;
		}
	}
	p->tokens = calloc(p->glob_len, sizeof(*p->tokens));
	if (!p->tokens)
		return -ENOMEM;
	*usable = compile(p, p->tokens, &p->tokens_len);
	return 0;
}

static size_t trim(const char *s, size_t n)
{
	size_t end = 0;

	/* Trailing spaces go unless quoted. */
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\\' && i + 1 < n)
			i++;
		else if (s[i] == ' ')
			continue;
		end = i + 1;
	}
	return end;
}

static void pattern_done(struct pattern *p)
{
	free(p->text);
	free(p->glob);
	free(p->tokens);
}

static int grow(struct pattern_list *l, struct err *e)
{
	size_t cap = l->cap ? l->cap * 2 : 16;
	struct pattern *v;

	if (l->n >= PATTERNS_MAX)
		return err_set(e, ERR_LIMIT, "more than %d ignore patterns; merge some",
			       PATTERNS_MAX);
	if (l->n < l->cap)
		return 0;
	v = realloc(l->v, cap * sizeof(*v));
	if (!v)
		return err_sys(e, ENOMEM, "ignore patterns");
	l->v = v;
	l->cap = cap;
	return 0;
}

int pattern_list_add(struct pattern_list *l, const char *line, size_t n, struct err *e)
{
	struct pattern p = {0};
	const char *g = line;
	bool usable = false;
	int r;

	n = trim(line, n);
	if (!n || line[0] == '#' || memchr(line, '\0', n))
		return 0;
	r = grow(l, e);
	if (r < 0)
		return r;
	p.text = strndup(line, n);
	if (*g == '!') {
		p.negated = true;
		g++;
		n--;
	}
	if (n && g[n - 1] == '/') {
		p.dir_only = true;
		n--;
	}
	p.anchored = memchr(g, '/', n) != NULL;
	if (n && *g == '/') {
		g++;
		n--;
	}
	p.glob = strndup(g, n);
	p.glob_len = n;
	r = p.text && p.glob ? prepare(&p, &usable) : -ENOMEM;
	if (r < 0 || !usable) {
		pattern_done(&p);
		return r < 0 ? err_sys(e, -r, "ignore patterns") : 0;
	}
	l->v[l->n++] = p;
	return 0;
}

int pattern_list_parse(struct pattern_list *l, const char *text, size_t n, struct err *e)
{
	size_t at = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

	while (at < n) {
		const char *nl = memchr(text + at, '\n', n - at);
		size_t len = nl ? (size_t)(nl - (text + at)) : n - at;
		size_t next = at + len + 1;
		int r;

		if (nl && len && text[at + len - 1] == '\r')
			len--;
		r = pattern_list_add(l, text + at, len, e);
		if (r < 0)
			return r;
		at = next;
	}
	return 0;
}

void pattern_list_done(struct pattern_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		pattern_done(&l->v[i]);
	free(l->v);
	*l = (struct pattern_list){0};
}

/* Marks state i and all that is reached from it without a byte. */
static void enter(const struct pattern *p, uint8_t *set, size_t i)
{
	for (; !set[i]; i++) {
		set[i] = 1;
		if (i == p->tokens_len)
			return;
		switch (p->tokens[i].kind) {
		case T_STAR:
		case T_ALL:
			break;
		case T_DIRS:
			set[i + 1] = 1;
			i++;
			break;
		default:
			return;
		}
	}
}

static bool step(const struct pattern *p, const uint8_t *now, uint8_t *next, uint8_t c)
{
	bool alive = false;

	for (size_t i = 0; i < p->tokens_len; i++) {
		const struct pattern_token *t = &p->tokens[i];
		bool stay = false, go = false;

		if (!now[i])
			continue;
		switch (t->kind) {
		case T_BYTE:
			go = c == t->byte;
			break;
		case T_ANY:
			go = c != '/';
			break;
		case T_SET:
			go = t->set[c >> 3] >> (c & 7) & 1;
			break;
		case T_STAR:
			stay = c != '/';
			break;
		case T_ALL:
			stay = true;
			break;
		case T_DIRS:
			break;
		case T_DIRS_IN:
			next[i] = 1;
			go = c == '/';
			alive = true;
			break;
		}
		if (stay)
			enter(p, next, i);
		if (go)
			enter(p, next, i + 1);
		alive = alive || stay || go;
	}
	return alive;
}

static bool run(const struct pattern *p, const char *s, size_t n)
{
	uint8_t a[GLOB_MAX + 2], b[GLOB_MAX + 2], *now = a, *next = b, *swap;

	memset(now, 0, p->tokens_len + 1);
	enter(p, now, 0);
	for (size_t i = 0; i < n; i++) {
		memset(next, 0, p->tokens_len + 1);
		if (!step(p, now, next, (uint8_t)s[i]))
			return false;
		swap = now;
		now = next;
		next = swap;
	}
	return now[p->tokens_len];
}

static bool match_one(const struct pattern *p, const char *path, size_t n, size_t base)
{
	const char *s = p->anchored ? path : path + base;
	size_t len = p->anchored ? n : n - base;

	if (p->suffix) {
		size_t tail = p->glob_len - 1;

		return len >= tail && memcmp(s + len - tail, p->glob + 1, tail) == 0;
	}
	if (!p->tokens)
		return len == p->glob_len && memcmp(s, p->glob, len) == 0;
	return len >= p->literal && memcmp(s, p->glob, p->literal) == 0 && run(p, s, len);
}

enum pattern_verdict pattern_list_match(struct pattern_list *l, const char *path, size_t n,
					bool is_dir)
{
	const char *slash;
	size_t base;

	if (!l->n)
		return PATTERN_NONE;
	slash = memrchr(path, '/', n);
	base = slash ? (size_t)(slash - path) + 1 : 0;
	for (size_t i = l->n; i-- > 0;) {
		struct pattern *p = &l->v[i];

		if ((p->dir_only && !is_dir) || !match_one(p, path, n, base))
			continue;
		p->hits++;
		return p->negated ? PATTERN_NEGATED : PATTERN_MATCH;
	}
	return PATTERN_NONE;
}

bool pattern_list_reaches_below(const struct pattern_list *l, const char *dir, size_t n)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct pattern *p = &l->v[i];
		size_t m = p->literal < n ? p->literal : n;

		if (!p->anchored)
			return true;
		if (memcmp(p->glob, dir, m) != 0)
			continue;
		/* The literal part goes on below dir, or ends before it and a wildcard may. */
		if (p->literal <= n ? p->literal < p->glob_len : p->glob[n] == '/')
			return true;
	}
	return false;
}
