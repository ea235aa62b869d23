/* Three texts (S1-04): no answer depends on which side is ours; what one side alone changed is taken as it is. */
#include "fuzz.h"

#include <string.h>

#include "base/limits.h"
#include "sync/merge3.h"

static int keep(void *arg, const void *p, size_t n)
{
	return buf_put(arg, p, n);
}

static int merge(struct view b, struct view o, struct view t, struct buf *ret)
{
	buf_reset(ret);
	return merge3(b, o, t, keep, ret);
}

static bool is(const struct buf *b, struct view v)
{
	return b->len == v.n && (!v.n || !memcmp(b->data, v.p, v.n));
}

static bool equal(struct view a, struct view b)
{
	return a.n == b.n && (!a.n || !memcmp(a.p, b.p, a.n));
}

/* Two bytes of lengths, then base, ours, theirs: few different lines, so that they meet often. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	_cleanup_buf_ struct buf x = BUF_INIT(FUZZ_INPUT_MAX), y = BUF_INIT(FUZZ_INPUT_MAX);
	const char *text = (const char *)p + 2;
	struct view b, o, t;
	size_t nb, no;
	int r, s;

	if (n < 2)
		return 0;
	n -= 2;
	nb = n * p[0] / 512;
	no = (n - nb) * p[1] / 256;
	b = (struct view){text, nb};
	o = (struct view){text + nb, no};
	t = (struct view){text + nb + no, n - nb - no};
	r = merge(b, o, t, &x);
	s = merge(b, t, o, &y);
	MUST(r >= 0 && r == s);
	if (r == MERGE3_CLEAN) {
		MUST(x.len == y.len && (!x.len || !memcmp(x.data, y.data, x.len)));
		MUST(x.len <= o.n + t.n);
		if (equal(b, o) || equal(o, t))
			MUST(is(&x, t));
		if (equal(b, t))
			MUST(is(&x, o));
	} else {
		MUST(r == MERGE3_NOT_TEXT || r == MERGE3_TOO_BIG ||
		     (!equal(b, o) && !equal(b, t) && !equal(o, t)));
	}
	r = merge(b, b, t, &x);
	MUST(r == MERGE3_CLEAN ? is(&x, t) : r != MERGE3_CONFLICT);
	r = merge(b, o, o, &x);
	MUST(r == MERGE3_CLEAN ? is(&x, o) : r != MERGE3_CONFLICT);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	uint32_t s = (uint32_t)i * 2654435761u | 1;

	if (i >= 32)
		return false;
	MUST(buf_u8(b, 171) == 0 && buf_u8(b, 128) == 0);
	for (int part = 0; part < 3; part++)
		for (size_t k = 0; k < i; k++) {
			uint32_t d = fuzz_random(&s) >> 9;

			MUST(buf_putf(b, "%zu\n", d % 8 ? k : k + d % 3) == 0);
		}
	if (i % 5 == 4)
		b->len--; /* no newline at its end */
	return true;
}

FUZZ_NO_REPAIR()
