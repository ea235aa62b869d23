#include "bridge/proxy_proto.h"

#include <errno.h>

#include "base/limits.h"
#include "bridge/counts.h"

int proxy_put_setup(struct buf *b, const struct proxy_setup *s)
{
	(void)buf_u8(b, s->without_landlock);
	(void)buf_u8(b, s->without_seccomp);
	(void)buf_bytes(b, s->run_id.p, s->run_id.n);
	(void)buf_bytes(b, s->rules.p, s->rules.n);
	return buf_bytes(b, s->pins.p, s->pins.n);
}

static bool words(struct view v)
{
	return v.n == 0 || v.p[v.n - 1] == '\0';
}

int proxy_get_setup(struct view v, struct proxy_setup *ret)
{
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	ret->without_landlock = cursor_u8(&c);
	ret->without_seccomp = cursor_u8(&c);
	ret->run_id = cursor_bytes(&c, BRIDGE_IDENTITY_MAX);
	ret->rules = cursor_bytes(&c, CONFIG_MAX);
	ret->pins = cursor_bytes(&c, CONFIG_MAX);
	return cursor_end(&c) && words(ret->rules) && words(ret->pins) ? 0 : -EPROTO;
}

/* What counts.h asks of it. */
_Static_assert(sizeof(struct proxy_counts) == 7 * sizeof(uint64_t), "counts and nothing else");

int proxy_put_counts(struct buf *b, const struct proxy_counts *c)
{
	return counts_put(b, c, sizeof(*c));
}

int proxy_get_counts(struct view v, struct proxy_counts *ret)
{
	return counts_get(v, ret, sizeof(*ret));
}
