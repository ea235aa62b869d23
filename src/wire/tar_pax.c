/*
 * Door 1: extension headers (PAX `x` and `g`, GNU `L` and `K`).
 *
 * Policy: a record has an exact length, a key and '='; the last of two equal keys wins. Known
 * keys must have clean values; keys that change what the data of a member means in some other
 * dialect are hostile rather than ignored; all the rest (owners, attributes, access lists, labels)
 * is ignored and so never reaches the host. A global header may not name, size or mark members:
 * nobody needs it and it acts at a distance.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "wire/tar_internal.h"

void tar_ext_init(struct tar_ext *x)
{
	*x = (struct tar_ext){.path = BUF_INIT(PATH_MEMBER_MAX + 1),
			      .link = BUF_INIT(PATH_MEMBER_MAX + 1),
			      .sparse_name = BUF_INIT(PATH_MEMBER_MAX + 1)};
}

void tar_ext_reset(struct tar_ext *x)
{
	struct buf path = x->path, link = x->link, name = x->sparse_name;
	struct tar_sparse map = x->map;

	buf_reset(&path);
	buf_reset(&link);
	buf_reset(&name);
	tar_sparse_reset(&map);
	*x = (struct tar_ext){.path = path, .link = link, .sparse_name = name, .map = map};
}

void tar_ext_done(struct tar_ext *x)
{
	buf_done(&x->path);
	buf_done(&x->link);
	buf_done(&x->sparse_name);
	tar_sparse_done(&x->map);
}

static const char *keep(struct buf *b, struct view v, size_t max, const char *too_long)
{
	if (v.n > max)
		return too_long;
	if (v.n && memchr(v.p, '\0', v.n))
		return "nul_in_name";
	buf_reset(b);
	return buf_put(b, v.p, v.n) ? tar_nomem : NULL;
}

static const char *decimal(struct view v, uint64_t *ret)
{
	uint64_t x = 0;

	if (v.n == 0)
		return "bad_pax";
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return "bad_pax";
		/* Keeps counting as "too big" without wrapping. */
		x = x > MEMBER_SIZE_MAX ? x : x * 10 + (uint64_t)(v.p[i] - '0');
	}
	if (x > MEMBER_SIZE_MAX)
		return "limit";
	*ret = x;
	return NULL;
}

/* [-]seconds[.fraction], any number of digits; out of range is clamped. */
static const char *pax_time(struct view v, int64_t *ret_ns)
{
	bool neg = v.n > 0 && v.p[0] == '-';
	size_t i = neg, first = i;
	int64_t s = 0, ns = 0, unit = NS_PER_S;

	for (; i < v.n && v.p[i] >= '0' && v.p[i] <= '9'; i++)
		s = s > TAR_MTIME_MAX_S ? s : s * 10 + (v.p[i] - '0');
	if (i == first)
		return "bad_pax";
	if (i < v.n && v.p[i] == '.')
		for (i++; i < v.n && v.p[i] >= '0' && v.p[i] <= '9'; i++) {
			unit /= 10;
			ns += (v.p[i] - '0') * unit;
		}
	if (i != v.n)
		return "bad_pax";
	*ret_ns = s >= TAR_MTIME_MAX_S ? TAR_MTIME_MAX_S * NS_PER_S - 1 : s * NS_PER_S + ns;
	if (neg)
		*ret_ns = -*ret_ns;
	return NULL;
}

static bool key_is(struct view k, const char *name)
{
	return k.n == strlen(name) && memcmp(k.p, name, k.n) == 0;
}

static bool key_starts(struct view k, const char *name)
{
	return k.n >= strlen(name) && memcmp(k.p, name, strlen(name)) == 0;
}

static const char *sparse_pair(struct tar_ext *x, struct view k, struct view v)
{
	uint64_t len = 0;
	const char *rule;

	if (key_is(k, "offset")) {
		if (x->sparse_keys & SPARSE_OPEN)
			return "bad_sparse";
		x->sparse_keys |= SPARSE_LIST | SPARSE_OPEN;
		return decimal(v, &x->sparse_off);
	}
	if (!(x->sparse_keys & SPARSE_OPEN))
		return "bad_sparse";
	x->sparse_keys &= ~(unsigned)SPARSE_OPEN;
	rule = decimal(v, &len);
	return rule ? rule : tar_sparse_add(&x->map, x->sparse_off, len);
}

static const char *sparse_record(struct tar_ext *x, struct view k, struct view v)
{
	const struct {
		const char *name;
		enum tar_sparse_key key;
		uint64_t *to;
	} numbers[] = {
	    {"major", SPARSE_MAJOR, &x->sparse_major},
	    {"minor", SPARSE_MINOR, &x->sparse_minor},
	    {"size", SPARSE_SIZE, &x->sparse_size},
	    {"realsize", SPARSE_REALSIZE, &x->sparse_size},
	    {"numblocks", SPARSE_BLOCKS, &x->sparse_blocks},
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (key_is(k, numbers[i].name)) {
			x->sparse_keys |= numbers[i].key;
			return decimal(v, numbers[i].to);
		}
	if (key_is(k, "name")) {
		x->sparse_keys |= SPARSE_NAME;
		return keep(&x->sparse_name, v, PATH_MEMBER_MAX, "name_too_long");
	}
	if (key_is(k, "map")) {
		/* The list and the map of one member would be two answers to one question. */
		if (x->sparse_keys & SPARSE_LIST)
			return "bad_sparse";
		x->sparse_keys |= SPARSE_MAP;
		return tar_sparse_map(&x->map, v);
	}
	if ((key_is(k, "offset") || key_is(k, "numbytes")) && !(x->sparse_keys & SPARSE_MAP))
		return sparse_pair(x, k, v);
	return "bad_sparse";
}

static const char *op_record(struct tar_ext *x, struct view k, struct view v)
{
	if (!key_is(k, "AIRLOCK.op"))
		return "bad_op";
	if (key_is(v, "delete"))
		x->op = TAR_OP_DELETE;
	else if (key_is(v, "opaque"))
		x->op = TAR_OP_OPAQUE;
	else if (key_is(v, "unreadable"))
		x->op = TAR_OP_UNREADABLE;
	else
		return "bad_op";
	return NULL;
}

static const char *record(struct tar_ext *x, struct view k, struct view v, bool global)
{
	static const char sparse[] = "GNU.sparse.";
	bool acts = key_is(k, "path") || key_is(k, "linkpath") || key_is(k, "size") ||
		    key_starts(k, sparse) || key_starts(k, "AIRLOCK.");

	if (acts && global)
		return "global_override";
	if (key_is(k, "path")) {
		x->has_path = true;
		return keep(&x->path, v, PATH_MEMBER_MAX, "name_too_long");
	}
	if (key_is(k, "linkpath")) {
		x->has_link = true;
		return keep(&x->link, v, LINK_TARGET_MAX, "target_too_long");
	}
	if (key_is(k, "size")) {
		x->has_size = true;
		return decimal(v, &x->size);
	}
	if (key_is(k, "mtime")) {
		x->has_mtime = true;
		return pax_time(v, &x->mtime_ns);
	}
	if (key_starts(k, sparse)) {
		const size_t n = sizeof(sparse) - 1;

		return sparse_record(x, (struct view){k.p + n, k.n - n}, v);
	}
	if (key_starts(k, "AIRLOCK."))
		return op_record(x, k, v);
	/* Dialects in which the data that follows is no longer just the file. */
	if (key_is(k, "SCHILY.realsize") || key_is(k, "SUN.holesdata"))
		return "bad_sparse";
	if (key_is(k, "GNU.dumpdir") || key_is(k, "GNU.volume.filename") ||
	    key_is(k, "GNU.volume.size") || key_is(k, "GNU.volume.offset"))
		return "bad_type";
	return NULL;
}

const char *tar_pax_parse(struct tar_ext *x, const char *p, size_t n, bool global)
{
	while (n > 0) {
		size_t len = 0, i = 0, key;
		const char *eq, *rule;

		for (; i < n && i < 8 && p[i] >= '0' && p[i] <= '9'; i++)
			len = len * 10 + (size_t)(p[i] - '0');
		if (i == 0 || i == n || p[i] != ' ' || p[0] == '0' || len > n || len < i + 4)
			return "bad_pax";
		key = i + 1;
		eq = memchr(p + key, '=', len - key);
		if (p[len - 1] != '\n' || !eq || eq == p + key ||
		    memchr(p + key, '\0', (size_t)(eq - p) - key))
			return "bad_pax";
		rule = record(x, (struct view){p + key, (size_t)(eq - p) - key},
			      (struct view){eq + 1, (size_t)(p + len - 1 - (eq + 1))}, global);
		if (rule)
			return rule;
		p += len;
		n -= len;
	}
	return NULL;
}

const char *tar_gnu_long(struct tar_ext *x, const char *p, size_t n, bool link)
{
	size_t len = strnlen(p, n);
	struct view v = {p, len};

	for (size_t i = len; i < n; i++)
		if (p[i])
			return "nul_in_name";
	if (link) {
		x->has_link = true;
		return keep(&x->link, v, LINK_TARGET_MAX, "target_too_long");
	}
	x->has_path = true;
	return keep(&x->path, v, PATH_MEMBER_MAX, "name_too_long");
}
