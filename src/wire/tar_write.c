/*
 * The writer of tar streams: deterministic, no clock, no names of users.
 *
 * ustar where it holds a value exactly, a PAX header before the member where it does not (long
 * paths and targets, sizes from 8 GiB, fractions of seconds, AIRLOCK.op). It writes what it is
 * given, so tests can make hostile archives with it; it is not a boundary.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "wire/tar.h"

#define BLOCK 512
#define OCTAL_SIZE_MAX UINT64_C(077777777777)

struct ustar {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], chksum[8], typeflag,
	    link[100];
	char magic[8], uname[32], gname[32], devmajor[8], devminor[8], prefix[155], tail[12];
};
_Static_assert(sizeof(struct ustar) == BLOCK, "one block");

static void octal(char *p, size_t n, uint64_t v)
{
	p[--n] = '\0';
	while (n > 0) {
		p[--n] = (char)('0' + (v & 7));
		v >>= 3;
	}
}

static int put_block(struct buf *out, struct ustar *h)
{
	const unsigned char *b = (const unsigned char *)h;
	unsigned sum = 0;

	memset(h->chksum, ' ', sizeof(h->chksum));
	for (size_t i = 0; i < BLOCK; i++)
		sum += b[i];
	octal(h->chksum, 7, sum); /* six digits, NUL, space: as everybody */
	return buf_put(out, h, BLOCK);
}

static void start(struct ustar *h, char typeflag, uint32_t mode, uint64_t size)
{
	memset(h, 0, sizeof(*h));
	h->typeflag = typeflag;
	octal(h->mode, sizeof(h->mode), mode & 07777);
	octal(h->uid, sizeof(h->uid), 0);
	octal(h->gid, sizeof(h->gid), 0);
	octal(h->size, sizeof(h->size), size);
	octal(h->mtime, sizeof(h->mtime), 0);
	octal(h->devmajor, sizeof(h->devmajor), 0);
	octal(h->devminor, sizeof(h->devminor), 0);
	memcpy(h->magic, "ustar\00000", 8);
}

/* "len key=value\n", where len counts its own digits. */
static int put_record(struct buf *b, const char *key, const char *p, size_t n)
{
	size_t rest = 1 + strlen(key) + 1 + n + 1, len = rest + 1;

	for (size_t digits = 1, limit = 10; len >= limit; digits++, limit *= 10)
		len = rest + digits + 1;
	(void)buf_putf(b, "%zu %s=", len, key);
	(void)buf_put(b, p, n);
	return buf_putc(b, '\n');
}

/* Fits name, or prefix + '/' + name with the split as far right as it can be. */
static bool fill_name(struct ustar *h, const char *p, size_t n)
{
	size_t cut;

	if (n <= sizeof(h->name)) {
		memcpy(h->name, p, n);
		return true;
	}
	cut = n - 2 < sizeof(h->prefix) ? n - 2 : sizeof(h->prefix);
	while (cut > 0 && p[cut] != '/')
		cut--;
	if (cut == 0 || n - cut - 1 > sizeof(h->name))
		return false;
	memcpy(h->prefix, p, cut);
	memcpy(h->name, p + cut + 1, n - cut - 1);
	return true;
}

static const char *op_name(enum tar_op op)
{
	switch (op) {
	case TAR_OP_DELETE:
		return "delete";
	case TAR_OP_OPAQUE:
		return "opaque";
	case TAR_OP_UNREADABLE:
		return "unreadable";
	default:
		return NULL;
	}
}

static char typeflag_of(const struct tar_member *m)
{
	static const char flags[] = {
	    [TAR_FILE] = '0', [TAR_DIR] = '5', [TAR_SYMLINK] = '2', [TAR_HARDLINK] = '1'};

	if (m->type == TAR_SPECIAL)
		return m->typeflag ? m->typeflag : '6';
	return flags[m->type];
}

static int put_pax(struct buf *out, const struct buf *records)
{
	static const char name[] = "PaxHeader";
	struct ustar h;

	if (records->err)
		return records->err;
	start(&h, 'x', 0644, records->len);
	memcpy(h.name, name, sizeof(name) - 1);
	(void)put_block(out, &h);
	(void)buf_put(out, records->data, records->len);
	return tar_put_padding(out, records->len);
}

static void put_number(struct buf *records, const char *key, uint64_t v)
{
	char text[32];
	int k = snprintf(text, sizeof(text), "%llu", (unsigned long long)v);

	(void)put_record(records, key, text, (size_t)k);
}

/* size: bytes that follow. */
static int put_header(struct buf *out, const struct tar_member *m, uint64_t size, bool sparse)
{
	_cleanup_buf_ struct buf records = BUF_INIT(TAR_HEADERS_MAX);
	struct view path = m->path.n ? m->path : (struct view){".", 1};
	bool link = m->type == TAR_SYMLINK || m->type == TAR_HARDLINK;
	bool early = m->mtime_ns < 0;
	int64_t mtime_ns = m->mtime_ns > -INT64_MAX ? (early ? -m->mtime_ns : m->mtime_ns) : 0;
	uint64_t s = (uint64_t)(mtime_ns / NS_PER_S);
	bool late = s > OCTAL_SIZE_MAX;
	struct ustar h;
	char text[40];
	int k;

	start(&h, typeflag_of(m), m->mode, size > OCTAL_SIZE_MAX ? OCTAL_SIZE_MAX : size);
	/* What the field cannot hold, a reader that knows no records has from 1970, or 2242. */
	octal(h.mtime, sizeof(h.mtime), early ? 0 : late ? OCTAL_SIZE_MAX : s);
	if (!fill_name(&h, path.p, path.n)) {
		memcpy(h.name, path.p, sizeof(h.name));
		(void)put_record(&records, "path", path.p, path.n);
	}
	if (link && m->target.n <= sizeof(h.link)) {
		if (m->target.n)
			memcpy(h.link, m->target.p, m->target.n);
	} else if (link) {
		memcpy(h.link, m->target.p, sizeof(h.link));
		(void)put_record(&records, "linkpath", m->target.p, m->target.n);
	}
	if (size > OCTAL_SIZE_MAX)
		put_number(&records, "size", size);
	if (sparse) {
		put_number(&records, "GNU.sparse.major", 1);
		put_number(&records, "GNU.sparse.minor", 0);
		(void)put_record(&records, "GNU.sparse.name", path.p, path.n);
		put_number(&records, "GNU.sparse.realsize", m->size);
	}
	if (early || late || mtime_ns % NS_PER_S) {
		k = snprintf(text, sizeof(text), "%s%lld.%09lld", early ? "-" : "",
			     (long long)(mtime_ns / NS_PER_S), (long long)(mtime_ns % NS_PER_S));
		(void)put_record(&records, "mtime", text, (size_t)k);
	}
	if (op_name(m->op))
		(void)put_record(&records, "AIRLOCK.op", op_name(m->op), strlen(op_name(m->op)));
	if (records.len || records.err) {
		k = put_pax(out, &records);
		if (k)
			return k;
	}
	return put_block(out, &h);
}

int tar_put_header(struct buf *out, const struct tar_member *m)
{
	return put_header(out, m, m->type == TAR_FILE ? m->size : 0, false);
}

int tar_put_sparse(struct buf *out, const struct tar_member *m, const struct tar_extent *v,
		   size_t n)
{
	_cleanup_buf_ struct buf map = BUF_INIT(64 + n * 48 + BLOCK);
	uint64_t stored = 0;
	int k;

	(void)buf_putf(&map, "%zu\n", n);
	for (size_t i = 0; i < n; i++) {
		(void)buf_putf(&map, "%llu\n%llu\n", (unsigned long long)v[i].off,
			       (unsigned long long)v[i].len);
		stored += v[i].len;
	}
	(void)tar_put_padding(&map, map.len);
	if (map.err)
		return map.err;
	k = put_header(out, m, map.len + stored, true);
	return k < 0 ? k : buf_put(out, map.data, map.len);
}

int tar_put_padding(struct buf *out, uint64_t size)
{
	static const char zero[BLOCK];

	return buf_put(out, zero, (size_t)((BLOCK - size % BLOCK) % BLOCK));
}

int tar_put_end(struct buf *out)
{
	static const char zero[2 * BLOCK];

	return buf_put(out, zero, sizeof(zero));
}
