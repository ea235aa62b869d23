#include "base/cursor.h"

#include <stdlib.h>
#include <string.h>

void cursor_init(struct cursor *c, const void *p, size_t n)
{
	*c = (struct cursor){.p = p, .left = n};
}

static const uint8_t *take(struct cursor *c, size_t n)
{
	const uint8_t *p = c->p;

	if (c->failed || n > c->left) {
		c->failed = true;
		return NULL;
	}
	c->p += n;
	c->left -= n;
	return p;
}

uint8_t cursor_u8(struct cursor *c)
{
	const uint8_t *p = take(c, 1);

	return p ? p[0] : 0;
}

uint32_t cursor_u32(struct cursor *c)
{
	const uint8_t *p = take(c, 4);

	return p ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
		       (uint32_t)p[3] << 24
		 : 0;
}

uint64_t cursor_u64(struct cursor *c)
{
	uint64_t lo = cursor_u32(c);

	return lo | (uint64_t)cursor_u32(c) << 32;
}

struct view cursor_bytes(struct cursor *c, size_t max)
{
	size_t n = cursor_u32(c);
	const uint8_t *p;

	if (n > max)
		c->failed = true;
	p = take(c, n);
	return p ? (struct view){(const char *)p, n} : (struct view){"", 0};
}

char *cursor_strdup(struct cursor *c, size_t max)
{
	struct view v = cursor_bytes(c, max);
	char *s;

	if (!c->failed && v.n && memchr(v.p, '\0', v.n))
		c->failed = true;
	if (c->failed)
		return NULL;
	s = malloc(v.n + 1);
	if (!s) {
		c->failed = true;
		return NULL;
	}
	if (v.n)
		memcpy(s, v.p, v.n);
	s[v.n] = '\0';
	return s;
}

bool cursor_end(const struct cursor *c)
{
	return !c->failed && c->left == 0;
}
