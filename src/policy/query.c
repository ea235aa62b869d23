#include "policy/query.h"

#include <string.h>

#include "base/str.h"

/*
 * Spaces and control bytes are left out wherever they stand: servers cut them off, or stop there. Some read a dot,
 * or a bracket that nobody closes, as '_'.
 */
static bool counts(char c)
{
	return (unsigned char)c > ' ' && c != '_' && c != '-' && c != '.' && c != '[';
}

static char low(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

bool query_name_ok(const char *s)
{
	static const char token[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789$._-~";
	size_t n = strspn(s, token);
	bool one = false;

	for (size_t i = 0; i < n; i++)
		one = one || counts(s[i]);
	return one && n <= NAME_MAX_LEN && (s[n] == '\0' || (s[n] == '*' && s[n + 1] == '\0'));
}

/* The next byte of the name as a server reads it. target.h has seen to it that escapes are whole. */
static char next(struct view *v)
{
	char c = *v->p;
	size_t n = 1;

	if (c == '+') {
		c = ' ';
	} else if (c == '%' && v->n >= 3 && str_hex_digit(v->p[1]) >= 0 &&
		   str_hex_digit(v->p[2]) >= 0) {
		c = (char)(str_hex_digit(v->p[1]) * 16 + str_hex_digit(v->p[2]));
		n = 3;
	}
	*v = (struct view){v->p + n, v->n - n};
	return c;
}

/* What is compared of a name, as far as a bracket or whole; of a long one its beginning and one byte more. */
static size_t plain(struct view name, bool whole, char out[NAME_MAX_LEN + 1])
{
	size_t n = 0;

	while (name.n && n <= NAME_MAX_LEN) {
		char c = next(&name);

		if (c == '[' && !whole)
			break;
		if (counts(c))
			out[n++] = low(c);
	}
	return n;
}

static bool is(const char *name, size_t n, const char *denied)
{
	size_t at = 0;

	for (; *denied && *denied != '*'; denied++) {
		if (!counts(*denied))
			continue;
		if (at == n || name[at++] != low(*denied))
			return false;
	}
	return *denied == '*' || at == n;
}

const char *query_denied(const struct header_list *l, struct view q)
{
	while (l->n && q.n) {
		struct view name = {q.p, 0};
		char cut[NAME_MAX_LEN + 1], whole[NAME_MAX_LEN + 1];
		size_t n, k;

		while (name.n < q.n && !memchr("&;=", q.p[name.n], 3))
			name.n++;
		n = plain(name, false, cut);
		k = plain(name, true, whole);
		for (size_t i = 0; i < l->n; i++)
			if (is(cut, n, l->v[i]) || is(whole, k, l->v[i]))
				return l->v[i];
		while (q.n && *q.p != '&' && *q.p != ';')
			q = (struct view){q.p + 1, q.n - 1};
		if (q.n)
			q = (struct view){q.p + 1, q.n - 1};
	}
	return NULL;
}
