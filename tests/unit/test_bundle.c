/* Unit tests of src/wire/bundle.c: what a bundle from a sandbox may say before git sees it (B-01, F8). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "wire/bundle.h"

#define A "1111111111111111111111111111111111111111"
#define B "2222222222222222222222222222222222222222"
#define A64 A "333333333333333333333333"
#define PACK "PACK\0\0\0\2\0\0\1\7"

static int parse(const char *p, size_t n, struct bundle *b)
{
	const char *why = NULL;
	int r = bundle_parse(p, n, "HEAD", b, &why);

	assert_non_null(why);
	assert_int_equal(r < 0, *why != '\0');
	return r;
}

#define ROW(text, result)                        \
	{                                        \
		text, sizeof(text) - 1, (result) \
	}

static void f8_only_one_reference_under_its_name(void **state)
{
	static const struct {
		const char *text;
		size_t n;
		int r;
	} rows[] = {
	    ROW("# v2 git bundle\n" A " HEAD\n\n" PACK, 1),
	    ROW("# v2 git bundle\n-" B " the subject\n" A " HEAD\n\n" PACK, 1),
	    ROW("# v2 git bundle\n-" B "\n" A " HEAD\n\n" PACK, 1),
	    ROW("# v2 git bundle\n-" B " \xff\x1b[31m\n" A " HEAD\n\n" PACK, 1),
	    ROW("# v3 git bundle\n@object-format=sha1\n" A " HEAD\n\n" PACK, 1),
	    ROW("# v3 git bundle\n@object-format=sha256\n" A64 " HEAD\n\n" PACK, 1),
	    ROW("# v2 git bundle\n" A " HEAD\n" A " refs/tags/v9\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A " HEAD\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A " refs/heads/main\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A " HEAD \n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A "\tHEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A "\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A " HEAD\n-" B "\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n-" B "x\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n-1\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A64 " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\nABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCD HEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n@object-format=sha1\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v3 git bundle\n@filter=blob:none\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v3 git bundle\n" A " HEAD\n@object-format=sha1\n\n" PACK, -EPROTO),
	    ROW("# v3 git bundle\n@object-format=sha256\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v4 git bundle\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\r\n" A " HEAD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A " HE\0AD\n\n" PACK, -EPROTO),
	    ROW("# v2 git bundle\n" A " HEAD\n\nPICK\0\0\0\2\0\0\0\1", -EPROTO),
	    ROW("# v2 git bundle\n" A " HEAD\n\nPACK\0\0\0\4\0\0\0\1", -EPROTO),
	    ROW("fatal: not a git repository", -EPROTO),
	    ROW("", 0),
	};
	struct bundle b;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (parse(rows[i].text, rows[i].n, &b) != rows[i].r)
			fail_msg("row %zu: %s", i, rows[i].text);
}

static void the_fields_are_those_of_the_header(void **state)
{
	static const char text[] =
	    "# v2 git bundle\n-" B " x\n-" A " y\n" A " HEAD\n\n" PACK "rest";
	struct bundle b;

	(void)state;
	assert_int_equal(parse(text, sizeof(text) - 1, &b), 1);
	assert_int_equal(b.version, 2);
	assert_false(b.sha256);
	assert_string_equal(b.head, A);
	assert_int_equal(b.prereq_n, 2);
	assert_string_equal(b.prereq[0], B);
	assert_string_equal(b.prereq[1], A);
	assert_memory_equal(text + b.pack_at, "PACK", 4);
	assert_int_equal(b.pack_objects, 0x107);
}

static void a_header_in_pieces_is_asked_on_until_the_pack_begins(void **state)
{
	static const char text[] = "# v2 git bundle\n-" B " x\n" A " HEAD\n\n" PACK;
	struct bundle b;

	(void)state;
	for (size_t n = 0; n < sizeof(text) - 1; n++)
		assert_int_equal(parse(text, n, &b), 0);
	assert_int_equal(parse(text, sizeof(text) - 1, &b), 1);
}

static void limits_hold_at_their_edge(void **state)
{
	struct buf b = BUF_INIT(2 * BUNDLE_HEADER_MAX);
	static struct bundle got;

	(void)state;
	for (size_t extra = 0; extra < 2; extra++) {
		buf_reset(&b);
		(void)buf_puts(&b, "# v2 git bundle\n");
		for (size_t i = 0; i < BUNDLE_PREREQ_MAX + extra; i++)
			(void)buf_puts(&b, "-" B "\n");
		(void)buf_puts(&b, A " HEAD\n\n");
		assert_int_equal(buf_put(&b, PACK, sizeof(PACK) - 1), 0);
		assert_int_equal(parse(b.data, b.len, &got), extra ? -E2BIG : 1);
	}
	/* A line without an end: wanted on up to the limit, then refused. */
	buf_reset(&b);
	(void)buf_puts(&b, "# v2 git bundle\n-" B " ");
	while (b.len < BUNDLE_HEADER_MAX - 1)
		(void)buf_putc(&b, 'x');
	assert_int_equal(parse(b.data, b.len, &got), 0);
	(void)buf_putc(&b, 'x');
	assert_int_equal(parse(b.data, b.len, &got), -E2BIG);
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(f8_only_one_reference_under_its_name),
	    cmocka_unit_test(the_fields_are_those_of_the_header),
	    cmocka_unit_test(a_header_in_pieces_is_asked_on_until_the_pack_begins),
	    cmocka_unit_test(limits_hold_at_their_edge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
