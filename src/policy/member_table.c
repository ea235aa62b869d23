#include "policy/member_table.h"

#include <errno.h>
#include <sodium/crypto_shorthash.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

_Static_assert(MEMBER_KEY == crypto_shorthash_KEYBYTES, "SipHash key");
_Static_assert(PATH_MEMBER_MAX <= UINT16_MAX && LINK_TARGET_MAX <= UINT16_MAX,
	       "lengths of a link record");

#define KIND_MASK UINT64_C(15)
#define FIRST_CAP 1024

uint64_t path_table_hash(const struct path_table *t, const char *p, size_t n)
{
	uint64_t h;

	(void)crypto_shorthash((unsigned char *)&h, (const unsigned char *)p, n, t->key);
	return h & ~KIND_MASK; /* a word with its kind is never 0, which marks a free slot */
}

static size_t slot_of(const uint64_t *words, size_t cap, uint64_t hash)
{
	size_t i = (size_t)(hash >> 4) & (cap - 1);

	while (words[i] && (words[i] & ~KIND_MASK) != hash)
		i = (i + 1) & (cap - 1);
	return i;
}

enum path_kind path_table_get(const struct path_table *t, uint64_t hash)
{
	if (!t->cap)
		return PK_NONE;
	return (enum path_kind)(t->words[slot_of(t->words, t->cap, hash)] & KIND_MASK);
}

static int grow(struct path_table *t)
{
	size_t cap = t->cap ? t->cap * 2 : FIRST_CAP;
	uint64_t *words = calloc(cap, sizeof(*words));

	if (!words)
		return -ENOMEM;
	for (size_t i = 0; i < t->cap; i++)
		if (t->words[i])
			words[slot_of(words, cap, t->words[i] & ~KIND_MASK)] = t->words[i];
	free(t->words);
	t->words = words;
	t->cap = cap;
	return 0;
}

int path_table_set(struct path_table *t, uint64_t hash, enum path_kind kind)
{
	size_t i;

	if (t->cap) {
		i = slot_of(t->words, t->cap, hash);
		if (t->words[i]) {
			t->words[i] = hash | (uint64_t)kind;
			return 0;
		}
	}
	if (t->used == MEMBER_PATHS_MAX)
		return -E2BIG;
	/* At most three quarters full, so probes stay short. */
	if (t->used >= t->cap / 4 * 3) {
		int r = grow(t);

		if (r)
			return r;
	}
	t->words[slot_of(t->words, t->cap, hash)] = hash | (uint64_t)kind;
	t->used++;
	return 0;
}

void path_table_done(struct path_table *t)
{
	free(t->words);
	t->words = NULL;
	t->cap = t->used = 0;
}

enum { RECORD = 5, FLAG_REFUSED = 1, FLAG_UNCHANGED = 2 };

void link_table_init(struct link_table *t)
{
	*t = (struct link_table){.text = BUF_INIT(MEMBER_LINK_BYTES_MAX)};
}

void link_table_done(struct link_table *t)
{
	buf_done(&t->text);
	free(t->slots);
	t->slots = NULL;
	t->cap = t->used = 0;
}

static size_t record_get(const struct link_table *t, size_t off, struct link *ret)
{
	const char *p = t->text.data + off;
	uint16_t np, nt;

	memcpy(&np, p, 2);
	memcpy(&nt, p + 2, 2);
	*ret = (struct link){.path = {p + RECORD, np},
			     .target = {p + RECORD + np, nt},
			     .refused = p[4] & FLAG_REFUSED,
			     .unchanged = p[4] & FLAG_UNCHANGED};
	return off + RECORD + np + nt;
}

/* The slot that holds path, or the free one where it belongs. */
static size_t link_slot(const struct link_table *t, uint64_t hash, struct view path)
{
	size_t i = (size_t)(hash >> 4) & (t->cap - 1);
	struct link l;

	for (; t->slots[i]; i = (i + 1) & (t->cap - 1)) {
		(void)record_get(t, t->slots[i] - 1, &l);
		if (l.path.n == path.n && memcmp(l.path.p, path.p, path.n) == 0)
			break;
	}
	return i;
}

static int link_grow(struct link_table *t, const struct path_table *paths)
{
	size_t cap = t->cap ? t->cap * 2 : 64, off = 0;
	uint32_t *slots = calloc(cap, sizeof(*slots));
	struct link l;

	if (!slots)
		return -ENOMEM;
	free(t->slots);
	t->slots = slots;
	t->cap = cap;
	while (off < t->text.len) {
		size_t next = record_get(t, off, &l);

		t->slots[link_slot(t, path_table_hash(paths, l.path.p, l.path.n), l.path)] =
		    (uint32_t)off + 1;
		off = next;
	}
	return 0;
}

int link_table_add(struct link_table *t, uint64_t hash, const struct link *l,
		   const struct path_table *paths)
{
	uint16_t np = (uint16_t)l->path.n, nt = (uint16_t)l->target.n;
	size_t off = t->text.len;
	char head[RECORD];
	int r;

	if (t->used >= t->cap / 4 * 3 && (r = link_grow(t, paths)))
		return r;
	memcpy(head, &np, 2);
	memcpy(head + 2, &nt, 2);
	head[4] = (char)((l->refused ? FLAG_REFUSED : 0) | (l->unchanged ? FLAG_UNCHANGED : 0));
	if (!buf_room(&t->text, (size_t)RECORD + np + nt))
		return t->text.err;
	(void)buf_put(&t->text, head, RECORD);
	(void)buf_put(&t->text, l->path.p, np);
	(void)buf_put(&t->text, l->target.p, nt);
	t->slots[link_slot(t, hash, l->path)] = (uint32_t)off + 1;
	t->used++;
	return 0;
}

bool link_table_find(const struct link_table *t, uint64_t hash, struct view path, struct link *ret)
{
	size_t i;

	if (!t->cap)
		return false;
	i = link_slot(t, hash, path);
	if (!t->slots[i])
		return false;
	(void)record_get(t, t->slots[i] - 1, ret);
	return true;
}

void link_table_refuse(struct link_table *t, uint64_t hash, struct view path)
{
	size_t i = t->cap ? link_slot(t, hash, path) : 0;

	if (t->cap && t->slots[i])
		t->text.data[t->slots[i] - 1 + 4] |= FLAG_REFUSED;
}

bool link_table_next(const struct link_table *t, size_t *pos, struct link *ret)
{
	if (*pos >= t->text.len)
		return false;
	*pos = record_get(t, *pos, ret);
	return true;
}
