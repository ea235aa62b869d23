#include "wire/frame.h"

#include <errno.h>

#include "base/limits.h"

int frame_put(struct buf *out, uint8_t type, uint8_t nfds, const void *payload, size_t n)
{
	if (n > FRAME_MAX)
		return -E2BIG;
	(void)buf_u32(out, (uint32_t)n);
	(void)buf_u8(out, FRAME_VERSION);
	(void)buf_u8(out, type);
	(void)buf_u8(out, nfds);
	(void)buf_u8(out, 0);
	return buf_put(out, payload, n);
}

long frame_parse(const void *p, size_t n, struct frame *ret)
{
	struct cursor c;
	uint32_t len;
	uint8_t version, type, nfds, zero;

	if (n < FRAME_HEADER)
		return 0;
	cursor_init(&c, p, n);
	len = cursor_u32(&c);
	version = cursor_u8(&c);
	type = cursor_u8(&c);
	nfds = cursor_u8(&c);
	zero = cursor_u8(&c);
	if (len > FRAME_MAX || version != FRAME_VERSION || zero != 0 || nfds > FRAME_FDS_MAX)
		return -EPROTO;
	if (c.left < len)
		return 0;
	*ret = (struct frame){type, nfds, {(const char *)c.p, len}};
	return (long)(FRAME_HEADER + len);
}
