/*
 * counts.h: a struct of counts in a frame. It consists of uint64_t and nothing else, and the order of its members is that of the frame.
 */
#ifndef AIRLOCK_BRIDGE_COUNTS_H
#define AIRLOCK_BRIDGE_COUNTS_H

#include <errno.h>

#include "base/buf.h"
#include "base/cursor.h"

/* 0, -E2BIG, -ENOMEM. size: bytes of the struct. */
static inline int counts_put(struct buf *b, const void *counts, size_t size)
{
	const uint64_t *v = counts;

	for (size_t i = 0; i < size / sizeof(*v); i++)
		(void)buf_u64(b, v[i]);
	return b->err;
}

/* 0 or -EPROTO. */
static inline int counts_get(struct view in, void *counts, size_t size)
{
	uint64_t *v = counts;
	struct cursor c;

	cursor_init(&c, in.p, in.n);
	for (size_t i = 0; i < size / sizeof(*v); i++)
		v[i] = cursor_u64(&c);
	return cursor_end(&c) ? 0 : -EPROTO;
}

#endif
