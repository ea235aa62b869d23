/*
 * Door 1: the reader of outbound tar streams.
 *
 * Policy: bytes judged are bytes written. There is one reading of a stream or none: no second
 * program looks at it, nothing is guessed, skipped or decompressed, an extension header that
 * belongs to no member and data behind a member that can have none are hostile, and after the first
 * such finding the reader never yields anything again. Memory: one block, extension headers up to
 * TAR_HEADERS_MAX, one path and one target, the extents of one sparse member; never by a size that
 * the stream claims.
 *
 * Not here: links, duplicates, .git and whatever else needs more than one header (policy/member.h);
 * writing anything (sync/).
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "wire/tar_internal.h"

enum state {
	S_HEADER,     /* a header block or the first zero block */
	S_ZERO,	      /* the second zero block */
	S_SIDE,	      /* payload of an extension header into r->payload */
	S_SIDE_SKIP,  /* payload that is ignored, or padding of a payload */
	S_GNU_SPARSE, /* blocks that continue an old GNU sparse map */
	S_MAP1,	      /* decimal map before the data of a PAX 1.0 sparse member */
	S_MAP1_PAD,
	S_EMIT,
	S_DATA,
	S_DATA_PAD,
	S_MEMBER_END,
	S_END,
};

struct tar_reader {
	struct tar_limits limits;
	enum state state;
	int failed; /* 0, -EBADMSG or -ENOMEM: sticky */
	const char *rule;
	uint64_t fail_offset;

	uint64_t offset; /* bytes consumed */
	uint64_t members, total, headers;
	uint8_t block[TAR_BLOCK]; /* only for blocks that arrive in pieces */
	size_t block_len;

	char side; /* typeflag of the extension header being read */
	uint64_t left, pad;
	struct buf payload;
	struct tar_ext ext;
	bool has_global_mtime;
	int64_t global_mtime_ns;

	struct tar_member member;
	char path[PATH_MEMBER_MAX + 1], target[PATH_MEMBER_MAX + 1];
	struct tar_sparse gnu_map;
	struct tar_sparse *map; /* of the current member, NULL if it is not sparse */
	struct tar_map1 map1;
	uint64_t map1_len;
	size_t extent;	  /* current one */
	uint64_t pos;	  /* data: where in the file; sparse: within the extent */
};

int tar_reader_new(const struct tar_limits *limits, struct tar_reader **ret)
{
	struct tar_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	if (limits)
		r->limits = *limits;
	if (!r->limits.members)
		r->limits.members = MEMBERS_MAX;
	if (!r->limits.member_size || r->limits.member_size > MEMBER_SIZE_MAX)
		r->limits.member_size = MEMBER_SIZE_MAX;
	if (!r->limits.total_size)
		r->limits.total_size = OUT_BYTES_DEFAULT;
	buf_init(&r->payload, TAR_HEADERS_MAX);
	tar_ext_init(&r->ext);
	*ret = r;
	return 0;
}

void tar_reader_free(struct tar_reader *r)
{
	if (!r)
		return;
	buf_done(&r->payload);
	tar_ext_done(&r->ext);
	tar_sparse_done(&r->gnu_map);
	free(r);
}

static int fail(struct tar_reader *r, const char *rule)
{
	r->failed = rule == tar_nomem ? -ENOMEM : -EBADMSG;
	r->rule = rule;
	r->fail_offset = r->offset;
	return r->failed;
}

static int report(const struct tar_reader *r, struct tar_out *out, struct err *e)
{
	_cleanup_buf_ struct buf name = BUF_INIT(256);

	if (r->failed == -ENOMEM)
		return err_set(e, ERR_NOMEM, "out of memory while reading the outbound stream at byte %llu",
			       (unsigned long long)r->fail_offset);
	out->rule = r->rule;
	out->offset = r->fail_offset;
	(void)str_printable(&name, r->path, strnlen(r->path, 120));
	return err_set(e, ERR_HOSTILE, "outbound stream rejected at byte %llu by rule %s: %s%s%s; the workspace was not touched",
		       (unsigned long long)r->fail_offset, r->rule, tar_rule_text(r->rule),
		       name.len ? "; last member: " : "", buf_text(&name));
}

/* One whole block, in place where the input holds it; NULL: more input is needed. */
static const uint8_t *take_block(struct tar_reader *r, const uint8_t **p, size_t *n)
{
	const uint8_t *b = *p;
	size_t k = TAR_BLOCK - r->block_len;

	if (r->block_len == 0 && *n >= TAR_BLOCK) {
		*p += TAR_BLOCK;
		*n -= TAR_BLOCK;
		r->offset += TAR_BLOCK;
		return b;
	}
	if (k > *n)
		k = *n;
	if (k)
		memcpy(r->block + r->block_len, *p, k);
	r->block_len += k;
	*p += k;
	*n -= k;
	r->offset += k;
	if (r->block_len < TAR_BLOCK)
		return NULL;
	r->block_len = 0;
	return r->block;
}

static size_t take_some(struct tar_reader *r, const uint8_t **p, size_t *n, uint64_t max)
{
	size_t k = max < *n ? (size_t)max : *n;

	*p += k;
	*n -= k;
	r->offset += k;
	return k;
}

static uint64_t padding(uint64_t size)
{
	return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

/* Extension headers: what may stand where, and how long it may be. */
static const char *side_begin(struct tar_reader *r, const struct tar_head *h)
{
	bool pax = h->typeflag == 'x' || h->typeflag == 'g', gnu = h->typeflag == 'L' || h->typeflag == 'K';
	bool pending = r->ext.pax || r->ext.gnu;

	if ((pax && h->format != TAR_USTAR) || (gnu && h->format != TAR_GNU))
		return "format_mix";
	if (gnu ? r->ext.pax || (h->typeflag == 'L' ? r->ext.has_path : r->ext.has_link) : pending)
		return "extension_order";
	if (h->typeflag == 'L' && h->size > PATH_MEMBER_MAX + 1)
		return "name_too_long";
	if (h->typeflag == 'K' && h->size > LINK_TARGET_MAX + 1)
		return "target_too_long";
	/* Counts the block itself too, or a million empty headers would be free. */
	if (h->size > TAR_HEADERS_MAX || (r->headers += TAR_BLOCK + h->size) > TAR_HEADERS_MAX)
		return "limit";
	r->ext.pax |= h->typeflag == 'x';
	r->ext.gnu |= gnu;
	r->side = h->typeflag;
	r->left = h->size;
	r->pad = padding(h->size);
	buf_reset(&r->payload);
	if (pax || gnu) {
		r->state = S_SIDE;
	} else {
		r->left += r->pad;
		r->state = S_SIDE_SKIP;
	}
	return NULL;
}

static const char *side_end(struct tar_reader *r)
{
	const char *p = buf_text(&r->payload), *rule;

	r->left = r->pad;
	r->state = S_SIDE_SKIP;
	if (r->side == 'x')
		return tar_pax_parse(&r->ext, p, r->payload.len, false);
	if (r->side != 'g')
		return tar_gnu_long(&r->ext, p, r->payload.len, r->side == 'K');
	rule = tar_pax_parse(&r->ext, p, r->payload.len, true);
	if (r->ext.has_mtime) {
		r->has_global_mtime = true;
		r->global_mtime_ns = r->ext.mtime_ns;
	}
	tar_ext_reset(&r->ext);
	return rule;
}

static const char *judge_type(const struct tar_head *h, bool slash, enum tar_type *ret)
{
	char t = h->typeflag;

	if (h->format == TAR_V7 && t != '\0' && t != '0' && t != '1' && t != '2' && t != '5')
		return "bad_type";
	switch (t) {
	case '\0': /* v7 has no directories but names with a slash at the end */
		*ret = slash ? TAR_DIR : TAR_FILE;
		break;
	case '0':
	case '7':
		*ret = TAR_FILE;
		break;
	case 'S':
		if (h->format != TAR_GNU)
			return "format_mix";
		*ret = TAR_FILE;
		break;
	case '1':
		*ret = TAR_HARDLINK;
		break;
	case '2':
		*ret = TAR_SYMLINK;
		break;
	case '5':
		*ret = TAR_DIR;
		break;
	default:
		if (!((t >= '3' && t <= '9') || (t >= 'a' && t <= 'z')))
			return "bad_type";
		*ret = TAR_SPECIAL;
	}
	return slash && *ret != TAR_DIR ? "trailing_slash" : NULL;
}

/* The name that counts: GNU.sparse.name, then path or L, then the header's own. */
static const char *judge_path(struct tar_reader *r, const struct tar_head *h, bool *slash)
{
	char whole[155 + 1 + 100];
	struct view v = h->name;

	if (r->ext.sparse_keys & SPARSE_NAME) {
		v = (struct view){buf_text(&r->ext.sparse_name), r->ext.sparse_name.len};
	} else if (r->ext.has_path) {
		v = (struct view){buf_text(&r->ext.path), r->ext.path.len};
	} else if (h->prefix.n) {
		memcpy(whole, h->prefix.p, h->prefix.n);
		whole[h->prefix.n] = '/';
		memcpy(whole + h->prefix.n + 1, h->name.p, h->name.n);
		v = (struct view){whole, h->prefix.n + 1 + h->name.n};
	}
	r->member.path.p = r->path;
	return tar_name_clean(v.p, v.n, r->path, &r->member.path.n, slash);
}

static const char *judge_target(struct tar_reader *r, const struct tar_head *h)
{
	struct view v = h->link;
	const char *rule;
	bool slash;

	if (r->ext.has_link)
		v = (struct view){buf_text(&r->ext.link), r->ext.link.len};
	if (v.n == 0)
		return "empty_target";
	r->member.target.p = r->target;
	if (r->member.type == TAR_SYMLINK) {
		memcpy(r->target, v.p, v.n); /* verbatim; both sources are shorter than the array */
		r->target[v.n] = '\0';
		r->member.target.n = v.n;
		return NULL;
	}
	rule = tar_name_clean(v.p, v.n, r->target, &r->member.target.n, &slash);
	if (rule && strcmp(rule, "name_too_long") != 0)
		return "hardlink_target";
	return rule ? rule : (slash || r->member.target.n == 0) ? "hardlink_target" : NULL;
}

static const char *judge_op(const struct tar_reader *r)
{
	const struct tar_member *m = &r->member;

	switch (m->op) {
	case TAR_OP_DELETE:
		if (m->path.n == 0)
			return "bad_op";
		__attribute__((fallthrough));
	case TAR_OP_UNREADABLE:
		return (m->type == TAR_FILE || m->type == TAR_DIR) && m->size == 0 && !r->map ? NULL : "bad_op";
	case TAR_OP_OPAQUE:
		return m->type == TAR_DIR ? NULL : "bad_op";
	default:
		return NULL;
	}
}

/* PAX sparse 0.0, 0.1 and 1.0: all keys of exactly one of them. stored: bytes in the stream. */
static const char *judge_pax_sparse(struct tar_reader *r, uint64_t stored)
{
	struct tar_ext *x = &r->ext;
	unsigned k = x->sparse_keys;

	if (r->member.type != TAR_FILE || !(k & (SPARSE_SIZE | SPARSE_REALSIZE)) || (k & SPARSE_OPEN))
		return "bad_sparse";
	r->map = &x->map;
	r->member.sparse = true;
	r->member.size = x->sparse_size;
	if (k & (SPARSE_MAJOR | SPARSE_MINOR)) {
		if (x->sparse_major != 1 || x->sparse_minor != 0 || (k & (SPARSE_BLOCKS | SPARSE_MAP | SPARSE_LIST)))
			return "bad_sparse";
		r->map1 = (struct tar_map1){0};
		r->map1_len = 0;
		r->state = S_MAP1;
		return NULL;
	}
	if (!(k & SPARSE_BLOCKS) || x->sparse_blocks != x->map.n || x->map.stored != stored)
		return "bad_sparse";
	return x->map.end > x->sparse_size ? "bad_sparse" : NULL;
}

/* The map of a member is complete: it must lie in the file and account for all its data. */
static const char *map_end(struct tar_reader *r)
{
	r->state = S_EMIT;
	return r->map->end > r->member.size || r->map->stored != r->left ? "bad_sparse" : NULL;
}

static const char *gnu_sparse_more(struct tar_reader *r, const uint8_t *b)
{
	enum { PAIRS = 21, MORE = 504 };
	size_t before = r->map->n;
	const char *rule = tar_sparse_gnu(r->map, b, PAIRS);

	if (rule)
		return rule;
	if (b[MORE] > 1 || (b[MORE] && r->map->n != before + PAIRS))
		return "bad_sparse";
	return b[MORE] ? NULL : map_end(r);
}

/* Old GNU sparse: first pairs, flag and logical size lie in the header block itself. */
static const char *judge_gnu_sparse(struct tar_reader *r, const uint8_t *b)
{
	enum { PAIRS = 386, MORE = 482, REALSIZE = 483 };
	const char *rule;

	tar_sparse_reset(&r->gnu_map);
	r->map = &r->gnu_map;
	r->member.sparse = true;
	if ((rule = tar_field_u64(b + REALSIZE, 12, &r->member.size)) ||
	    (rule = tar_sparse_gnu(r->map, b + PAIRS, 4)))
		return rule;
	if (b[MORE])
		r->state = S_GNU_SPARSE;
	/* A map that goes on after its end could go on without one. */
	if (b[MORE] > 1 || (b[MORE] && r->map->n != 4))
		return "bad_sparse";
	return b[MORE] ? NULL : map_end(r);
}

static const char *count(struct tar_reader *r)
{
	const struct tar_member *m = &r->member;

	if (m->size > r->limits.member_size || m->size > r->limits.total_size - r->total)
		return "limit";
	r->total += m->size;
	if (++r->members > r->limits.members)
		return "limit";
	return NULL;
}

static void judge_time(struct tar_reader *r, const struct tar_head *h)
{
	int64_t s = h->mtime_s;

	if (r->ext.has_mtime)
		r->member.mtime_ns = r->ext.mtime_ns;
	else if (r->has_global_mtime)
		r->member.mtime_ns = r->global_mtime_ns;
	else if (s >= TAR_MTIME_MAX_S)
		r->member.mtime_ns = TAR_MTIME_MAX_S * NS_PER_S - 1;
	else
		r->member.mtime_ns = s > 0 ? s * NS_PER_S : 0;
}

static const char *member_begin(struct tar_reader *r, const struct tar_head *h, const uint8_t *b)
{
	uint64_t stored = r->ext.has_size ? r->ext.size : h->size;
	struct tar_member *m = &r->member;
	bool slash = false;
	const char *rule;

	if ((r->ext.pax && h->format != TAR_USTAR) || (r->ext.gnu && h->format != TAR_GNU))
		return "format_mix";
	*m = (struct tar_member){.op = r->ext.op, .mode = h->mode, .typeflag = h->typeflag,
				 .target = {"", 0}, .header_offset = r->offset - TAR_BLOCK};
	if ((rule = judge_path(r, h, &slash)) || (rule = judge_type(h, slash, &m->type)))
		return rule;
	if (m->path.n == 0 && m->type != TAR_DIR)
		return "root_not_dir";
	/* One program skips this data, another reads it as the next header. */
	if (m->type != TAR_FILE && (stored || h->size))
		return "hidden_data";
	if ((m->type == TAR_SYMLINK || m->type == TAR_HARDLINK) && (rule = judge_target(r, h)))
		return rule;
	judge_time(r, h);
	r->map = NULL;
	r->state = S_EMIT;
	r->left = stored;
	r->pad = padding(stored);
	r->pos = 0;
	r->extent = 0;
	m->size = stored;
	if (h->typeflag == 'S')
		rule = judge_gnu_sparse(r, b);
	else if (r->ext.sparse_keys)
		rule = judge_pax_sparse(r, stored);
	if (rule || (rule = judge_op(r)))
		return rule;
	return count(r);
}

static const char *header(struct tar_reader *r, const uint8_t *b)
{
	struct tar_head h;
	const char *rule;

	if (tar_block_is_zero(b)) {
		r->state = S_ZERO;
		return r->ext.pax || r->ext.gnu ? "extension_order" : NULL;
	}
	rule = tar_head_parse(b, &h);
	if (rule)
		return r->offset == TAR_BLOCK && strcmp(rule, "bad_checksum") == 0 ? "not_tar" : rule;
	if (h.typeflag == 'x' || h.typeflag == 'g' || h.typeflag == 'L' || h.typeflag == 'K' ||
	    h.typeflag == 'V' || h.typeflag == 'A')
		return side_begin(r, &h);
	return member_begin(r, &h, b);
}

static const char *map1(struct tar_reader *r, const uint8_t **p, size_t *n)
{
	while (*n > 0) {
		const char *rule;
		int k;

		if (r->left == 0)
			return "bad_sparse";
		k = tar_map1_feed(&r->map1, **p, r->map, &rule);
		(void)take_some(r, p, n, 1);
		r->left--;
		r->map1_len++;
		if (k < 0)
			return rule;
		if (k == 0)
			continue;
		r->map1_len = padding(r->map1_len);
		if (r->map1_len > r->left)
			return "bad_sparse";
		r->state = S_MAP1_PAD;
		return NULL;
	}
	return NULL;
}

/* Yields the next piece of data; false: none is left or none has arrived. */
static bool data(struct tar_reader *r, const uint8_t **p, size_t *n, struct tar_out *out)
{
	uint64_t max = r->left, base = 0;

	if (r->map) {
		while (r->extent < r->map->n && r->pos == r->map->v[r->extent].len) {
			r->extent++;
			r->pos = 0;
		}
		if (r->extent == r->map->n)
			return false;
		base = r->map->v[r->extent].off;
		max = r->map->v[r->extent].len - r->pos;
	}
	out->data = (struct view){(const char *)*p, 0};
	out->data_offset = base + r->pos;
	out->data.n = take_some(r, p, n, max);
	r->pos += out->data.n;
	r->left -= out->data.n;
	return out->data.n > 0;
}

/* States that yield no event: true if the state has changed, false if more input is needed. */
static bool advance(struct tar_reader *r, const uint8_t **p, size_t *n, const char **rule)
{
	enum state before = r->state;
	const uint8_t *b;

	switch (r->state) {
	case S_HEADER:
	case S_ZERO:
	case S_GNU_SPARSE:
		b = take_block(r, p, n);
		if (!b)
			return false;
		if (before == S_HEADER) {
			*rule = header(r, b);
		} else if (before == S_ZERO) {
			r->state = S_END;
			*rule = tar_block_is_zero(b) ? NULL : "lone_zero_block";
		} else {
			*rule = gnu_sparse_more(r, b);
		}
		return true;
	case S_SIDE:
		if (r->left) {
			const uint8_t *from = *p;

			if (buf_put(&r->payload, from, take_some(r, p, n, r->left)))
				*rule = tar_nomem;
			r->left = r->payload.err ? 0 : r->left - (uint64_t)(*p - from);
		}
		if (r->left || *rule)
			return *rule;
		*rule = side_end(r);
		return true;
	case S_SIDE_SKIP:
	case S_MAP1_PAD:
	case S_DATA_PAD: {
		uint64_t *todo = before == S_SIDE_SKIP ? &r->left : before == S_MAP1_PAD ? &r->map1_len : &r->pad;
		size_t k = take_some(r, p, n, *todo);

		*todo -= k;
		if (before == S_MAP1_PAD)
			r->left -= k;
		if (*todo)
			return false;
		if (before == S_MAP1_PAD)
			*rule = map_end(r);
		else
			r->state = before == S_SIDE_SKIP ? S_HEADER : S_MEMBER_END;
		return true;
	}
	case S_MAP1:
		*rule = map1(r, p, n);
		return *rule || r->state != before;
	default:
		return false;
	}
}

static void member_end(struct tar_reader *r)
{
	tar_ext_reset(&r->ext);
	buf_reset(&r->payload);
	if (r->payload.cap > 65536)
		buf_done(&r->payload);
	r->headers = 0;
	r->state = S_HEADER;
}

int tar_reader_next(struct tar_reader *r, const uint8_t **p, size_t *n, struct tar_out *out, struct err *e)
{
	out->rule = NULL;
	if (r->failed)
		return report(r, out, e);
	for (;;) {
		const char *rule = NULL;

		switch (r->state) {
		case S_EMIT:
			r->state = S_DATA;
			out->member = r->member;
			return TAR_MEMBER;
		case S_DATA:
			if (data(r, p, n, out))
				return TAR_DATA;
			if (r->left)
				return TAR_NEED;
			r->state = S_DATA_PAD;
			break;
		case S_MEMBER_END:
			member_end(r);
			return TAR_MEMBER_END;
		case S_END:
			(void)take_some(r, p, n, *n);
			return TAR_END;
		default:
			if (!advance(r, p, n, &rule))
				return TAR_NEED;
			if (rule) {
				(void)fail(r, rule);
				return report(r, out, e);
			}
		}
	}
}

int tar_reader_finish(struct tar_reader *r, struct tar_out *out, struct err *e)
{
	if (!r->failed && r->state == S_END)
		return 0;
	if (!r->failed)
		(void)fail(r, "truncated");
	return report(r, out, e);
}
