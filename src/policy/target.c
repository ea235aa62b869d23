#include "policy/target.h"

#include <stdint.h>
#include <string.h>

#include "base/str.h"

static const char *const names[TARGET_FAULT_COUNT] = {
    [TARGET_OK] = "ok",		  [TARGET_EMPTY] = "empty", [TARGET_FORM] = "form",
    [TARGET_TOO_LONG] = "length", [TARGET_BYTE] = "byte",   [TARGET_ESCAPE] = "escape",
    [TARGET_SEGMENT] = "segment", [TARGET_UTF8] = "utf8",   [TARGET_SEGMENTS] = "depth",
};

const char *target_fault_name(enum target_fault f)
{
	return names[f];
}

static bool alnum(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool in(unsigned char c, const char *set, size_t n)
{
	return memchr(set, c, n) != NULL;
}

/* unreserved, sub-delims, ':' and '@' of RFC 3986; ';' begins parameters for some servers ("..;/"). */
static bool path_byte(unsigned char c)
{
	static const char more[] = "-._~!$&'()*+,=:@";

	return alnum(c) || in(c, more, sizeof(more) - 1);
}

/* Clients leave brackets raw ("filter[x]=1"); nothing that parses a query gives them another meaning. */
static bool query_byte(unsigned char c)
{
	static const char more[] = "-._~!$&'()*+,=:@;/?[]";

	return alnum(c) || in(c, more, sizeof(more) - 1);
}

/* The byte that the escape at p stands for, or -1. */
static int unescape(const unsigned char *p, size_t n)
{
	int hi, lo;

	if (n < 3)
		return -1;
	hi = str_hex_digit(p[1]);
	lo = str_hex_digit(p[2]);
	return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

/* Whatever a second decoder, a shell-minded router or a file server could read as structure. */
static bool escape_forbidden(int c)
{
	static const char set[] = "/\\?#%;";

	return c <= 0x20 || c == 0x7f || in((unsigned char)c, set, sizeof(set) - 1);
}

/* Strict UTF-8, a byte at a time: no overlong forms, no surrogates, nothing above U+10FFFF. */
struct utf8 {
	unsigned left;	   /* continuation bytes that must follow */
	unsigned char low; /* range of the next one */
	unsigned char high;
};

static bool utf8_put(struct utf8 *u, unsigned char c)
{
	if (u->left) {
		bool ok = c >= u->low && c <= u->high;

		u->low = 0x80;
		u->high = 0xbf;
		u->left--;
		return ok;
	}
	if (c < 0x80)
		return true;
	u->low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	u->high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	u->left = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
	return c >= 0xc2 && c <= 0xf4;
}

/* One segment, without its slashes. */
static enum target_fault segment(const unsigned char *p, size_t n)
{
	struct utf8 u = {0};
	bool dots = true; /* "..." too: some file systems take it for more than a name */

	for (size_t i = 0; i < n;) {
		int c = p[i];
		size_t step = 1;

		if (c == '%') {
			c = unescape(p + i, n - i);
			if (c < 0 || escape_forbidden(c))
				return TARGET_ESCAPE;
			step = 3;
		} else if (!path_byte((unsigned char)c)) {
			return TARGET_BYTE;
		}
		if (c != '.')
			dots = false;
		if (!utf8_put(&u, (unsigned char)c))
			return TARGET_UTF8;
		i += step;
	}
	if (dots) /* the empty one among them */
		return TARGET_SEGMENT;
	return u.left ? TARGET_UTF8 : TARGET_OK;
}

static enum target_fault query(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		if (p[i] == '%') {
			int c = unescape(p + i, n - i);

			if (c <= 0 || c == '\n' || c == '\r')
				return TARGET_ESCAPE;
			i += 3;
		} else if (query_byte(p[i])) {
			i++;
		} else {
			return TARGET_BYTE;
		}
	}
	return TARGET_OK;
}

static enum target_fault path(struct target *t)
{
	const unsigned char *p = (const unsigned char *)t->path.p, *end = p + t->path.n;

	if (t->path.n == 1)
		return TARGET_OK;
	while (p < end) {
		const unsigned char *from = p + 1, *to = memchr(from, '/', (size_t)(end - from));
		enum target_fault f;

		if (!to)
			to = end;
		f = segment(from, (size_t)(to - from));
		if (f != TARGET_OK)
			return f;
		if (t->segments == BRIDGE_SEGMENTS_MAX)
			return TARGET_SEGMENTS;
		t->segment[t->segments++] = (struct view){(const char *)from, (size_t)(to - from)};
		p = to;
	}
	return TARGET_OK;
}

enum target_fault target_parse(const char *p, size_t n, struct target *ret)
{
	const char *mark;
	enum target_fault f;

	ret->segments = 0;
	ret->has_query = false;
	ret->all = (struct view){p, n};
	ret->path = ret->all;
	ret->query = (struct view){p, 0};
	if (n == 0)
		return TARGET_EMPTY;
	if (p[0] != '/' || (n > 1 && p[1] == '/'))
		return TARGET_FORM;
	mark = memchr(p, '?', n > BRIDGE_PATH_MAX + 1 ? BRIDGE_PATH_MAX + 1 : n);
	if (mark) {
		ret->has_query = true;
		ret->path.n = (size_t)(mark - p);
		ret->query = (struct view){mark + 1, n - ret->path.n - 1};
	}
	if (ret->path.n > BRIDGE_PATH_MAX || ret->query.n > BRIDGE_QUERY_MAX)
		return TARGET_TOO_LONG;
	f = path(ret);
	if (f != TARGET_OK)
		return f;
	return query((const unsigned char *)ret->query.p, ret->query.n);
}
