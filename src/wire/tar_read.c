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
#include <stdio.h>
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
	const char *packed; /* "not_tar": what the stream is instead, and what to do */
	char limit
	    [128]; /* "limit": which one, and what it is; "" when the rule's own words must do */
	uint64_t fail_offset;

	uint64_t offset; /* bytes consumed */
	uint64_t members, total, headers, headers_all;
	uint8_t block[TAR_BLOCK]; /* only for blocks that arrive in pieces */
	size_t block_len;

	char side; /* typeflag of the extension header being read */
	uint64_t left, pad;
	struct buf payload;
	struct tar_cur cur;
	struct tar_map1 map1;
	uint64_t map1_len;
	size_t extent; /* current one */
	uint64_t pos;  /* data: where in the file; sparse: within the extent */
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
	tar_ext_init(&r->cur.ext);
	*ret = r;
	return 0;
}

void tar_reader_free(struct tar_reader *r)
{
	if (!r)
		return;
	buf_done(&r->payload);
	tar_ext_done(&r->cur.ext);
	tar_sparse_done(&r->cur.gnu_map);
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
		return err_set(e, ERR_NOMEM,
			       "out of memory while reading the outbound stream at byte %llu",
			       (unsigned long long)r->fail_offset);
	out->rule = r->rule;
	out->offset = r->fail_offset;
	out->member.path = (struct view){"", 0};
	if (r->cur.named)
		out->member.path = (struct view){r->cur.path, strlen(r->cur.path)};
	(void)str_printable(&name, r->cur.path, strnlen(r->cur.path, 120));
	return err_set(
	    e, ERR_HOSTILE,
	    "outbound stream rejected at byte %llu by rule %s: %s%s%s%s; the workspace was not touched",
	    (unsigned long long)r->fail_offset, r->rule,
	    r->limit[0] ? r->limit : tar_rule_text(r->rule), r->packed ? r->packed : "",
	    !name.len	   ? ""
	    : r->cur.named ? "; member: "
			   : "; last member: ",
	    buf_text(&name));
}

/*
 * Only for the message: a stream is never expanded, whatever it looks like. The first bytes of
 * what a person may have put into the pipe by mistake; NULL: nothing known.
 */
static const char *packed_as(const uint8_t *b, size_t n)
{
	static const struct {
		const char *magic;
		size_t n;
		const char *text;
	} t[] = {
	    {"\x1f\x8b", 2, "; this is gzip: put 'gzip -dc' before it"},
	    {"\x28\xb5\x2f\xfd", 4, "; this is zstd: put 'zstd -dc' before it"},
	    {"\xfd"
	     "7zXZ",
	     5, "; this is xz: put 'xz -dc' before it"},
	    {"BZh", 3, "; this is bzip2: put 'bzip2 -dc' before it"},
	    {"\x04\x22\x4d\x18", 4, "; this is lz4: put 'lz4 -dc' before it"},
	    {"PK\x03\x04", 4, "; this is a zip archive: send it as tar"},
	    {"070701", 6, "; this is a cpio archive: send it as tar"},
	    {"070707", 6, "; this is a cpio archive: send it as tar"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (n >= t[i].n && memcmp(b, t[i].magic, t[i].n) == 0)
			return t[i].text;
	return NULL;
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
static const char *over(struct tar_reader *r, const char *what, uint64_t limit)
{
	(void)snprintf(r->limit, sizeof(r->limit), "more than %llu %s", (unsigned long long)limit,
		       what);
	return "limit";
}

static const char *side_begin(struct tar_reader *r, const struct tar_head *h)
{
	bool pax = h->typeflag == 'x' || h->typeflag == 'g',
	     gnu = h->typeflag == 'L' || h->typeflag == 'K';
	bool pending = r->cur.ext.pax || r->cur.ext.gnu;

	if ((pax && h->format != TAR_USTAR) || (gnu && h->format != TAR_GNU))
		return "format_mix";
	if (gnu ? r->cur.ext.pax || (h->typeflag == 'L' ? r->cur.ext.has_path : r->cur.ext.has_link)
		: pending)
		return "extension_order";
	if (h->typeflag == 'L' && h->size > PATH_MEMBER_MAX + 1)
		return "name_too_long";
	if (h->typeflag == 'K' && h->size > LINK_TARGET_MAX + 1)
		return "target_too_long";
	/* Counts the block itself too, or a million empty headers would be free. */
	if (h->size > TAR_HEADERS_MAX)
		return over(r, "bytes of extended headers before one member", TAR_HEADERS_MAX);
	r->headers += TAR_BLOCK + h->size;
	r->headers_all += TAR_BLOCK + h->size;
	if (r->headers > TAR_HEADERS_MAX)
		return over(r, "bytes of extended headers before one member", TAR_HEADERS_MAX);
	if (r->headers_all > TAR_HEADERS_FREE + (r->members + 1) * TAR_HEADERS_EACH)
		return over(r, "bytes of extended headers for so many members",
			    TAR_HEADERS_FREE + (r->members + 1) * TAR_HEADERS_EACH);
	r->cur.ext.pax |= h->typeflag == 'x';
	r->cur.ext.gnu |= gnu;
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
		return tar_pax_parse(&r->cur.ext, p, r->payload.len, false);
	if (r->side != 'g')
		return tar_gnu_long(&r->cur.ext, p, r->payload.len, r->side == 'K');
	rule = tar_pax_parse(&r->cur.ext, p, r->payload.len, true);
	if (r->cur.ext.has_mtime) {
		r->cur.has_global_mtime = true;
		r->cur.global_mtime_ns = r->cur.ext.mtime_ns;
	}
	tar_ext_reset(&r->cur.ext);
	return rule;
}

static const char *member_begin(struct tar_reader *r, const struct tar_head *h, const uint8_t *b)
{
	static const enum state next[] = {
	    [TAR_MAP_READY] = S_EMIT, [TAR_MAP_GNU] = S_GNU_SPARSE, [TAR_MAP_PAX1] = S_MAP1};
	const struct tar_member *m = &r->cur.member;
	const char *rule = tar_member_judge(&r->cur, h, b, r->offset - TAR_BLOCK);

	if (rule)
		return rule;
	if (m->size > r->limits.member_size)
		return over(r, "bytes of one member", r->limits.member_size);
	if (m->size > r->limits.total_size - r->total)
		return over(r, "bytes of all members together", r->limits.total_size);
	if (++r->members > r->limits.members)
		return over(r, "members", r->limits.members);
	r->total += m->size;
	r->left = r->cur.stored;
	r->pad = padding(r->cur.stored);
	r->pos = 0;
	r->extent = 0;
	r->map1 = (struct tar_map1){0};
	r->map1_len = 0;
	r->state = next[r->cur.map_rest];
	return NULL;
}

static const char *header(struct tar_reader *r, const uint8_t *b)
{
	struct tar_head h;
	const char *rule;

	r->cur.named = false;
	if (tar_block_is_zero(b)) {
		r->state = S_ZERO;
		return r->cur.ext.pax || r->cur.ext.gnu ? "extension_order" : NULL;
	}
	rule = tar_head_parse(b, &h);
	if (rule) {
		if (r->offset != TAR_BLOCK || strcmp(rule, "bad_checksum") != 0)
			return rule;
		r->packed = packed_as(b, TAR_BLOCK);
		return "not_tar";
	}
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
		k = tar_map1_feed(&r->map1, **p, r->cur.map, &rule);
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

	if (r->cur.map) {
		while (r->extent < r->cur.map->n && r->pos == r->cur.map->v[r->extent].len) {
			r->extent++;
			r->pos = 0;
		}
		if (r->extent == r->cur.map->n)
			return false;
		base = r->cur.map->v[r->extent].off;
		max = r->cur.map->v[r->extent].len - r->pos;
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
			*rule = tar_map_gnu_more(&r->cur, b);
			if (r->cur.map_rest == TAR_MAP_READY)
				r->state = S_EMIT;
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
		uint64_t *todo = before == S_SIDE_SKIP	? &r->left
				 : before == S_MAP1_PAD ? &r->map1_len
							: &r->pad;
		size_t k = take_some(r, p, n, *todo);

		*todo -= k;
		if (before == S_MAP1_PAD)
			r->left -= k;
		if (*todo)
			return false;
		if (before == S_MAP1_PAD) {
			r->cur.stored = r->left; /* what the map does not take up */
			*rule = tar_map_end(&r->cur);
			r->state = S_EMIT;
		} else {
			r->state = before == S_SIDE_SKIP ? S_HEADER : S_MEMBER_END;
		}
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
	tar_sparse_reset(&r->cur.gnu_map);
	tar_ext_reset(&r->cur.ext);
	buf_reset(&r->payload);
	if (r->payload.cap > 65536)
		buf_done(&r->payload);
	r->headers = 0;
	r->state = S_HEADER;
}

int tar_reader_next(struct tar_reader *r, const uint8_t **p, size_t *n, struct tar_out *out,
		    struct err *e)
{
	out->rule = NULL;
	if (r->failed)
		return report(r, out, e);
	for (;;) {
		const char *rule = NULL;

		switch (r->state) {
		case S_EMIT:
			r->state = S_DATA;
			out->member = r->cur.member;
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
	if (!r->failed && r->offset < TAR_BLOCK && (r->packed = packed_as(r->block, r->block_len)))
		(void)fail(r, "not_tar");
	else if (!r->failed)
		(void)fail(r, "truncated");
	return report(r, out, e);
}
