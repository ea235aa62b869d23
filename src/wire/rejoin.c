#include "wire/rejoin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/path.h"
#include "wire/remote.h"

static bool place_fits(const struct rm_keep *m)
{
	return m->grace_ms > 0 && m->grace_ms <= REMOTE_GRACE_MAX_S * 1000u &&
	       strlen(m->root) < PATH_MEMBER_MAX / 2 && path_is_absolute_normal(m->root) &&
	       m->lease[0] && strlen(m->lease) <= RM_BASE_MAX && rm_base_fits(m->lease);
}

static void put_place(struct buf *b, const struct rm_keep *m)
{
	(void)buf_u32(b, m->grace_ms);
	(void)buf_str(b, m->root);
	(void)buf_str(b, m->lease);
}

static void get_place(struct cursor *c, struct rm_keep *ret)
{
	*ret = (struct rm_keep){.grace_ms = cursor_u32(c)};
	ret->root = cursor_strdup(c, PATH_MEMBER_MAX);
	ret->lease = cursor_strdup(c, RM_BASE_MAX);
}

int rm_keep_put(struct buf *b, const struct rm_keep *m)
{
	if (!place_fits(m))
		return -EINVAL;
	put_place(b, m);
	return b->err;
}

int rm_keep_get(struct view p, struct rm_keep *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	get_place(&c, ret);
	return ret->root && ret->lease && cursor_end(&c) && place_fits(ret) ? 0 : -EPROTO;
}

void rm_keep_done(struct rm_keep *m)
{
	free(m->root);
	free(m->lease);
	*m = (struct rm_keep){0};
}

/* A name that is nothing but digits leads nowhere else. */
static bool hold_fits(const struct rm_hold *m)
{
	return m->grace_ms > 0 && m->grace_ms <= REMOTE_GRACE_MAX_S * 1000u &&
	       strlen(m->id) == RM_JOIN_ID && strspn(m->id, "0123456789abcdef") == RM_JOIN_ID;
}

static void put_hold(struct buf *b, const struct rm_hold *m)
{
	(void)buf_u32(b, m->grace_ms);
	(void)buf_put(b, m->id, RM_JOIN_ID);
	(void)buf_put(b, (const char *)m->token, RM_TOKEN);
}

#define HOLD_BYTES (sizeof(uint32_t) + RM_JOIN_ID + RM_TOKEN)

int rm_hold_put(struct buf *b, const struct rm_hold *m)
{
	if (!hold_fits(m))
		return -EINVAL;
	put_hold(b, m);
	return b->err;
}

int rm_hold_get(struct view p, struct rm_hold *ret)
{
	struct cursor c;

	*ret = (struct rm_hold){0};
	if (p.n != HOLD_BYTES)
		return -EPROTO;
	cursor_init(&c, p.p, p.n);
	ret->grace_ms = cursor_u32(&c);
	memcpy(ret->id, c.p, RM_JOIN_ID);
	memcpy(ret->token, c.p + RM_JOIN_ID, RM_TOKEN);
	return hold_fits(ret) ? 0 : -EPROTO;
}

int rm_attach_put(struct buf *b, const struct rm_attach *m)
{
	if (!hold_fits(&m->hold) || !place_fits(&m->place))
		return -EINVAL;
	put_hold(b, &m->hold);
	(void)buf_u64(b, m->came);
	put_place(b, &m->place);
	return b->err;
}

int rm_attach_get(struct view p, struct rm_attach *ret)
{
	struct cursor c;

	*ret = (struct rm_attach){0};
	if (p.n < HOLD_BYTES || rm_hold_get((struct view){p.p, HOLD_BYTES}, &ret->hold) < 0)
		return -EPROTO;
	cursor_init(&c, p.p + HOLD_BYTES, p.n - HOLD_BYTES);
	ret->came = cursor_u64(&c);
	get_place(&c, &ret->place);
	return ret->place.root && ret->place.lease && cursor_end(&c) && place_fits(&ret->place)
		   ? 0
		   : -EPROTO;
}

void rm_attach_done(struct rm_attach *m)
{
	rm_keep_done(&m->place);
	explicit_bzero(m->hold.token, sizeof(m->hold.token));
}
