#include "base/buf_write.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void buf_init(struct buf *b, size_t max)
{
	*b = BUF_INIT(max);
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = BUF_INIT(b->max);
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->err = 0;
	if (b->data)
		b->data[0] = '\0';
}

char *buf_take(struct buf *b)
{
	char *p;

	if (b->err)
		return NULL;
	if (!b->data && !buf_room(b, 0))
		return NULL;
	p = b->data;
	b->data = NULL;
	b->len = b->cap = 0;
	return p;
}

char *buf_room(struct buf *b, size_t n)
{
	size_t want, cap;
	char *p;

	assert(b->max > 0);
	if (b->err)
		return NULL;
	if (n > b->max || b->len > b->max - n) {
		b->err = -E2BIG;
		return NULL;
	}
	want = b->len + n + 1;
	if (want > b->cap) {
		cap = b->cap ? b->cap : 64;
		while (cap < want)
			cap *= 2;
		if (cap > b->max + 1)
			cap = b->max + 1;
		p = realloc(b->data, cap);
		if (!p) {
			b->err = -ENOMEM;
			return NULL;
		}
		if (!b->data)
			p[0] = '\0';
		b->data = p;
		b->cap = cap;
	}
	return b->data + b->len;
}

void buf_add(struct buf *b, size_t n)
{
	assert(b->len + n < b->cap);
	b->len += n;
	b->data[b->len] = '\0';
}

int buf_put(struct buf *b, const void *p, size_t n)
{
	char *to = buf_room(b, n);

	if (!to)
		return b->err;
	if (n)
		memcpy(to, p, n);
	buf_add(b, n);
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_put(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
	return buf_put(b, &c, 1);
}

int buf_putf(struct buf *b, const char *fmt, ...)
{
	size_t left = b->err || !b->data ? 0 : b->cap - b->len;
	va_list ap;
	char *to;
	int n;

	/* Mostly it fits: then it is not made twice. */
	va_start(ap, fmt);
	n = vsnprintf(left ? b->data + b->len : NULL, left, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < left) {
		b->len += (size_t)n;
		return 0;
	}
	if (left)
		b->data[b->len] = '\0';
	if (n < 0) {
		b->err = -EINVAL;
		return b->err;
	}
	to = buf_room(b, (size_t)n);
	if (!to)
		return b->err;
	va_start(ap, fmt);
	(void)vsnprintf(to, (size_t)n + 1, fmt, ap);
	va_end(ap);
	buf_add(b, (size_t)n);
	return 0;
}

int buf_u8(struct buf *b, uint8_t v)
{
	return buf_put(b, &v, 1);
}

int buf_u32(struct buf *b, uint32_t v)
{
	uint8_t x[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

	return buf_put(b, x, sizeof(x));
}

int buf_u64(struct buf *b, uint64_t v)
{
	(void)buf_u32(b, (uint32_t)v);
	return buf_u32(b, (uint32_t)(v >> 32));
}

int buf_bytes(struct buf *b, const void *p, size_t n)
{
	if (n > UINT32_MAX) {
		b->err = -E2BIG;
		return b->err;
	}
	(void)buf_u32(b, (uint32_t)n);
	return buf_put(b, p, n);
}

int buf_str(struct buf *b, const char *s)
{
	return buf_bytes(b, s ? s : "", s ? strlen(s) : 0);
}

void buf_drop(struct buf *b, size_t n)
{
	assert(n <= b->len);
	if (!n)
		return;
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
	b->data[b->len] = '\0';
}

int buf_put_sh(struct buf *b, const char *word)
{
	(void)buf_putc(b, '\'');
	for (; *word; word++)
		if (*word == '\'')
			(void)buf_puts(b, "'\\''");
		else
			(void)buf_putc(b, *word);
	return buf_putc(b, '\'');
}

const char *buf_text(const struct buf *b)
{
	return b->data ? b->data : "";
}

int buf_write(struct buf *b, int fd)
{
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < b->len) {
		ssize_t n = write(fd, b->data + at, b->len - at);

		if (n > 0)
			at += (size_t)n;
		else if (n == 0 || errno != EINTR)
			r = n == 0 ? -EIO : -errno;
	}
	buf_reset(b);
	return r;
}
