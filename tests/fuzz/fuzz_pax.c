/*
 * Fuzz target: PAX records and sparse maps (A5 to A8, A19) behind headers that are right, so that every
 * mutation reaches them. An input is a script; the stream is made from it.
 */
#include <string.h>

#include "fuzz.h"
#include "base/cleanup.h"
#include "hostile/mk.h"
#include "tar_trace.h"

#define STREAM_MAX ((size_t)1 << 20)

static const char *const keys[] = {
    "path",
    "linkpath",
    "size",
    "mtime",
    "GNU.sparse.major",
    "GNU.sparse.minor",
    "GNU.sparse.name",
    "GNU.sparse.realsize",
    "GNU.sparse.size",
    "GNU.sparse.numblocks",
    "GNU.sparse.offset",
    "GNU.sparse.numbytes",
    "GNU.sparse.map",
    "AIRLOCK.op",
    "SCHILY.xattr.user.x",
    "comment",
};
static const char *const values[] = {
    "0",	  "1",	    "512",    "1024", "2",    "3", "0,512,1024,1",
    "5368709120", "delete", "opaque", "a/b",  "../x", "",  "99999999999999999999",
    "-1",	  "1.5",
};

struct script {
	const uint8_t *p;
	size_t n;
};

static uint8_t next(struct script *s)
{
	if (!s->n)
		return 0;
	s->n--;
	return *s->p++;
}

/* A right record, or up to 15 raw bytes where one should be. */
static void record(struct script *s, struct buf *ret)
{
	uint8_t what = next(s), v = next(s);
	size_t n = v % 16 < s->n ? v % 16 : s->n;

	if (what >= 240) {
		(void)buf_put(ret, s->p, n);
		s->p += n;
		s->n -= n;
	} else if (what >= 128) { /* a known key, raw value */
		mk_record(ret, keys[what % ARRAY_LEN(keys)], s->p, n);
		s->p += n;
		s->n -= n;
	} else {
		mk_record(ret, keys[what % ARRAY_LEN(keys)], values[v % ARRAY_LEN(values)],
			  strlen(values[v % ARRAY_LEN(values)]));
	}
}

/* The map that PAX 1.0 puts before the data: decimal lines. */
static void map(struct script *s, struct buf *ret)
{
	uint8_t n = next(s) % 8, block[512] = {0};
	_cleanup_buf_ struct buf t = BUF_INIT(4096);

	(void)buf_putf(&t, "%u\n", n);
	for (unsigned i = 0; i < 2u * n; i++) {
		uint8_t c = next(s);

		if (c < 250)
			(void)buf_putf(&t, "%u\n", (unsigned)c * (c & 1 ? 1 : 64));
		else
			(void)buf_putc(&t, (char)c);
	}
	memcpy(block, t.data, t.len < 512 ? t.len : 512);
	(void)buf_put(ret, block, 512);
}

static void member(struct script *s, struct buf *b)
{
	static const char types[] = {'0', '5', '2', '1', '7', '\0', '3', 'g'};
	uint8_t what = next(s);
	struct mk m = {.format = MK_USTAR, .type = types[what % 8], .name = "a", .link = "b"};
	_cleanup_buf_ struct buf t = BUF_INIT(4096), d = BUF_INIT(16384);
	static const char zero[512];

	for (unsigned i = 0; i < what / 8u % 8; i++)
		record(s, &t);
	if (t.len || what & 64)
		mk_pax(b, what & 128 ? 'x' : next(s) % 16 ? 'x' : 'g', buf_text(&t), t.len);
	if (what & 64)
		map(s, &d);
	for (unsigned i = next(s) % 4; i > 0; i--)
		(void)buf_put(&d, zero, sizeof(zero));
	m.size = m.type == '0' || m.type == '7' || m.type == '\0' ? d.len : 0;
	if (next(s) % 16 == 1)
		m.size = next(s);
	(void)mk_head(b, &m);
	if (m.size)
		mk_data(b, buf_text(&d), d.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(STREAM_MAX);
	struct script s = {p, n};

	if (n > 2048)
		return 0;
	for (int i = 0; i < 16 && s.n; i++)
		member(&s, &b);
	mk_end(&b);
	trace_both((const uint8_t *)b.data, b.len);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const uint8_t honest[] = {/* sparse 1.0 as GNU tar writes it */
					 0xe0 | 0, 4, 1, 5, 0, 6, 10, 7, 3, 2, 0, 1, 32, 1, 1, 0};
	uint32_t s = (uint32_t)i * 2654435761u | 1;

	if (i >= 48)
		return false;
	if (i == 0)
		return buf_put(b, honest, sizeof(honest)) == 0;
	for (size_t k = 0; k < 4 + i * 2; k++)
		MUST(buf_u8(b, (uint8_t)(fuzz_random(&s) >> 7)) == 0);
	return true;
}

FUZZ_NO_REPAIR()
