/* Unit tests of src/wire/manifest.c (S1-09: what was sent is recorded exactly). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/manifest.h"

#define HASH64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static int mem_fd(const void *p, size_t n)
{
	int fd = memfd_create("manifest", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, p, n), (ssize_t)n);
	return fd;
}

static void set_path(struct manifest_entry *m, const char *p, size_t n)
{
	memcpy(m->path, p, n);
	m->path[n] = '\0';
	m->path_len = n;
}

static struct manifest_entry *entry(char kind, const char *p, size_t n)
{
	static struct manifest_entry m;

	memset(&m, 0, sizeof(m));
	m.kind = kind;
	set_path(&m, p, n);
	m.mode = kind == 'd' ? 0755 : kind == 'f' ? 0640 : 0;
	if (kind == 'f') {
		m.size = 12345678901ULL;
		m.mtime_ns = -5;
		m.ctime_ns = INT64_C(1764430000123456789);
		m.ino = UINT64_MAX;
		m.layer = 3;
		for (size_t i = 0; i < MANIFEST_HASH; i++)
			m.hash[i] = (uint8_t)(i * 7 + 1);
	}
	if (kind == 'l') {
		m.target_len = 7;
		memcpy(m.target, "../ a%\n", 7);
	}
	return &m;
}

/* The sandbox's own state in the baseline of a kept sandbox. */
static struct manifest_entry *sandbox_entry(char kind, const char *p)
{
	struct manifest_entry *m = entry(kind, p, strlen(p));

	m->sandbox = true;
	m->layer = 0;
	m->ino = 0;
	m->ctime_ns = 0;
	m->host_mode = kind == 'l' ? 0 : 0700;
	m->content = kind == 'f' ? UINT64_C(1) << 40 : 0;
	return m;
}

static void assert_same(const struct manifest_entry *a, const struct manifest_entry *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->mode, b->mode);
	assert_true(a->size == b->size && a->mtime_ns == b->mtime_ns && a->ino == b->ino &&
		    a->ctime_ns == b->ctime_ns && a->layer == b->layer);
	assert_int_equal(a->sandbox, b->sandbox);
	assert_int_equal(a->host_mode, b->host_mode);
	assert_true(a->content == b->content);
	assert_memory_equal(a->hash, b->hash, MANIFEST_HASH);
	assert_int_equal(a->path_len, b->path_len);
	assert_memory_equal(a->path, b->path, a->path_len + 1);
	assert_int_equal(a->target_len, b->target_len);
	assert_memory_equal(a->target, b->target, a->target_len);
}

/* D1-D9: names of any bytes come back as they went in, in raw byte order. */
static void round_trip_of_any_bytes_D1_D9(void **state)
{
	static const struct {
		char kind;
		const char *p;
		size_t n;
	} t[] = {
	    {'f', "\x01", 1},	  {'f', " lead", 5},	{'f', "%41", 3},  {'f', "-rf", 3},
	    {'d', "A", 1},	  {'f', "a\tb", 3},	{'f', "a\nb", 3}, {'f', "a b", 3},
	    {'f', "a-b", 3},	  {'d', "aa", 2},	{'f', "aa-x", 4}, {'l', "aa/l", 4},
	    {'f', "aa/\x7f", 4},  {'f', "b\\c", 3},	{'f', "q\"'", 3}, {'f', "z", 1},
	    {'f', "\x80\xff", 2}, {'f', "\xc3\xa9", 2},
	};
	_cleanup_fd_ int fd = memfd_create("m", MFD_CLOEXEC);
	struct manifest_writer w;
	struct manifest *m;
	struct manifest_entry got;
	struct err e = ERR_INIT;
	size_t pos = 0;

	(void)state;
	assert_int_equal(manifest_writer_init(&w, fd, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(manifest_writer_add(&w, entry(t[i].kind, t[i].p, t[i].n), &e), 0);
	assert_int_equal(manifest_writer_finish(&w, &e), 0);
	manifest_writer_done(&w);
	assert_int_equal(manifest_open(fd, &m, &e), 0);
	assert_true(manifest_count(m) == ARRAY_LEN(t));
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		assert_int_equal(manifest_next(m, &pos, &got), 1);
		assert_same(&got, entry(t[i].kind, t[i].p, t[i].n));
		assert_int_equal(manifest_find(m, t[i].p, t[i].n, &got), 1);
		assert_same(&got, entry(t[i].kind, t[i].p, t[i].n));
	}
	assert_int_equal(manifest_next(m, &pos, &got), 0);
	assert_int_equal(manifest_find(m, "a", 1, &got), 0);
	assert_int_equal(manifest_find(m, "aa/", 3, &got), 0);
	assert_int_equal(manifest_find(m, "zz", 2, &got), 0);
	assert_int_equal(manifest_find(m, "", 0, &got), 0);
	manifest_seek_below(m, "aa", 2, &pos);
	assert_int_equal(manifest_next(m, &pos, &got), 1);
	assert_string_equal(got.path, "aa/l");
	assert_int_equal(manifest_next(m, &pos, &got), 1);
	assert_string_equal(got.path, "aa/\x7f");
	manifest_seek_below(m, "\xff", 1, &pos);
	assert_int_equal(manifest_next(m, &pos, &got), 0);
	manifest_free(m);
}

static void longest_path_and_target(void **state)
{
	_cleanup_fd_ int fd = memfd_create("m", MFD_CLOEXEC);
	struct manifest_entry *a = entry('l', "x", 1), got;
	struct manifest_writer w;
	struct manifest *m;
	struct err e = ERR_INIT;

	(void)state;
	memset(a->path, 0xee, PATH_MEMBER_MAX);
	for (size_t i = 200; i < PATH_MEMBER_MAX; i += 200)
		a->path[i] = '/';
	a->path_len = PATH_MEMBER_MAX;
	memset(a->target, '\n', LINK_TARGET_MAX);
	a->target_len = LINK_TARGET_MAX;
	assert_true(path_is_member(a->path, a->path_len));
	assert_int_equal(manifest_writer_init(&w, fd, &e), 0);
	assert_int_equal(manifest_writer_add(&w, a, &e), 0);
	assert_int_equal(manifest_writer_finish(&w, &e), 0);
	manifest_writer_done(&w);
	assert_int_equal(manifest_open(fd, &m, &e), 0);
	assert_int_equal(manifest_find(m, a->path, a->path_len, &got), 1);
	assert_same(&got, a);
	manifest_free(m);
}

static void writer_refuses_what_a_reader_would(void **state)
{
	_cleanup_fd_ int fd = memfd_create("m", MFD_CLOEXEC);
	struct manifest_writer w;
	struct manifest_entry *a;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(manifest_writer_init(&w, fd, &e), 0);
	assert_int_equal(manifest_writer_add(&w, entry('f', "b", 1), &e), 0);
	assert_int_equal(manifest_writer_add(&w, entry('f', "b", 1), &e), -EINVAL);
	assert_int_equal(manifest_writer_add(&w, entry('f', "a", 1), &e), -EINVAL);
	assert_int_equal(manifest_writer_add(&w, entry('p', "c", 1), &e), -EINVAL);
	assert_int_equal(manifest_writer_add(&w, entry('f', "c/../d", 6), &e), -EINVAL);
	a = entry('l', "c", 1);
	a->target_len = 0;
	assert_int_equal(manifest_writer_add(&w, a, &e), -EINVAL);
	a = entry('f', "c", 1);
	a->mode = 04755;
	assert_int_equal(manifest_writer_add(&w, a, &e), -EINVAL);
	assert_true(w.count == 1);
	manifest_writer_done(&w);
}

static void frame_lines_are_judged(void **state)
{
	static const char *const bad[] = {
	    "",
	    "\n",
	    "airlock-manifest 1\n",
	    "airlock-manifest 2\nend 0\n",
	    "airlock-manifest 1\nend 0",
	    "airlock-manifest 1\nend 1\n",
	    "airlock-manifest 1\nend 00\n",
	    "airlock-manifest 1\nend -1\n",
	    "airlock-manifest 1\nend  0\n",
	    "airlock-manifest 1\nend 0 \n",
	    "airlock-manifest 1\nend 99999999999999999999\n",
	    "airlock-manifest 1\nd 755 a\n",
	    "airlock-manifest 1\nd 755 a\nend 0\n",
	    "airlock-manifest 1 end 0\n",
	};
	struct manifest *m;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_fd_ int fd = mem_fd(bad[i], strlen(bad[i]));

		e = (struct err)ERR_INIT;
		assert_int_equal(manifest_open(fd, &m, &e), -EPROTO);
		assert_int_equal(e.code, ERR_PROTOCOL);
	}
}

static void broken_lines_are_errors(void **state)
{
	static const struct {
		const char *line;
		int want;
	} t[] = {
	    {"d 755 a", 1},
	    {"f 644 1 2 " HASH64 " 1 3 4 a", 1},
	    {"f 644 1 -2 " HASH64 " 1 3 4 a", 1},
	    {"l b a", 1},
	    {"d 755 a%20b", 1},
	    {"", -EPROTO},
	    {"x 755 a", -EPROTO},
	    {"dd 755 a", -EPROTO},
	    {"d 1755 a", -EPROTO},
	    {"d 0755 a", -EPROTO},
	    {"d 758 a", -EPROTO},
	    {"d 755", -EPROTO},
	    {"d 755 ", -EPROTO},
	    {"d 755  a", -EPROTO},
	    {"d 755 a b", -EPROTO},
	    {"d 755 /a", -EPROTO},
	    {"d 755 a/../b", -EPROTO},
	    {"d 755 a%", -EPROTO},
	    {"d 755 a%4", -EPROTO},
	    {"d 755 a%zz", -EPROTO},
	    {"d 755 %41", -EPROTO},   /* a second spelling of A */
	    {"d 755 a%c3", -EPROTO},  /* lower-case escape */
	    {"d 755 a%00", -EPROTO},  /* NUL */
	    {"d 755 a\x80", -EPROTO}, /* raw byte */
	    {"d 755 a\tb", -EPROTO},
	    {"l a", -EPROTO},
	    {"f 644 -1 2 " HASH64 " 1 3 4 a", -EPROTO},
	    {"f 644 1 -0 " HASH64 " 1 3 4 a", -EPROTO},
	    {"f 644 1 2 0" HASH64 " 1 3 4 a", -EPROTO},
	    {"f 644 1 2 AA112233445566778899aabbccddeeff00112233445566778899aabbccddeeff 1 3 4 a",
	     -EPROTO},
	    {"f 644 99999999999999999999 2 " HASH64 " 1 3 4 a", -EPROTO},
	    {"f 644 1 2 " HASH64 " 4294967296 3 4 a", -EPROTO},
	    {"f 644 1 2 " HASH64 " 1 3 a", -EPROTO},
	};
	struct manifest_entry got;
	struct manifest *m;
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int n = snprintf(text, sizeof(text), "airlock-manifest 1\n%s\nend 1\n", t[i].line);
		_cleanup_fd_ int fd = mem_fd(text, (size_t)n);
		size_t pos = 0;

		assert_int_equal(manifest_open(fd, &m, NULL), 0);
		if (manifest_next(m, &pos, &got) != t[i].want)
			fail_msg("line %s", t[i].line);
		/* A look-up may miss a broken line; it may never find one. */
		if (t[i].want < 0)
			assert_true(manifest_find(m, "a", 1, &got) <= 0);
		manifest_free(m);
	}
}

/* Every prefix of a manifest is refused: a cut file never passes for a small workspace. */
static void truncation_is_refused(void **state)
{
	static const char text[] =
	    "airlock-manifest 1\nd 755 a\nf 644 1 2 " HASH64 " 1 3 4 a/b\nl x c\nend 3\n";
	struct manifest *m;

	(void)state;
	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		_cleanup_fd_ int fd = mem_fd(text, n);

		assert_int_equal(manifest_open(fd, &m, NULL), -EPROTO);
	}
	{
		_cleanup_fd_ int fd = mem_fd(text, sizeof(text) - 1);

		assert_int_equal(manifest_open(fd, &m, NULL), 0);
		manifest_free(m);
	}
}

static void two_hundred_thousand_entries(void **state)
{
	_cleanup_fd_ int fd = memfd_create("m", MFD_CLOEXEC);
	struct manifest_entry *a = entry('f', "x", 1), got;
	struct manifest_writer w;
	struct manifest *m;
	struct err e = ERR_INIT;
	char p[32];
	size_t pos = 0;
	int n;

	(void)state;
	assert_int_equal(manifest_writer_init(&w, fd, &e), 0);
	for (int i = 0; i < 200000; i++) {
		n = snprintf(p, sizeof(p), "d%03d/f %03d", i / 1000, i % 1000);
		set_path(a, p, (size_t)n);
		a->ino = (uint64_t)i;
		assert_int_equal(manifest_writer_add(&w, a, &e), 0);
	}
	assert_int_equal(manifest_writer_finish(&w, &e), 0);
	manifest_writer_done(&w);
	assert_int_equal(manifest_open(fd, &m, &e), 0);
	for (int i = 0; i < 200000; i += 37) {
		n = snprintf(p, sizeof(p), "d%03d/f %03d", i / 1000, i % 1000);
		assert_int_equal(manifest_find(m, p, (size_t)n, &got), 1);
		assert_true(got.ino == (uint64_t)i);
		p[n - 1] = 'x';
		assert_int_equal(manifest_find(m, p, (size_t)n, &got), 0);
	}
	n = 0;
	while (manifest_next(m, &pos, &got) == 1)
		n++;
	assert_int_equal(n, 200000);
	manifest_seek_below(m, "d100", 4, &pos);
	assert_int_equal(manifest_next(m, &pos, &got), 1);
	assert_string_equal(got.path, "d100/f 000");
	manifest_free(m);
}

/* Only the very same entry is passed over; a doubtful line is left to manifest_next. */
static void skip_same_is_exact_or_says_no(void **state)
{
#define LINE "f 640 2048 17 " HASH64 " 3 99 18 a/b"
	static const struct manifest_stat want = {.kind = 'f',
						  .mode = 0640,
						  .size = 2048,
						  .ino = 99,
						  .mtime_ns = 17,
						  .ctime_ns = 18,
						  .path = "a/b",
						  .path_len = 3};
	static const struct manifest_stat dir = {
	    .kind = 'd', .mode = 0755, .path = "a%20b", .path_len = 5};
	static const struct {
		const char *line;
		const struct manifest_stat *want;
		bool same;
	} cases[] = {
	    {LINE, &want, true},
	    {LINE "c", &want, false},
	    {"f 641 2048 17 " HASH64 " 3 99 18 a/b", &want, false},
	    {"f 640 2049 17 " HASH64 " 3 99 18 a/b", &want, false},
	    {"f 640 2048 16 " HASH64 " 3 99 18 a/b", &want, false},
	    {"f 640 2048 -17 " HASH64 " 3 99 18 a/b", &want, false},
	    {"f 640 2048 17 " HASH64 " 3 98 18 a/b", &want, false},
	    {"f 640 2048 17 " HASH64 " 3 99 19 a/b", &want, false},
	    {"f 640 2048 17 " HASH64 " 3 99 18 a/c", &want, false},
	    {"f 0640 2048 17 " HASH64 " 3 99 18 a/b", &want, false},
	    {"f 640 2048 17 " HASH64 "0 3 99 18 a/b", &want, false},
	    {"f 640 2048 17 " HASH64 " 3 99 18", &want, false},
	    {"f 640 2048 17", &want, false},
	    {"f", &want, false},
	    {"d 640 a/b", &want, false},
	    {"d 755 a%20b", &dir, false}, /* "a b", not a name with a percent sign */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[512];
		int n =
		    snprintf(text, sizeof(text), "airlock-manifest 1\n%s\nend 1\n", cases[i].line);
		_cleanup_fd_ int fd = mem_fd(text, (size_t)n);
		struct manifest *m = NULL;
		size_t pos = 0;
		bool same;

		assert_int_equal(manifest_open(fd, &m, NULL), 0);
		same = manifest_skip_same(m, &pos, cases[i].want);
		if (same != cases[i].same)
			fail_msg("%s", cases[i].line);
		assert_int_equal(pos, same ? strlen(cases[i].line) + 1 : 0);
		assert_false(same && manifest_skip_same(m, &pos, cases[i].want));
		manifest_free(m);
	}
#undef LINE
}

/* S1-07: what was sent in and what the sandbox made of it stand in one manifest, told apart. */
static void entries_of_the_sandbox_S1_07(void **state)
{
	static const struct {
		char kind;
		bool sandbox;
		const char *p;
	} t[] = {{'d', false, "a"},  {'f', true, "a/f"}, {'f', false, "b"},
		 {'d', true, "c d"}, {'l', true, "e"},	 {'f', false, "f"}};
	static const char *const bad[] = {"F 644 1000 1 0 " HASH64 " 0 a",
					  "F 644 644 1 0 " HASH64 " a", "D 755 a", "X 755 755 a",
					  "L  a"};
	_cleanup_fd_ int fd = memfd_create("m", MFD_CLOEXEC);
	struct manifest_writer w;
	struct manifest *m;
	struct manifest_entry got, *want;
	struct err e = ERR_INIT;
	size_t pos = 0, at = 0;

	(void)state;
	assert_int_equal(manifest_writer_init(&w, fd, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(manifest_writer_add(&w,
						     t[i].sandbox
							 ? sandbox_entry(t[i].kind, t[i].p)
							 : entry(t[i].kind, t[i].p, strlen(t[i].p)),
						     &e),
				 0);
	assert_int_equal(manifest_writer_finish(&w, &e), 0);
	manifest_writer_done(&w);
	assert_int_equal(manifest_open(fd, &m, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		want = t[i].sandbox ? sandbox_entry(t[i].kind, t[i].p)
				    : entry(t[i].kind, t[i].p, strlen(t[i].p));
		assert_int_equal(manifest_next(m, &pos, &got), 1);
		assert_same(&got, want);
		assert_int_equal(manifest_find(m, t[i].p, strlen(t[i].p), &got), 1);
		assert_same(&got, want);
		if (!t[i].sandbox)
			continue;
		assert_int_equal(manifest_next_sandbox(m, &at, &got), 1);
		assert_same(&got, want);
	}
	assert_int_equal(manifest_next_sandbox(m, &at, &got), 0);
	assert_int_equal(manifest_seek(m, "b", 1, &pos), 0);
	assert_int_equal(manifest_lines(m, 0, pos), 2);
	assert_int_equal(manifest_lines(m, pos, SIZE_MAX), 4);
	manifest_free(m);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char text[512];
		int n = snprintf(text, sizeof(text), "airlock-manifest 1\n%s\nend 1\n", bad[i]);
		int f = mem_fd(text, (size_t)n);

		pos = 0;
		assert_int_equal(manifest_open(f, &m, &e), 0);
		assert_int_equal(manifest_next(m, &pos, &got), -EPROTO);
		manifest_free(m);
		(void)close(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(round_trip_of_any_bytes_D1_D9),
	    cmocka_unit_test(entries_of_the_sandbox_S1_07),
	    cmocka_unit_test(longest_path_and_target),
	    cmocka_unit_test(writer_refuses_what_a_reader_would),
	    cmocka_unit_test(frame_lines_are_judged),
	    cmocka_unit_test(broken_lines_are_errors),
	    cmocka_unit_test(truncation_is_refused),
	    cmocka_unit_test(skip_same_is_exact_or_says_no),
	    cmocka_unit_test(two_hundred_thousand_entries),
	};

	return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
