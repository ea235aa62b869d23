/*
 * Door 1: maps of sparse members.
 *
 * Policy: extents rise, do not overlap and are at most TAR_SPARSE_MAX; a file of gigabytes in a
 * header of bytes is counted by its logical size (the reader does that), and a map that goes
 * backwards, so that bytes judged once are overwritten later, is hostile.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/tar_internal.h"

void tar_sparse_reset(struct tar_sparse *s)
{
	s->n = 0;
	s->end = s->stored = 0;
	/* A big map is one member's business, not the whole stream's. */
	if (s->cap > 4096)
		tar_sparse_done(s);
}

void tar_sparse_done(struct tar_sparse *s)
{
	free(s->v);
	*s = (struct tar_sparse){0};
}

const char *tar_sparse_add(struct tar_sparse *s, uint64_t off, uint64_t len)
{
	if (off > MEMBER_SIZE_MAX || len > MEMBER_SIZE_MAX - off || off < s->end)
		return "bad_sparse";
	if (s->n == TAR_SPARSE_MAX)
		return "limit";
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 16;
		struct tar_extent *v = reallocarray(s->v, cap, sizeof(*v));

		if (!v)
			return tar_nomem;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = (struct tar_extent){off, len};
	s->end = off + len;
	s->stored += len; /* cannot wrap: extents do not overlap below 2^53 */
	return NULL;
}

const char *tar_sparse_gnu(struct tar_sparse *s, const uint8_t *p, size_t pairs)
{
	static const uint8_t zero[24];
	bool ended = false;

	for (size_t i = 0; i < pairs; i++, p += 24) {
		uint64_t off = 0, len = 0;
		const char *rule;

		if (memcmp(p, zero, 24) == 0) {
			ended = true;
			continue;
		}
		/* One program stops at an empty offset, another at an empty length. */
		if (ended || p[0] == '\0' || p[12] == '\0')
			return "bad_sparse";
		if ((rule = tar_field_u64(p, 12, &off)) ||
		    (rule = tar_field_u64(p + 12, 12, &len)) ||
		    (rule = tar_sparse_add(s, off, len)))
			return rule;
	}
	return NULL;
}

const char *tar_sparse_map(struct tar_sparse *s, struct view text)
{
	uint64_t v = 0, off = 0;
	bool have_off = false;
	unsigned digits = 0;

	tar_sparse_reset(s);
	if (text.n == 0)
		return NULL;
	for (size_t i = 0; i <= text.n; i++) {
		const char *rule;

		if (i < text.n && text.p[i] >= '0' && text.p[i] <= '9' && digits < 18) {
			v = v * 10 + (uint64_t)(text.p[i] - '0');
			digits++;
			continue;
		}
		if (digits == 0 || (i < text.n && text.p[i] != ','))
			return "bad_sparse";
		if (have_off && (rule = tar_sparse_add(s, off, v)))
			return rule;
		off = v;
		have_off = !have_off;
		v = 0;
		digits = 0;
	}
	return have_off ? "bad_sparse" : NULL;
}

int tar_map1_feed(struct tar_map1 *m, uint8_t c, struct tar_sparse *s, const char **rule)
{
	*rule = "bad_sparse";
	if (c >= '0' && c <= '9' && m->digits < 18) {
		m->value = m->value * 10 + (uint64_t)(c - '0');
		m->digits++;
		return 0;
	}
	if (c != '\n' || m->digits == 0)
		return -1;
	if (!m->have_count) {
		if (m->value > TAR_SPARSE_MAX) {
			*rule = "limit";
			return -1;
		}
		m->have_count = true;
		m->want = m->value * 2;
	} else if (m->seen++ % 2 == 0) {
		m->off = m->value;
	} else if ((*rule = tar_sparse_add(s, m->off, m->value))) {
		return -1;
	}
	m->value = 0;
	m->digits = 0;
	return m->seen == m->want;
}
