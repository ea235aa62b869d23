#include "guest/outbox.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "wire/frame.h"

#define OUTBOX_HIGH 65536
#define OUTBOX_MAX (1 << 20)

void outbox_init(struct outbox *o, int fd)
{
	*o = (struct outbox){.fd = fd};
	buf_init(&o->b, OUTBOX_MAX);
}

bool outbox_full(const struct outbox *o)
{
	return o->b.len >= OUTBOX_HIGH;
}

void outbox_flush(struct outbox *o)
{
	size_t at = 0;

	while (!o->gone && at < o->b.len) {
		ssize_t n = send(o->fd, o->b.data + at, o->b.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			at += (size_t)n;
		else if (errno == EAGAIN || errno == ENOBUFS)
			break;
		else if (errno != EINTR)
			o->gone = true;
	}
	buf_drop(&o->b, o->gone ? o->b.len : at);
}

void outbox_put(struct outbox *o, uint8_t type, const struct buf *payload)
{
	if (!o->gone && frame_put(&o->b, type, 0, buf_text(payload), payload->len) < 0)
		o->broken = true;
}

void outbox_started(struct outbox *o, uint32_t id, uint32_t pid)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	(void)buf_u32(&b, id);
	(void)buf_u32(&b, pid);
	outbox_put(o, GM_STARTED, &b);
}

void outbox_failed(struct outbox *o, uint32_t id, int error, const char *step)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);
	struct gm_failed m = {.id = id, .error = (uint32_t)error};

	(void)snprintf(m.step, sizeof(m.step), "%s", step);
	if (gm_failed_put(&b, &m) == 0)
		outbox_put(o, GM_FAILED, &b);
}

void outbox_exited(struct outbox *o, const struct gm_exited *m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);

	if (gm_exited_put(&b, m) == 0)
		outbox_put(o, GM_EXITED, &b);
}

void outbox_packed(struct outbox *o, const struct gm_packed *m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);

	if (gm_packed_put(&b, m) == 0)
		outbox_put(o, GM_PACKED, &b);
}
