/*
 * The tar reader of door 1 (S1-03, S1-04, S1-09): for any stream, every name it hands on is relative and clean,
 * data stay within the member, a rejection is final, and how the bytes were cut into pieces changes nothing.
 */
#include "fuzz/fuzz.h"

#include <errno.h>

#include "base/limits.h"
#include "base/path.h"
#include "hostile/cases.h"
#include "wire/tar.h"

struct trace {
	uint64_t hash, events;
};

static void mix(struct trace *t, const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		t->hash = (t->hash ^ b[i]) * UINT64_C(0x100000001b3);
}

static void judge_member(const struct tar_member *m)
{
	MUST(m->path.n <= PATH_MEMBER_MAX);
	MUST(m->path.n == 0 || path_is_member(m->path.p, m->path.n));
	MUST(m->target.n <= LINK_TARGET_MAX);
	MUST(m->type == TAR_FILE || m->size == 0);
	MUST(m->mode <= 07777 && m->mtime_ns >= 0);
	if (m->type == TAR_HARDLINK)
		MUST(path_is_member(m->target.p, m->target.n));
	if (m->type == TAR_SYMLINK)
		MUST(m->target.n > 0 && !memchr(m->target.p, '\0', m->target.n));
}

static int feed(struct tar_reader *r, const uint8_t *p, size_t n, struct trace *t)
{
	struct tar_out out = {0};
	uint64_t size = 0, at = 0;

	for (;;) {
		int ev = tar_reader_next(r, &p, &n, &out, NULL);

		if (ev < 0) {
			MUST(ev == -ENOMEM || (ev == -EBADMSG && out.rule && out.rule[0]));
			MUST(tar_reader_next(r, &p, &n, &out, NULL) == ev);
			return ev;
		}
		switch (ev) {
		case TAR_NEED:
			MUST(n == 0);
			return 0;
		case TAR_MEMBER:
			judge_member(&out.member);
			size = out.member.size;
			at = 0;
			mix(t, out.member.path.p, out.member.path.n);
			mix(t, out.member.target.p, out.member.target.n);
			mix(t, &size, sizeof(size));
			break;
		case TAR_DATA:
			MUST(out.data.n > 0);
			/* size and at start anew with every piece of input; the offset does not. */
			MUST(out.data_offset >= at);
			at = out.data_offset + out.data.n;
			mix(t, out.data.p, out.data.n);
			break;
		case TAR_MEMBER_END:
			break;
		case TAR_END:
			return 1;
		default:
			MUST(ev == TAR_END); /* an event that does not exist */
		}
		t->events++;
	}
}

/* step 0: all at once. Returns how it ended. */
static int read_stream(const uint8_t *p, size_t n, size_t step, struct trace *t)
{
	static const struct tar_limits limits = {.members = 10000, .total_size = UINT64_C(1) << 40};
	struct tar_reader *r = NULL;
	struct tar_out out = {0};
	int ev = 0;

	*t = (struct trace){.hash = UINT64_C(0xcbf29ce484222325)};
	MUST(tar_reader_new(&limits, &r) == 0);
	for (size_t off = 0; off < n && ev == 0;) {
		size_t piece = step && step < n - off ? step : n - off;

		ev = feed(r, p + off, piece, t);
		off += piece;
	}
	if (ev == 0)
		ev = tar_reader_finish(r, &out, NULL);
	tar_reader_free(r);
	return ev;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct trace whole, cut;
	int a, b;

	if (n < 1)
		return 0;
	a = read_stream(p + 1, n - 1, 0, &whole);
	b = read_stream(p + 1, n - 1, 1 + p[0], &cut);
	MUST(a == b);
	MUST(whole.hash == cut.hash);
	return 0;
}

bool fuzz_seed(struct buf *b, size_t i)
{
	if (i >= hostile_reader_cases_len)
		return false;
	MUST(buf_u8(b, (uint8_t)(i * 37)) == 0);
	{
		_cleanup_buf_ struct buf c = BUF_INIT(HOSTILE_CASE_MAX);

		hostile_reader_cases[i].build(&c);
		if (c.len < FUZZ_SEED_MAX)
			MUST(buf_put(b, c.data, c.len) == 0);
	}
	return true;
}
