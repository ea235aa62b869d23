/* Attacks that a single header, or the order of headers, shows: sections A, C and D of the specification. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cases.h"
#include "mk.h"

static char *repeat(char c, size_t n)
{
	char *p = malloc(n + 1);

	if (!p)
		abort();
	memset(p, c, n);
	p[n] = '\0';
	return p;
}

static size_t ustar(struct buf *b, char type, const char *name, uint64_t size)
{
	return mk_head(b, &(struct mk){MK_USTAR, type, name, NULL, size, 0});
}

static size_t gnu(struct buf *b, char type, const char *name, uint64_t size)
{
	return mk_head(b, &(struct mk){MK_GNU, type, name, NULL, size, 0});
}

static void one_file(struct buf *b, const char *name)
{
	mk_file(b, "before", "good\n");
	mk_file(b, name, "bad\n");
	mk_end(b);
}

#define FILE_CASE(fn, name)           \
	static void fn(struct buf *b) \
	{                             \
		one_file(b, (name));  \
	}
FILE_CASE(a2_absolute, "/out/x")
FILE_CASE(a3_parent, "../../x")
FILE_CASE(a3_inner, "a/../../x")
FILE_CASE(a3_last, "a/..")
FILE_CASE(a3_hidden, "./a/.//../x")
FILE_CASE(d3_odd, " new\nline\ttab\\back\"quote'$(id)`id`;x ")
FILE_CASE(d4_option, "--checkpoint-action=exec=sh x")
FILE_CASE(d4_dash, "-rf")
FILE_CASE(name_empty, "")
FILE_CASE(name_slash, "a/b/")
FILE_CASE(root_file, ".")

static void a2_absolute_pax(struct buf *b)
{
	mk_pax1(b, 'x', "path", "/etc/cron.d/x");
	one_file(b, "innocent");
}

static void a3_dotdot_gnu(struct buf *b)
{
	mk_long(b, 'L', "a/../../x");
	(void)gnu(b, '0', "innocent", 0);
	mk_end(b);
}

static void a3_prefix(struct buf *b)
{
	size_t h = ustar(b, '0', "x", 0);

	mk_poke(b, h, 345, "../..", 5);
	mk_end(b);
}

#define GLOBAL_CASE(fn, key, value)              \
	static void fn(struct buf *b)            \
	{                                        \
		mk_pax1(b, 'g', (key), (value)); \
		one_file(b, "a");                \
	}
GLOBAL_CASE(a5_path, "path", "elsewhere")
GLOBAL_CASE(a5_linkpath, "linkpath", "/etc")
GLOBAL_CASE(a5_size, "size", "0")
GLOBAL_CASE(a5_op, "AIRLOCK.op", "delete")
GLOBAL_CASE(a5_sparse, "GNU.sparse.name", "b")
GLOBAL_CASE(a5_comment, "comment", "path=/etc")

#define RAW_PAX_CASE(fn, text)                          \
	static void fn(struct buf *b)                   \
	{                                               \
		mk_pax(b, 'x', text, sizeof(text) - 1); \
		one_file(b, "a");                       \
	}
RAW_PAX_CASE(a6_short, "8 path=b\n")
RAW_PAX_CASE(a6_long, "99 path=b\n")
RAW_PAX_CASE(a6_no_equal, "10 pathbb\n")
RAW_PAX_CASE(a6_overlap, "10 path=b\n3 x=1\n")
RAW_PAX_CASE(a6_zero_led, "010 path=b\n")
RAW_PAX_CASE(a6_huge, "99999999999999999999 path=b\n")
RAW_PAX_CASE(a6_no_key, "5 =b\n")
RAW_PAX_CASE(a6_nul_key, "13 pa\0th=b\n\n\n")
RAW_PAX_CASE(a6_nul_value, "13 path=a\0bc\n")
RAW_PAX_CASE(a6_negative, "11 size=-1\n")
RAW_PAX_CASE(a6_op, "20 AIRLOCK.op=wipe\n\n")
RAW_PAX_CASE(a6_last_wins, "13 path=../x\n10 path=b\n")
RAW_PAX_CASE(c8_attributes, "38 SCHILY.xattr.security.selinux=a\0\nb\n25 SCHILY.acl.access=u::\n")

static void a7_size_lies(struct buf *b)
{
	/* PAX says one block more than there is: the next "header" is the end of the data. */
	mk_pax1(b, 'x', "size", "600");
	(void)ustar(b, '0', "a", 5);
	mk_data(b, "12345", 5);
	mk_file(b, "b", "x");
	mk_data(b, "garbage, no header", 18);
	mk_end(b);
}

static void a7_size_wins(struct buf *b)
{
	char data[600];

	memset(data, 'd', sizeof(data));
	mk_pax1(b, 'x', "size", "600");
	(void)ustar(b, '0', "a", 5);
	mk_data(b, data, sizeof(data));
	mk_file(b, "b", "x");
	mk_end(b);
}

static void a9_checksum(struct buf *b)
{
	size_t h;

	mk_file(b, "a", "good\n");
	h = ustar(b, '0', "b", 0);
	b->data[h] = 'c';
	mk_end(b);
}

static void a10_mid_data(struct buf *b)
{
	(void)ustar(b, '0', "a", 2000);
	mk_data(b, "short", 5);
}

static void a10_mid_header(struct buf *b)
{
	mk_file(b, "a", "x");
	(void)ustar(b, '0', "b", 0);
	b->len -= 200;
}

static void a10_no_end(struct buf *b)
{
	mk_file(b, "a", "x");
}

static void a10_one_zero_block(struct buf *b)
{
	mk_file(b, "a", "x");
	mk_end(b);
	b->len -= 512;
}

static void a10_lone_zero_block(struct buf *b)
{
	mk_file(b, "a", "x");
	mk_end(b);
	b->len -= 512;
	mk_file(b, "b", "x");
	mk_end(b);
}

static void a11_size_octal(struct buf *b)
{
	(void)ustar(b, '0', "a", 077777777777);
	mk_data(b, "x", 1);
}

static void base256(struct buf *b, const char *field)
{
	size_t h = ustar(b, '0', "a", 0);

	mk_poke(b, h, 124, field, 12);
	mk_end(b);
}

#define SIZE_FIELD_CASE(fn, field)    \
	static void fn(struct buf *b) \
	{                             \
		base256(b, (field));  \
	}
SIZE_FIELD_CASE(a13_over_2_53, "\x80\0\0\0\0\x20\0\0\0\0\0\1")
SIZE_FIELD_CASE(a13_over_2_64, "\x80\0\0\1\0\0\0\0\0\0\0\0")
SIZE_FIELD_CASE(a13_negative, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
SIZE_FIELD_CASE(a13_other_base, "\xc0\0\0\0\0\0\0\0\0\0\0\0")
SIZE_FIELD_CASE(number_letters, "0000000000x")
SIZE_FIELD_CASE(number_split, "000 0000001")
SIZE_FIELD_CASE(number_sign, "-0000000001")

#define HIDDEN_CASE(fn, type)                                                             \
	static void fn(struct buf *b)                                                     \
	{                                                                                 \
		(void)mk_head(b, &(struct mk){MK_USTAR, (type), "a", "target", 1024, 0}); \
		mk_file(b, "hidden", "x");                                                \
		mk_end(b);                                                                \
	}
HIDDEN_CASE(a14_symlink, '2')
HIDDEN_CASE(a14_hardlink, '1')
HIDDEN_CASE(a14_dir, '5')
HIDDEN_CASE(a14_fifo, '6')

static void a14_pax_size(struct buf *b)
{
	mk_pax1(b, 'x', "size", "1024");
	mk_link(b, "a", "target");
	mk_file(b, "hidden", "x");
	mk_end(b);
}

static void a14_old_dir(struct buf *b)
{
	(void)mk_head(b, &(struct mk){MK_V7, '\0', "d/", NULL, 1024, 0});
	mk_file(b, "hidden", "x");
	mk_end(b);
}

static void a15_long_4g(struct buf *b)
{
	(void)gnu(b, 'L', "././@LongLink", UINT64_C(4) << 30);
	mk_data(b, "x", 1);
}

static void a15_target_4g(struct buf *b)
{
	(void)gnu(b, 'K', "././@LongLink", UINT64_C(4) << 30);
	mk_data(b, "x", 1);
}

static void a15_twice(struct buf *b)
{
	mk_long(b, 'L', "a");
	mk_long(b, 'L', "b");
	(void)gnu(b, '0', "c", 0);
	mk_end(b);
}

static void a15_chain(struct buf *b)
{
	mk_long(b, 'K', "target");
	mk_long(b, 'L', "a");
	(void)mk_head(b, &(struct mk){MK_GNU, '2', "cut", "cut", 0, 0777});
	mk_end(b);
}

static void a15_dangling(struct buf *b)
{
	mk_long(b, 'L', "a");
	mk_end(b);
}

static void a15_hidden_tail(struct buf *b)
{
	(void)gnu(b, 'L', "././@LongLink", 8);
	mk_data(b, "a\0../x\0", 8);
	(void)gnu(b, '0', "c", 0);
	mk_end(b);
}

static void mix_pax_and_long(struct buf *b)
{
	mk_pax1(b, 'x', "path", "a");
	mk_long(b, 'L', "b");
	(void)gnu(b, '0', "c", 0);
	mk_end(b);
}

static void mix_pax_then_gnu(struct buf *b)
{
	mk_pax1(b, 'x', "path", "a");
	(void)gnu(b, '0', "c", 0);
	mk_end(b);
}

static void mix_long_in_ustar(struct buf *b)
{
	(void)ustar(b, 'L', "././@LongLink", 2);
	mk_data(b, "a", 2);
	(void)ustar(b, '0', "c", 0);
	mk_end(b);
}

static void two_pax(struct buf *b)
{
	mk_pax1(b, 'x', "path", "a");
	mk_pax1(b, 'x', "path", "b");
	one_file(b, "c");
}

static void a17_long(struct buf *b)
{
	_cleanup_free_ char *segment = repeat('s', 255), *path = malloc(4096);

	if (!path)
		abort();
	mk_pax1(b, 'x', "path", segment);
	mk_file(b, "cut", "x");
	for (size_t i = 0; i < 4000; i++)
		path[i] = i % 200 == 199 ? '/' : 'p';
	path[3999] = 'p';
	path[4000] = '\0';
	mk_pax1(b, 'x', "path", path);
	mk_file(b, "cut", "x");
	mk_end(b);
}

static void a17_segment(struct buf *b)
{
	_cleanup_free_ char *segment = repeat('s', 256);

	mk_pax1(b, 'x', "path", segment);
	one_file(b, "cut");
}

static void a17_path(struct buf *b)
{
	_cleanup_free_ char *path = repeat('p', 4097);

	for (size_t i = 100; i < 4097; i += 100)
		path[i] = '/';
	mk_pax1(b, 'x', "path", path);
	one_file(b, "cut");
}

static void deep(struct buf *b, size_t depth)
{
	_cleanup_free_ char *path = repeat('d', depth * 2 - 1);

	for (size_t i = 1; i < depth * 2 - 1; i += 2)
		path[i] = '/';
	mk_pax1(b, 'x', "path", path);
	one_file(b, "cut");
}

static void a17_depth_128(struct buf *b)
{
	deep(b, 128);
}

static void a17_depth_129(struct buf *b)
{
	deep(b, 129);
}

static void a18_gzip(struct buf *b)
{
	static const char z[600] = "\x1f\x8b\x08\0\0\0\0\0\0\xff";

	(void)buf_put(b, z, sizeof(z));
}

static void a18_xz(struct buf *b)
{
	static const char z[600] = "\xfd"
				   "7zXZ\0\0\4";

	(void)buf_put(b, z, sizeof(z));
}

static void a18_bzip2(struct buf *b)
{
	static const char z[600] = "BZh91AY&SY";

	(void)buf_put(b, z, sizeof(z));
}

static void a18_lz4(struct buf *b)
{
	static const char z[600] = "\x04\x22\x4d\x18";

	(void)buf_put(b, z, sizeof(z));
}

static void a18_zstd(struct buf *b)
{
	static const char z[600] = "\x28\xb5\x2f\xfd";

	(void)buf_put(b, z, sizeof(z));
}

/* Old GNU sparse header: pairs as text, flag, logical size. */
static size_t gnu_sparse(struct buf *b, uint64_t stored, const char *pairs, size_t n, uint64_t real)
{
	size_t h = gnu(b, 'S', "sparse", stored);
	char t[16];

	mk_poke(b, h, 386, pairs, n);
	(void)snprintf(t, sizeof(t), "%011llo", (unsigned long long)real);
	mk_poke(b, h, 483, t, 12);
	return h;
}
#define P(off, len) off "\0" len "\0"

static void a19_gnu(struct buf *b)
{
	static const char pairs[] = P("45000000000", "00000001000") P("45200000000", "00000000000");

	(void)gnu_sparse(b, 512, pairs, 48, 045200000000);
	mk_data(b, "tail", 4);
	mk_end(b);
}

static void a19_gnu_backwards(struct buf *b)
{
	static const char pairs[] = P("00000001000", "00000001000") P("00000000000", "00000001000");

	(void)gnu_sparse(b, 1024, pairs, 48, 4096);
	mk_data(b, "a", 1);
	mk_data(b, "b", 1);
	mk_end(b);
}

static void a19_gnu_outside(struct buf *b)
{
	static const char pairs[] = P("00000010000", "00000001000");

	(void)gnu_sparse(b, 512, pairs, 24, 4096);
	mk_data(b, "a", 1);
	mk_end(b);
}

static void a19_gnu_sum(struct buf *b)
{
	static const char pairs[] = P("00000000000", "00000001000");

	(void)gnu_sparse(b, 1024, pairs, 24, 4096);
	mk_data(b, "a", 1);
	mk_file(b, "hidden", "x");
	mk_end(b);
}

static void a19_gnu_endless(struct buf *b)
{
	static const char pairs[] = P("00000000000", "00000001000");
	size_t h = gnu_sparse(b, 512, pairs, 24, 4096);

	mk_poke(b, h, 482, "\1", 1);
	for (int i = 0; i < 8; i++) {
		char more[512] = {0};

		more[504] = 1;
		(void)buf_put(b, more, sizeof(more));
	}
}

static void pax_sparse1(struct buf *b, const char *map, const char *real, size_t data)
{
	_cleanup_buf_ struct buf r = BUF_INIT(4096);
	_cleanup_free_ char *text = repeat('s', data);

	mk_record(&r, "GNU.sparse.major", "1", 1);
	mk_record(&r, "GNU.sparse.minor", "0", 1);
	mk_record(&r, "GNU.sparse.name", "sparse", 6);
	mk_record(&r, "GNU.sparse.realsize", real, strlen(real));
	mk_pax(b, 'x', r.data, r.len);
	(void)ustar(b, '0', "GNUSparseFile.0/sparse", 512 + data);
	mk_data(b, map, strlen(map));
	mk_data(b, text, data);
	mk_end(b);
}

static void a19_pax1(struct buf *b)
{
	pax_sparse1(b, "2\n4999999488\n512\n5000000000\n0\n", "5000000000", 512);
}

static void a19_pax1_over_limit(struct buf *b)
{
	pax_sparse1(b, "1\n0\n512\n", "9000000000000000", 512);
}

static void a19_pax1_overlap(struct buf *b)
{
	pax_sparse1(b, "2\n0\n512\n511\n512\n", "4096", 1024);
}

static void a19_pax1_count(struct buf *b)
{
	pax_sparse1(b, "1048577\n0\n512\n", "4096", 512);
}

static void a19_pax1_garbage(struct buf *b)
{
	pax_sparse1(b, "1\n0\n512 \n", "4096", 512);
}

static void a19_pax1_outside(struct buf *b)
{
	pax_sparse1(b, "1\n4095\n512\n", "4096", 512);
}

static void pax_sparse0(struct buf *b, const char *blocks, const char *map)
{
	_cleanup_buf_ struct buf r = BUF_INIT(4096);

	mk_record(&r, "GNU.sparse.size", "4096", 4);
	mk_record(&r, "GNU.sparse.numblocks", blocks, strlen(blocks));
	mk_record(&r, "GNU.sparse.name", "sparse", 6);
	mk_record(&r, "GNU.sparse.map", map, strlen(map));
	mk_pax(b, 'x', r.data, r.len);
	mk_file(b, "GNUSparseFile.0/sparse", "12345678");
	mk_end(b);
}

static void a19_pax01(struct buf *b)
{
	pax_sparse0(b, "3", "0,4,512,4,4096,0");
}

static void a19_pax01_blocks(struct buf *b)
{
	pax_sparse0(b, "2", "0,4,512,4,4096,0");
}

static void a19_pax01_odd(struct buf *b)
{
	pax_sparse0(b, "2", "0,4,512");
}

static void a19_pax00_order(struct buf *b)
{
	_cleanup_buf_ struct buf r = BUF_INIT(4096);

	mk_record(&r, "GNU.sparse.size", "4096", 4);
	mk_record(&r, "GNU.sparse.numblocks", "1", 1);
	mk_record(&r, "GNU.sparse.numbytes", "8", 1);
	mk_record(&r, "GNU.sparse.offset", "0", 1);
	mk_pax(b, 'x', r.data, r.len);
	one_file(b, "a");
}

static void a19_name_only(struct buf *b)
{
	mk_pax1(b, 'x', "GNU.sparse.name", "b");
	one_file(b, "a");
}

static void a21_garbage(struct buf *b)
{
	_cleanup_free_ char *p = repeat('g', 4096);

	(void)buf_put(b, p, 4096);
}

static void a21_empty(struct buf *b)
{
	(void)b;
}

static void a23_second_archive(struct buf *b)
{
	mk_file(b, "a", "x");
	mk_end(b);
	mk_file(b, "../.ssh/x", "x");
	mk_end(b);
}

static void a25_headers(struct buf *b)
{
	_cleanup_free_ char *p = repeat('c', 400000);

	for (int i = 0; i < 3; i++)
		mk_pax1(b, 'g', "comment", p);
	one_file(b, "a");
}

static void a25_empty_headers(struct buf *b)
{
	for (int i = 0; i < 2100; i++)
		mk_pax(b, 'g', "", 0);
	one_file(b, "a");
}

static void b9_arrow(struct buf *b)
{
	mk_link(b, "x -> a", "b -> /etc");
	mk_end(b);
}

static void b10_absolute(struct buf *b)
{
	mk_hard(b, "a", "/etc/hostname");
	mk_end(b);
}

static void b10_parent(struct buf *b)
{
	mk_hard(b, "a", "../x");
	mk_end(b);
}

static void b17_long(struct buf *b)
{
	_cleanup_free_ char *p = repeat('t', 5000);

	mk_pax1(b, 'x', "linkpath", p);
	mk_link(b, "a", "cut");
	mk_end(b);
}

static void b17_empty(struct buf *b)
{
	mk_link(b, "a", "");
	mk_end(b);
}

#define TYPE_CASE(fn, type)                   \
	static void fn(struct buf *b)         \
	{                                     \
		mk_file(b, "a", "x");         \
		(void)gnu(b, (type), "b", 0); \
		mk_end(b);                    \
	}
TYPE_CASE(type_multi, 'M')
TYPE_CASE(type_dumpdir, 'D')
TYPE_CASE(type_names, 'N')
TYPE_CASE(type_vendor, 'X')
TYPE_CASE(type_byte, '\xff')

static void magic_star(struct buf *b)
{
	size_t h = ustar(b, '0', "a", 0);

	mk_poke(b, h, 508, "tar", 4);
	mk_end(b);
}

static void magic_odd(struct buf *b)
{
	size_t h = ustar(b, '0', "a", 0);

	mk_poke(b, h, 263, "07", 2);
	mk_end(b);
}

static void name_hidden_tail(struct buf *b)
{
	size_t h = ustar(b, '0', "a", 0);

	mk_poke(b, h, 2, "../x", 4);
	mk_end(b);
}

static void op_on_data(struct buf *b)
{
	mk_pax1(b, 'x', "AIRLOCK.op", "delete");
	mk_file(b, "a", "x");
	mk_end(b);
}

static void op_opaque_file(struct buf *b)
{
	mk_pax1(b, 'x', "AIRLOCK.op", "opaque");
	mk_file(b, "a", "");
	mk_end(b);
}

static void op_delete_root(struct buf *b)
{
	mk_pax1(b, 'x', "AIRLOCK.op", "delete");
	mk_dir(b, ".");
	mk_end(b);
}

#define HOSTILE(name, rule, fn)            \
	{                                  \
		name, HV_HOSTILE, rule, fn \
	}
#define ACCEPT(name, fn)                  \
	{                                 \
		name, HV_ACCEPT, NULL, fn \
	}
const struct hostile_case hostile_reader_cases[] = {
    HOSTILE("A2-absolute", "absolute", a2_absolute),
    HOSTILE("A2-absolute-pax", "absolute", a2_absolute_pax),
    HOSTILE("A3-parent", "dotdot", a3_parent),
    HOSTILE("A3-inner", "dotdot", a3_inner),
    HOSTILE("A3-last", "dotdot", a3_last),
    HOSTILE("A3-hidden", "dotdot", a3_hidden),
    HOSTILE("A3-long-name", "dotdot", a3_dotdot_gnu),
    HOSTILE("A3-prefix", "dotdot", a3_prefix),
    HOSTILE("A4-empty-name", "empty_name", name_empty),
    HOSTILE("A4-file-with-slash", "trailing_slash", name_slash),
    HOSTILE("A4-root-as-file", "root_not_dir", root_file),
    HOSTILE("A4-bytes-after-nul", "nul_in_name", name_hidden_tail),
    HOSTILE("A5-global-path", "global_override", a5_path),
    HOSTILE("A5-global-linkpath", "global_override", a5_linkpath),
    HOSTILE("A5-global-size", "global_override", a5_size),
    HOSTILE("A5-global-op", "global_override", a5_op),
    HOSTILE("A5-global-sparse", "global_override", a5_sparse),
    ACCEPT("A5-global-comment", a5_comment),
    HOSTILE("A6-length-short", "bad_pax", a6_short),
    HOSTILE("A6-length-long", "bad_pax", a6_long),
    HOSTILE("A6-no-equal", "bad_pax", a6_no_equal),
    HOSTILE("A6-overlap", "bad_pax", a6_overlap),
    HOSTILE("A6-zero-led", "bad_pax", a6_zero_led),
    HOSTILE("A6-length-huge", "bad_pax", a6_huge),
    HOSTILE("A6-no-key", "bad_pax", a6_no_key),
    HOSTILE("A6-nul-in-key", "bad_pax", a6_nul_key),
    HOSTILE("A6-nul-in-value", "nul_in_name", a6_nul_value),
    HOSTILE("A6-negative-size", "bad_pax", a6_negative),
    HOSTILE("A6-unknown-op", "bad_op", a6_op),
    ACCEPT("A6-last-wins", a6_last_wins),
    HOSTILE("A7-size-lies", "bad_checksum", a7_size_lies),
    ACCEPT("A7-size-wins", a7_size_wins),
    HOSTILE("A8-pax-then-gnu", "format_mix", mix_pax_then_gnu),
    HOSTILE("A8-pax-and-long", "extension_order", mix_pax_and_long),
    HOSTILE("A8-long-in-ustar", "format_mix", mix_long_in_ustar),
    HOSTILE("A8-two-pax", "extension_order", two_pax),
    HOSTILE("A9-checksum", "bad_checksum", a9_checksum),
    HOSTILE("A10-mid-data", "truncated", a10_mid_data),
    HOSTILE("A10-mid-header", "truncated", a10_mid_header),
    HOSTILE("A10-no-end", "truncated", a10_no_end),
    HOSTILE("A10-one-zero-block", "truncated", a10_one_zero_block),
    HOSTILE("A10-lone-zero-block", "lone_zero_block", a10_lone_zero_block),
    HOSTILE("A11-size-octal", "truncated", a11_size_octal),
    HOSTILE("A12-letters", "bad_number", number_letters),
    HOSTILE("A12-split", "bad_number", number_split),
    HOSTILE("A12-sign", "bad_number", number_sign),
    HOSTILE("A13-over-2-53", "limit", a13_over_2_53),
    HOSTILE("A13-over-2-64", "limit", a13_over_2_64),
    HOSTILE("A13-negative", "bad_number", a13_negative),
    HOSTILE("A13-other-base", "bad_number", a13_other_base),
    HOSTILE("A14-symlink", "hidden_data", a14_symlink),
    HOSTILE("A14-hardlink", "hidden_data", a14_hardlink),
    HOSTILE("A14-directory", "hidden_data", a14_dir),
    HOSTILE("A14-fifo", "hidden_data", a14_fifo),
    HOSTILE("A14-pax-size", "hidden_data", a14_pax_size),
    HOSTILE("A14-old-directory", "hidden_data", a14_old_dir),
    HOSTILE("A15-name-4g", "name_too_long", a15_long_4g),
    HOSTILE("A15-target-4g", "target_too_long", a15_target_4g),
    HOSTILE("A15-twice", "extension_order", a15_twice),
    HOSTILE("A15-dangling", "extension_order", a15_dangling),
    HOSTILE("A15-hidden-tail", "nul_in_name", a15_hidden_tail),
    ACCEPT("A15-chain", a15_chain),
    HOSTILE("A16-multi-volume", "bad_type", type_multi),
    HOSTILE("A16-dump-directory", "bad_type", type_dumpdir),
    HOSTILE("A16-old-long-names", "bad_type", type_names),
    HOSTILE("A16-vendor", "bad_type", type_vendor),
    HOSTILE("A16-byte", "bad_type", type_byte),
    HOSTILE("A16-star", "bad_magic", magic_star),
    HOSTILE("A16-version", "bad_magic", magic_odd),
    ACCEPT("A17-long-names", a17_long),
    HOSTILE("A17-segment-256", "name_too_long", a17_segment),
    HOSTILE("A17-path-4097", "name_too_long", a17_path),
    ACCEPT("A17-depth-128", a17_depth_128),
    HOSTILE("A17-depth-129", "limit", a17_depth_129),
    HOSTILE("A18-gzip", "not_tar", a18_gzip),
    HOSTILE("A18-xz", "not_tar", a18_xz),
    HOSTILE("A18-bzip2", "not_tar", a18_bzip2),
    HOSTILE("A18-lz4", "not_tar", a18_lz4),
    HOSTILE("A18-zstd", "not_tar", a18_zstd),
    ACCEPT("A19-gnu-5g", a19_gnu),
    HOSTILE("A19-gnu-backwards", "bad_sparse", a19_gnu_backwards),
    HOSTILE("A19-gnu-outside", "bad_sparse", a19_gnu_outside),
    HOSTILE("A19-gnu-sum", "bad_sparse", a19_gnu_sum),
    HOSTILE("A19-gnu-endless", "bad_sparse", a19_gnu_endless),
    ACCEPT("A19-pax1-5g", a19_pax1),
    HOSTILE("A19-pax1-over-limit", "limit", a19_pax1_over_limit),
    HOSTILE("A19-pax1-overlap", "bad_sparse", a19_pax1_overlap),
    HOSTILE("A19-pax1-count", "limit", a19_pax1_count),
    HOSTILE("A19-pax1-garbage", "bad_sparse", a19_pax1_garbage),
    HOSTILE("A19-pax1-outside", "bad_sparse", a19_pax1_outside),
    ACCEPT("A19-pax01", a19_pax01),
    HOSTILE("A19-pax01-blocks", "bad_sparse", a19_pax01_blocks),
    HOSTILE("A19-pax01-odd", "bad_sparse", a19_pax01_odd),
    HOSTILE("A19-pax00-order", "bad_sparse", a19_pax00_order),
    HOSTILE("A19-name-only", "bad_sparse", a19_name_only),
    HOSTILE("A20-delete-with-data", "bad_op", op_on_data),
    HOSTILE("A20-opaque-file", "bad_op", op_opaque_file),
    HOSTILE("A20-delete-root", "bad_op", op_delete_root),
    HOSTILE("A21-garbage", "not_tar", a21_garbage),
    HOSTILE("A21-empty", "truncated", a21_empty),
    ACCEPT("A22-zero-blocks", mk_end),
    ACCEPT("A23-second-archive", a23_second_archive),
    HOSTILE("A25-headers", "limit", a25_headers),
    HOSTILE("A25-empty-headers", "limit", a25_empty_headers),
    HOSTILE("B10-absolute", "hardlink_target", b10_absolute),
    HOSTILE("B10-parent", "hardlink_target", b10_parent),
    HOSTILE("B17-long", "target_too_long", b17_long),
    HOSTILE("B17-empty", "empty_target", b17_empty),
    ACCEPT("B9-arrow", b9_arrow),
    ACCEPT("C8-attributes", c8_attributes),
    ACCEPT("D3-odd-names", d3_odd),
    ACCEPT("D4-option", d4_option),
    ACCEPT("D4-dash", d4_dash),
};
const size_t hostile_reader_cases_len = ARRAY_LEN(hostile_reader_cases);
