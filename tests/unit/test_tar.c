/* Unit tests of the tar codec (src/wire/tar_*.c): cases A, B9, B10, B17, C8, D3, D4; S1-04. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "hostile/cases.h"
#include "hostile/mk.h"
#include "wire/tar.h"

/* Runs a stream through the reader in pieces; members are written to log as text. */
static int run(const struct tar_limits *limits, const void *p, size_t n, size_t piece,
	       struct buf *log, struct tar_out *out, struct err *e)
{
	const uint8_t *at = p;
	struct tar_reader *r;
	size_t have = 0;
	int ev;

	*out = (struct tar_out){0};
	assert_int_equal(tar_reader_new(limits, &r), 0);
	for (;;) {
		ev = tar_reader_next(r, &at, &have, out, e);
		if (ev == TAR_NEED) {
			assert_int_equal(have, 0);
			have = n < piece ? n : piece;
			n -= have;
			if (have)
				continue;
			ev = tar_reader_finish(r, out, e);
			break;
		}
		if (ev == TAR_MEMBER) {
			const struct tar_member *m = &out->member;

			(void)buf_putf(log, "%d%d %04o %llu %lld [", (int)m->type, (int)m->op,
				       m->mode, (unsigned long long)m->size,
				       (long long)m->mtime_ns);
			(void)buf_put(log, m->path.p, m->path.n);
			(void)buf_puts(log, "][");
			(void)buf_put(log, m->target.p, m->target.n);
			(void)buf_puts(log, "]");
		} else if (ev == TAR_DATA) {
			assert_true(out->data.n > 0);
			for (size_t i = 0; i < out->data.n; i++)
				if (out->data.p[i])
					(void)buf_putf(log, " %llu:%c",
						       (unsigned long long)(out->data_offset + i),
						       out->data.p[i]);
		} else if (ev == TAR_MEMBER_END) {
			(void)buf_putc(log, '\n');
		} else {
			break;
		}
	}
	if (ev == -EBADMSG) { /* sticky, whatever comes */
		struct tar_out again = {0};

		have = 0;
		assert_int_equal(tar_reader_next(r, &at, &have, &again, NULL), -EBADMSG);
		assert_string_equal(again.rule, out->rule);
		assert_int_equal(again.offset, out->offset);
		assert_int_equal(tar_reader_finish(r, &again, NULL), -EBADMSG);
	} else if (ev == TAR_END) {
		assert_int_equal(tar_reader_finish(r, out, e), 0);
	}
	tar_reader_free(r);
	return ev;
}

static void judge(const struct hostile_case *c, size_t piece)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HOSTILE_CASE_MAX), log = BUF_INIT(1 << 20);
	struct err e = ERR_INIT;
	struct tar_out out;
	int r;

	c->build(&b);
	r = run(NULL, b.data ? b.data : "", b.len, piece, &log, &out, &e);
	if (c->verdict != HV_HOSTILE) {
		if (r != TAR_END)
			fail_msg("%s: %d %s", c->name, r, e.text);
		return;
	}
	if (r != -EBADMSG || strcmp(out.rule, c->rule) != 0)
		fail_msg("%s: %d, rule %s instead of %s", c->name, r,
			 r == -EBADMSG ? out.rule : "-", c->rule);
	assert_int_equal(e.code, ERR_HOSTILE);
	assert_non_null(strstr(e.text, out.rule));
	assert_true(out.offset <= b.len);
}

/* S1-04, A2..A25, B9, B10, B17, C8, D3, D4: the verdict does not depend on how the bytes arrive. */
static void hostile_headers_get_their_rule(void **state)
{
	static const size_t pieces[] = {SIZE_MAX, 4096, 513, 7, 1};

	(void)state;
	for (size_t i = 0; i < hostile_reader_cases_len; i++)
		for (size_t k = 0; k < ARRAY_LEN(pieces); k++)
			judge(&hostile_reader_cases[i], pieces[k]);
}

/* Every rule that a case names has words for a person. */
static void rules_have_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < hostile_reader_cases_len; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(HOSTILE_CASE_MAX), log = BUF_INIT(1 << 20);
		struct err e = ERR_INIT;
		struct tar_out out;

		if (hostile_reader_cases[i].verdict != HV_HOSTILE)
			continue;
		hostile_reader_cases[i].build(&b);
		(void)run(NULL, b.data ? b.data : "", b.len, SIZE_MAX, &log, &out, &e);
		assert_null(strstr(e.text, "a boundary rule is broken"));
	}
}

static struct view text(const char *s)
{
	return (struct view){s, strlen(s)};
}

static void fill(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = i % 90 == 89 ? '/' : (char)('a' + i % 26);
	p[n] = '\0';
	if (p[n - 1] == '/')
		p[n - 1] = 'z';
}

/* Before and after 1970, with and without fractions, and beyond what either end holds. */
static void times_arrive_as_they_were_sent(void **state)
{
	static const int64_t edge = INT64_C(9214646400) * NS_PER_S - 1; /* the end of 2261 */
	static const struct {
		int64_t sent, read;
	} t[] = {{0, 0},
		 {1, 1},
		 {1700000000123456789, 1700000000123456789},
		 {edge, edge},
		 {edge + 1, edge},
		 {INT64_MAX, edge},
		 {-1, -1},
		 {-5 * NS_PER_S, -5 * NS_PER_S},
		 {-86400 * NS_PER_S - 500000000, -86400 * NS_PER_S - 500000000},
		 {-edge, -edge},
		 {-edge - 1, -edge}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
		struct tar_member m = {
		    .type = TAR_DIR, .mode = 0755, .path = text("d"), .mtime_ns = t[i].sent};
		struct tar_reader *r;
		struct tar_out out = {0};
		const uint8_t *at;
		size_t have;

		assert_int_equal(tar_put_header(&b, &m), 0);
		at = (const uint8_t *)b.data;
		have = b.len;
		assert_int_equal(tar_reader_new(NULL, &r), 0);
		assert_int_equal(tar_reader_next(r, &at, &have, &out, NULL), TAR_MEMBER);
		assert_int_equal(out.member.mtime_ns, t[i].read);
		tar_reader_free(r);
	}
}

/* S1-04: what the writer writes, the reader reads, at every length of path and target. */
static void writer_and_reader_agree(void **state)
{
	static char path[PATH_MEMBER_MAX + 1], target[LINK_TARGET_MAX + 1];

	(void)state;
	for (size_t n = 1; n <= PATH_MEMBER_MAX; n += n < 300 ? 1 : 211) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 20), log = BUF_INIT(1 << 20),
					 want = BUF_INIT(1 << 20);
		struct tar_member m = {
		    .type = TAR_SYMLINK, .mode = 0777, .mtime_ns = 1700000000123456789};
		struct err e = ERR_INIT;
		struct tar_out out;

		fill(path, n);
		fill(target, n < LINK_TARGET_MAX ? n : LINK_TARGET_MAX);
		m.path = text(path);
		m.target = text(target);
		assert_int_equal(tar_put_header(&b, &m), 0);
		m = (struct tar_member){.type = TAR_FILE, .mode = 0755, .path = m.path, .size = 3};
		assert_int_equal(tar_put_header(&b, &m), 0);
		assert_int_equal(buf_put(&b, "abc", 3), 0);
		assert_int_equal(tar_put_padding(&b, 3), 0);
		m = (struct tar_member){
		    .type = TAR_DIR, .mode = 0700, .op = TAR_OP_OPAQUE, .path = m.path};
		assert_int_equal(tar_put_header(&b, &m), 0);
		m.op = TAR_OP_DELETE;
		m.type = TAR_FILE;
		assert_int_equal(tar_put_header(&b, &m), 0);
		m.op = TAR_OP_UNREADABLE;
		assert_int_equal(tar_put_header(&b, &m), 0);
		m = (struct tar_member){.type = TAR_HARDLINK, .path = text("h"), .target = m.path};
		assert_int_equal(tar_put_header(&b, &m), 0);
		m = (struct tar_member){.type = TAR_SPECIAL, .path = text("fifo")};
		assert_int_equal(tar_put_header(&b, &m), 0);
		assert_int_equal(tar_put_end(&b), 0);
		assert_int_equal(b.len % 512, 0);
		if (run(NULL, b.data, b.len, 1000, &log, &out, &e) != TAR_END)
			fail_msg("%zu: %s", n, e.text);
		(void)buf_putf(&want, "20 0777 0 1700000000123456789 [%s][%s]\n", path, target);
		(void)buf_putf(&want, "00 0755 3 0 [%s][] 0:a 1:b 2:c\n", path);
		(void)buf_putf(&want,
			       "12 0700 0 0 [%s][]\n01 0700 0 0 [%s][]\n03 0700 0 0 [%s][]\n", path,
			       path, path);
		(void)buf_putf(&want, "30 0000 0 0 [h][%s]\n40 0000 0 0 [fifo][]\n", path);
		assert_string_equal(buf_text(&log), buf_text(&want));
	}
}

static void writer_holds_big_sizes(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096), log = BUF_INIT(4096);
	struct tar_member m = {.type = TAR_FILE, .path = {"big", 3}, .size = (UINT64_C(1) << 33)};
	struct tar_limits limits = {.total_size = UINT64_C(1) << 40};
	struct err e = ERR_INIT;
	struct tar_out out;

	(void)state;
	assert_int_equal(tar_put_header(&b, &m), 0);
	assert_int_equal(run(&limits, b.data, b.len, 4096, &log, &out, &e), -EBADMSG);
	assert_string_equal(out.rule, "truncated");
	assert_string_equal(buf_text(&log), "00 0000 8589934592 0 [big][]");
	buf_reset(&b);
	b.max = 600; /* a full buffer is an error, not half a header */
	m.path = (struct view){"x", 1};
	assert_int_equal(tar_put_header(&b, &m), -E2BIG);
}

/* A25, E13: limits count members, logical bytes of one member and of the stream. */
static void limits_are_exact(void **state)
{
	static const struct {
		struct tar_limits limits;
		int want;
		const char *said;
	} t[] = {
	    {{.members = 3}, TAR_END, ""},
	    {{.members = 2}, -EBADMSG, "by rule limit: more than 2 members; member: d/b"},
	    {{.member_size = 4}, TAR_END, ""},
	    {{.member_size = 3}, -EBADMSG, "more than 3 bytes of one member; member: d/a"},
	    {{.total_size = 6}, TAR_END, ""},
	    {{.total_size = 5}, -EBADMSG, "more than 5 bytes of all members together; member: d/b"},
	};
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 16);

	(void)state;
	mk_dir(&b, "d");
	mk_file(&b, "d/a", "1234");
	mk_file(&b, "d/b", "12");
	mk_end(&b);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf log = BUF_INIT(4096);
		struct err e = ERR_INIT;
		struct tar_out out;

		assert_int_equal(run(&t[i].limits, b.data, b.len, 4096, &log, &out, &e), t[i].want);
		if (t[i].want < 0)
			assert_string_equal(out.rule, "limit");
		assert_non_null(strstr(e.text, t[i].said));
	}
}

static void build_find(struct buf *b, const char *name)
{
	for (size_t i = 0; i < hostile_reader_cases_len; i++)
		if (strcmp(hostile_reader_cases[i].name, name) == 0) {
			hostile_reader_cases[i].build(b);
			return;
		}
	fail_msg("no case %s", name);
}

/* A19, A7, A23, A15, B9, D3: what is accepted is read byte for byte. */
static void accepted_archives_are_read_exactly(void **state)
{
	static const struct {
		const char *name, *want;
	} t[] = {
	    {"A19-gnu-5g",
	     "00 0644 4999610368 1700000000000000000 [sparse][] 4966055936:t 4966055937:a "
	     "4966055938:i 4966055939:l\n"},
	    {"A19-pax01",
	     "00 0644 4096 1700000000000000000 [sparse][] 0:1 1:2 2:3 3:4 512:5 513:6 514:7 515:8\n"},
	    {"A23-second-archive", "00 0644 1 1700000000000000000 [a][] 0:x\n"},
	    {"A15-chain", "20 0777 0 1700000000000000000 [a][target]\n"},
	    {"B9-arrow", "20 0777 0 1700000000000000000 [x -> a][b -> /etc]\n"},
	    {"A22-zero-blocks", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 20), log = BUF_INIT(1 << 20);
		struct err e = ERR_INIT;
		struct tar_out out;

		build_find(&b, t[i].name);
		assert_int_equal(run(NULL, b.data, b.len, 100, &log, &out, &e), TAR_END);
		assert_string_equal(buf_text(&log), t[i].want);
	}
}

/* C2 belongs to the consumer; here: modes and times as written, times clamped. */
static void numbers_in_every_spelling(void **state)
{
	static const struct {
		size_t at;
		const char *field;
		size_t n;
		const char *want;
	} t[] = {
	    {100, "0106755\0", 8, "00 6755 0 1700000000000000000 [a][]\n"},
	    {100, "   755 \0", 8, "00 0755 0 1700000000000000000 [a][]\n"},
	    {136, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, "00 0644 0 0 [a][]\n"},
	    {136, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12,
	     "00 0644 0 9214646399999999999 [a][]\n"},
	    {136, "\x80\0\0\0\0\0\0\0\0\0\0\7", 12, "00 0644 0 7000000000 [a][]\n"},
	    {136, "           \0", 12, "00 0644 0 0 [a][]\n"},
	    {108, "garbage!", 8, "00 0644 0 1700000000000000000 [a][]\n"}, /* owner: never read */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 16), log = BUF_INIT(4096);
		struct err e = ERR_INIT;
		struct tar_out out;
		size_t h = mk_head(&b, &(struct mk){MK_USTAR, '0', "./a", NULL, 0, 0});

		mk_poke(&b, h, t[i].at, t[i].field, t[i].n);
		mk_end(&b);
		assert_int_equal(run(NULL, b.data, b.len, 4096, &log, &out, &e), TAR_END);
		assert_string_equal(buf_text(&log), t[i].want);
	}
}

/* Some old writers summed signed bytes: that sum fits, and no other does. */
static void checksums_of_both_kinds(void **state)
{
	static const struct {
		int less;
		bool fits;
	} t[] = {{0, true}, {3 * 256, true}, {2 * 256, false}, {1, false}, {3 * 256 - 1, false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 16), log = BUF_INIT(4096);
		struct err e = ERR_INIT;
		struct tar_out out;
		size_t h = mk_head(&b, &(struct mk){MK_USTAR, '0', "\xe2\x82\xac", NULL, 0, 0});
		char *field = (char *)b.data + h + 148;
		int r;

		(void)snprintf(field, 8, "%06o",
			       (unsigned)strtol(field, NULL, 8) - (unsigned)t[i].less);
		mk_end(&b);
		r = run(NULL, b.data, b.len, 4096, &log, &out, &e);
		if (t[i].fits)
			assert_int_equal(r, TAR_END);
		else
			assert_string_equal(out.rule,
					    "not_tar"); /* as the first block of a stream */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hostile_headers_get_their_rule),
	    cmocka_unit_test(rules_have_words),
	    cmocka_unit_test(times_arrive_as_they_were_sent),
	    cmocka_unit_test(writer_and_reader_agree),
	    cmocka_unit_test(writer_holds_big_sizes),
	    cmocka_unit_test(limits_are_exact),
	    cmocka_unit_test(accepted_archives_are_read_exactly),
	    cmocka_unit_test(numbers_in_every_spelling),
	    cmocka_unit_test(checksums_of_both_kinds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
