#include "wire/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/path.h"

#define LEASE_NAME_MAX 64
#define WORD_MAX 128

/* A name of a directory of our own: no separator, no dot first. */
static bool name_fits(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= LEASE_NAME_MAX && s[0] != '.' && !strchr(s, '/');
}

bool rm_base_fits(const char *s)
{
	return !s[0] || name_fits(s);
}

static bool open_fits(const struct rm_open *m)
{
	return !(m->flags & ~(RO_REMOVE | RO_SHARED | RO_CLEAN | RO_RESUME | RO_IN_PLACE)) &&
	       strlen(m->root) < PATH_MEMBER_MAX / 2 && path_is_absolute_normal(m->root) &&
	       name_fits(m->lease) && rm_base_fits(m->base);
}

int rm_open_put(struct buf *b, const struct rm_open *m)
{
	if (!open_fits(m))
		return -EINVAL;
	(void)buf_u32(b, m->flags);
	(void)buf_str(b, m->root);
	(void)buf_str(b, m->lease);
	(void)buf_str(b, m->base);
	return buf_u32(b, m->owner);
}

int rm_open_get(struct view p, struct rm_open *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct rm_open){.flags = cursor_u32(&c)};
	ret->root = cursor_strdup(&c, PATH_MEMBER_MAX);
	ret->lease = cursor_strdup(&c, LEASE_NAME_MAX);
	ret->base = cursor_strdup(&c, LEASE_NAME_MAX);
	ret->owner = cursor_u32(&c);
	return ret->root && ret->lease && ret->base && cursor_end(&c) && open_fits(ret) ? 0
											: -EPROTO;
}

void rm_open_done(struct rm_open *m)
{
	free(m->root);
	free(m->lease);
	free(m->base);
	*m = (struct rm_open){0};
}

bool rm_want_has(const struct rm_want *m, uint64_t entry)
{
	return !m->bits || (entry < m->count && m->bits[entry / 8] & 1u << entry % 8);
}

void rm_want_done(struct rm_want *m)
{
	free(m->bits);
	*m = (struct rm_want){0};
}

int rm_parts_put(struct buf *b, const struct rm_want *m)
{
	(void)buf_u32(b, (uint32_t)m->parts);
	for (size_t i = 0; i < m->parts; i++) {
		(void)buf_u64(b, m->part[i].entry);
		(void)buf_u64(b, m->part[i].have);
		(void)buf_put(b, (const char *)m->part[i].hash, RM_PART_HASH);
	}
	return b->err;
}

int rm_parts_get(struct view p, uint32_t parts, struct rm_want *ret)
{
	struct cursor c;

	if (parts > RM_PARTS_MAX || p.n != parts * (size_t)RM_PART_BYTES)
		return -EPROTO;
	for (ret->parts = 0; ret->parts < parts; ret->parts++) {
		struct rm_part *t = &ret->part[ret->parts];

		cursor_init(&c, p.p + ret->parts * RM_PART_BYTES, RM_PART_BYTES);
		t->entry = cursor_u64(&c);
		t->have = cursor_u64(&c);
		memcpy(t->hash, c.p, RM_PART_HASH);
		if (c.left != RM_PART_HASH || !rm_want_has(ret, t->entry) || !t->have ||
		    (ret->parts && t->entry <= t[-1].entry))
			return -EPROTO;
	}
	return 0;
}

int rm_cleaned_put(struct buf *b, const struct rm_cleaned *m)
{
	(void)buf_u32(b, m->programs);
	(void)buf_u32(b, m->runs);
	(void)buf_u32(b, m->held);
	return buf_u32(b, m->busy);
}

int rm_cleaned_get(struct view p, struct rm_cleaned *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	ret->programs = cursor_u32(&c);
	ret->runs = cursor_u32(&c);
	ret->held = cursor_u32(&c);
	ret->busy = cursor_u32(&c);
	return cursor_end(&c) ? 0 : -EPROTO;
}

int rm_fault_put(struct buf *b, uint32_t error, const char *what)
{
	(void)buf_u32(b, error);
	return buf_bytes(b, what, strnlen(what, RM_WHAT_MAX));
}

int rm_fault_get(struct view p, struct rm_fault *ret)
{
	struct view what;
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct rm_fault){.error = cursor_u32(&c)};
	what = cursor_bytes(&c, RM_WHAT_MAX);
	if (!cursor_end(&c) || ret->error > 4095 || (what.n && memchr(what.p, '\0', what.n)))
		return -EPROTO;
	if (what.n)
		memcpy(ret->what, what.p, what.n);
	return 0;
}

int rm_landed_put(struct buf *b, uint32_t error, const char *what, const struct rm_index *x)
{
	(void)rm_fault_put(b, error, what);
	return buf_put(b, (const char *)x->sum, sizeof(x->sum));
}

int rm_landed_get(struct view p, struct rm_fault *ret, struct rm_index *ret_index)
{
	const size_t n = sizeof(ret_index->sum);

	if (p.n < n)
		return -EPROTO;
	memcpy(ret_index->sum, p.p + p.n - n, n);
	return rm_fault_get((struct view){p.p, p.n - n}, ret);
}

int rm_setup_put(struct buf *b, const struct rm_setup *m)
{
	(void)buf_str(b, m->hash);
	(void)buf_str(b, m->machine);
	(void)buf_u64(b, m->size);
	(void)buf_u32(b, m->shell_ms);
	(void)buf_u32(b, m->upload_ms);
	return buf_u32(b, m->silent_ms);
}

int rm_setup_get(struct view p, struct rm_setup *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct rm_setup){.hash = cursor_strdup(&c, WORD_MAX)};
	ret->machine = cursor_strdup(&c, WORD_MAX);
	ret->size = cursor_u64(&c);
	ret->shell_ms = cursor_u32(&c);
	ret->upload_ms = cursor_u32(&c);
	ret->silent_ms = cursor_u32(&c);
	return ret->hash && ret->machine && cursor_end(&c) ? 0 : -EPROTO;
}

void rm_setup_done(struct rm_setup *m)
{
	free(m->hash);
	free(m->machine);
	*m = (struct rm_setup){0};
}
