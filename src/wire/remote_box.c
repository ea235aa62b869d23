#include "wire/remote_box.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/path.h"

#define HASH_LEN 64
#define TEXT_MAX 1024

static bool hash_fits(const char *s)
{
	return strlen(s) == HASH_LEN && strspn(s, "0123456789abcdef") == HASH_LEN;
}

static bool path_fits(const char *s)
{
	return !s[0] || (strlen(s) < PATH_MEMBER_MAX && path_is_absolute_normal(s));
}

static bool box_fits(const struct rm_box *m)
{
	return hash_fits(m->launch) && (!m->gateway[0] || hash_fits(m->gateway)) &&
	       path_fits(m->run) && path_fits(m->guest) && path_fits(m->gateway_path);
}

int rm_box_put(struct buf *b, const struct rm_box *m)
{
	if (!box_fits(m))
		return -EINVAL;
	(void)buf_u32(b, m->net);
	(void)buf_u32(b, m->without);
	(void)buf_u64(b, m->memory_bytes);
	(void)buf_u64(b, m->pids);
	(void)buf_u64(b, m->cpu_milli);
	(void)buf_str(b, m->launch);
	(void)buf_str(b, m->gateway);
	(void)buf_str(b, m->run);
	(void)buf_str(b, m->guest);
	return buf_str(b, m->gateway_path);
}

int rm_box_get(struct view p, struct rm_box *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct rm_box){.net = cursor_u32(&c)};
	ret->without = cursor_u32(&c);
	ret->memory_bytes = cursor_u64(&c);
	ret->pids = cursor_u64(&c);
	ret->cpu_milli = cursor_u64(&c);
	ret->launch = cursor_strdup(&c, HASH_LEN);
	ret->gateway = cursor_strdup(&c, HASH_LEN);
	ret->run = cursor_strdup(&c, PATH_MEMBER_MAX);
	ret->guest = cursor_strdup(&c, PATH_MEMBER_MAX);
	ret->gateway_path = cursor_strdup(&c, PATH_MEMBER_MAX);
	return ret->launch && ret->gateway && ret->run && ret->guest && ret->gateway_path &&
		       cursor_end(&c) && box_fits(ret)
		   ? 0
		   : -EPROTO;
}

void rm_box_done(struct rm_box *m)
{
	free(m->launch);
	free(m->gateway);
	free(m->run);
	free(m->guest);
	free(m->gateway_path);
	*m = (struct rm_box){0};
}

int rm_not_boxed_put(struct buf *b, const struct rm_not_boxed *m)
{
	(void)buf_u32(b, m->step);
	(void)buf_u32(b, m->error);
	return buf_bytes(b, m->text, strnlen(m->text, TEXT_MAX));
}

int rm_not_boxed_get(struct view p, struct rm_not_boxed *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct rm_not_boxed){.step = cursor_u32(&c)};
	ret->error = cursor_u32(&c);
	ret->text = cursor_strdup(&c, TEXT_MAX);
	return ret->text && cursor_end(&c) ? 0 : -EPROTO;
}
