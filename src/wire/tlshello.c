#include "wire/tlshello.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Big-endian reading; a failure sticks. */
struct rd {
	const uint8_t *p;
	size_t n;
	bool bad;
};

static uint32_t num(struct rd *r, unsigned bytes)
{
	uint32_t v = 0;

	if (r->n < bytes) {
		r->bad = true;
		r->n = 0;
		return 0;
	}
	for (unsigned i = 0; i < bytes; i++)
		v = v << 8 | r->p[i];
	r->p += bytes;
	r->n -= bytes;
	return v;
}

static struct rd part(struct rd *r, size_t len)
{
	struct rd sub = {r->p, len, false};

	if (r->n < len) {
		r->bad = true;
		r->n = 0;
		return (struct rd){NULL, 0, true};
	}
	r->p += len;
	r->n -= len;
	return sub;
}

static enum tlshello server_name(struct rd ext, char *name)
{
	struct rd list = part(&ext, num(&ext, 2)), host;

	if (list.bad || ext.n || num(&list, 1) != 0)
		return TLSHELLO_BAD;
	host = part(&list, num(&list, 2));
	/* One name: which of two a server takes is anybody's guess. */
	if (list.bad || host.bad || list.n || host.n == 0 || host.n > TLSHELLO_NAME_MAX ||
	    memchr(host.p, 0, host.n))
		return TLSHELLO_BAD;
	memcpy(name, host.p, host.n);
	name[host.n] = '\0';
	return TLSHELLO_NAME;
}

static enum tlshello client_hello(struct rd h, char *name)
{
	enum tlshello found = TLSHELLO_NONE;
	struct rd exts;

	(void)part(&h, 2 + 32); /* version, random */
	(void)part(&h, num(&h, 1));
	(void)part(&h, num(&h, 2));
	(void)part(&h, num(&h, 1));
	if (h.bad)
		return TLSHELLO_BAD;
	if (h.n == 0)
		return TLSHELLO_NONE;
	exts = part(&h, num(&h, 2));
	if (h.bad || h.n)
		return TLSHELLO_BAD;
	while (exts.n) {
		uint32_t type = num(&exts, 2);
		struct rd ext = part(&exts, num(&exts, 2));

		if (exts.bad || ext.bad)
			return TLSHELLO_BAD;
		if (type != 0)
			continue;
		if (found != TLSHELLO_NONE)
			return TLSHELLO_BAD;
		found = server_name(ext, name);
		if (found == TLSHELLO_BAD)
			return found;
	}
	return found;
}

enum tlshello tlshello_name(const void *data, size_t n, char name[TLSHELLO_NAME_MAX + 1])
{
	uint8_t msg[TLSHELLO_MAX];
	struct rd in = {data, n, false};
	size_t have = 0, want = 4;

	while (have < want) {
		struct rd body;
		size_t len;

		if (n && *(const uint8_t *)data != 22)
			return TLSHELLO_BAD;
		if (in.n >= 1 && in.p[0] != 22)
			return TLSHELLO_BAD;
		if (in.n >= 2 && in.p[1] != 3)
			return TLSHELLO_BAD;
		if (in.n < 5)
			return n >= TLSHELLO_MAX ? TLSHELLO_BAD : TLSHELLO_MORE;
		len = (size_t)in.p[3] << 8 | in.p[4];
		if (len == 0 || len > 16384)
			return TLSHELLO_BAD;
		if (in.n < 5 + len) {
			/* What is there of the message must already be one. */
			if (have == 0 && in.n > 5 && in.p[5] != 1)
				return TLSHELLO_BAD;
			return n >= TLSHELLO_MAX ? TLSHELLO_BAD : TLSHELLO_MORE;
		}
		(void)num(&in, 5 - 1), (void)num(&in, 1);
		body = part(&in, len);
		if (!body.p || have + len > sizeof(msg))
			return TLSHELLO_BAD;
		memcpy(msg + have, body.p, len);
		have += len;
		if (msg[0] != 1)
			return TLSHELLO_BAD;
		if (have >= 4)
			want = 4 + ((size_t)msg[1] << 16 | (size_t)msg[2] << 8 | msg[3]);
		if (want > sizeof(msg))
			return TLSHELLO_BAD;
	}
	return client_hello((struct rd){msg + 4, want - 4, false}, name);
}
