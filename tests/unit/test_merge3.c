/* S1-04: text merges, against git merge-file as the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "os/process.h"
#include "sync/merge3.h"
#include "scratch.h"

static int keep(void *arg, const void *p, size_t n)
{
	return buf_put(arg, p, n);
}

static struct view text(const char *s)
{
	return (struct view){s, strlen(s)};
}

static const struct row {
	const char *base, *ours, *theirs, *want; /* want NULL: conflict */
} rows[] = {
    {"", "", "", ""},
    {"a\n", "a\n", "a\n", "a\n"},
    {"a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"},
    {"a\nb\nc\n", "A\nb\nc\n", "A\nb\nc\n", "A\nb\nc\n"},
    {"a\nb\nc\n", "A\nb\nc\n", "X\nb\nc\n", NULL},
    {"a\nb\nc\n", "A\nb\nc\n", "a\nB\nc\n", NULL}, /* touching */
    {"a\nb\nc\nd\n", "a\nd\n", "a\nb\nc\nd\ne\n", "a\nd\ne\n"},
    {"a\nb\nc\n", "a\nc\n", "a\nX\nc\n", NULL}, /* deleted against edited */
    {"a\nb\n", "x\na\nb\n", "a\nb\ny\n", "x\na\nb\ny\n"},
    {"a\nb\n", "a\nx\nb\n", "a\ny\nb\n", NULL}, /* both inserted at one place */
    {"a\nb\n", "a\nx\nb\n", "a\nx\nb\n", "a\nx\nb\n"},
    {"a\nb\nc", "a\nb\nc\n", "A\nb\nc", "A\nb\nc\n"}, /* newline at the end of one side */
    {"a\nb\nc\n", "a\nb\nc", "A\nb\nc\n", "A\nb\nc"},
    {"", "x\n", "x\n", "x\n"},
    {"", "x\n", "y\n", NULL},
    {"a\n", "", "a\n", ""},
    {"a\n", "", "b\n", NULL},
    {"a\nb\nc\nd\ne\n", "", "a\nb\nc\nd\ne\n", ""},
    {"a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n", "A\r\nb\r\nC\r\n"},
};

static void test_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		for (int swap = 0; swap < 2; swap++) {
			const struct row *w = &rows[i];
			_cleanup_buf_ struct buf b = BUF_INIT(4096);
			int r = merge3(text(w->base), text(swap ? w->theirs : w->ours),
				       text(swap ? w->ours : w->theirs), keep, &b);

			assert_int_equal(r, w->want ? MERGE3_CLEAN : MERGE3_CONFLICT);
			assert_string_equal(buf_text(&b), w->want ? w->want : "");
		}
	}
}

static void test_bounds(void **state)
{
	static char big[MERGE_TEXT_MAX + 1], lines[2 * (MERGE_LINES_MAX + 1)];
	struct view many = {lines, sizeof(lines)}, ok = {lines, sizeof(lines) - 2};
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	memset(big, 'x', sizeof(big));
	for (size_t i = 0; i < sizeof(lines); i++)
		lines[i] = i % 2 ? '\n' : 'a';
	assert_int_equal(merge3(text("a"), text("b"), (struct view){big, sizeof(big)}, keep, &b),
			 MERGE3_TOO_BIG);
	assert_int_equal(merge3(text("a"), text("b"), many, keep, &b), MERGE3_TOO_BIG);
	assert_int_equal(merge3(text("a"), text("a"), ok, keep, &b), MERGE3_TOO_BIG); /* edits */
	assert_int_equal(merge3(ok, ok, ok, keep, &b), MERGE3_CLEAN);
	assert_int_equal(b.len, ok.n);
	assert_int_equal(merge3(text("a"), (struct view){"a\0b", 3}, text("c"), keep, &b),
			 MERGE3_NOT_TEXT);
}

static int fails(void *arg, const void *p, size_t n)
{
	(void)arg;
	(void)p;
	(void)n;
	return -28;
}

static void test_writer_fails(void **state)
{
	(void)state;
	assert_int_equal(merge3(text("a\n"), text("a\n"), text("b\n"), fails, NULL), -28);
}

static uint32_t rnd(uint32_t *s)
{
	*s = *s * 1664525u + 1013904223u;
	return *s >> 16;
}

/* Lines that are mostly unique, so that there is one sensible difference. */
static void edit(struct buf *out, const unsigned *lines, unsigned n, uint32_t *seed, char side)
{
	for (unsigned i = 0; i < n; i++) {
		uint32_t what = rnd(seed) % 24;

		if (what == 0)
			continue;
		if (what == 1)
			(void)buf_putf(out, "%c %u new\n", side, rnd(seed));
		(void)buf_putf(out, what == 2 ? "line %u changed by %c\n" : "line %u\n", lines[i],
			       side);
	}
}

static int write_file(const char *dir, const char *name, const struct buf *b)
{
	char path[128];
	_cleanup_file_ FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	return f && fwrite(buf_text(b), 1, b->len, f) == b->len ? 0 : -1;
}

static void test_against_git(void **state)
{
	char dir[] = "/tmp/test-merge3-XXXXXX", o[64], a[64], t[64];
	const char *argv[] = {"git", "merge-file", "-p", "-q", o, a, t, NULL};
	const char *envp[] = {"PATH=/usr/bin:/bin", NULL};
	uint32_t seed = 12345;
	unsigned clean = 0, conflict = 0;

	(void)state;
	if (getenv("UNDER_VALGRIND"))
		skip(); /* it knows no pidfd_open, so no program starts */
	assert_non_null(scratch_dir(dir));
	(void)snprintf(o, sizeof(o), "%s/ours", dir);
	(void)snprintf(a, sizeof(a), "%s/base", dir);
	(void)snprintf(t, sizeof(t), "%s/theirs", dir);
	for (int round = 0; round < 150; round++) {
		struct buf b[3] = {BUF_INIT(1 << 20), BUF_INIT(1 << 20), BUF_INIT(1 << 20)};
		_cleanup_buf_ struct buf ours = BUF_INIT(1 << 20), git = BUF_INIT(1 << 20);
		struct process_opts po = PROCESS_OPTS_INIT;
		struct err e = ERR_INIT;
		unsigned lines[60], n = rnd(&seed) % 60;
		int r, status;

		for (unsigned i = 0; i < n; i++) {
			lines[i] = i;
			(void)buf_putf(&b[0], "line %u\n", i);
		}
		edit(&b[1], lines, n, &seed, 'o');
		edit(&b[2], lines, n, &seed, 't');
		assert_int_equal(write_file(dir, "base", &b[0]), 0);
		assert_int_equal(write_file(dir, "ours", &b[1]), 0);
		assert_int_equal(write_file(dir, "theirs", &b[2]), 0);
		po.argv = argv;
		po.envp = envp;
		po.cwd_fd = -1;
		po.out = &git;
		assert_int_equal(process_run(&po, &status, NULL, &e), 0);
		r = merge3((struct view){buf_text(&b[0]), b[0].len},
			   (struct view){buf_text(&b[1]), b[1].len},
			   (struct view){buf_text(&b[2]), b[2].len}, keep, &ours);
		if ((r == MERGE3_CLEAN) != (status == 0))
			fail_msg("round %d: we say %d, git %d", round, r, status);
		if (r == MERGE3_CLEAN) {
			assert_int_equal(ours.len, git.len);
			assert_memory_equal(buf_text(&ours), buf_text(&git), git.len);
		}
		clean += r == MERGE3_CLEAN;
		conflict += r == MERGE3_CONFLICT;
		for (int i = 0; i < 3; i++)
			buf_done(&b[i]);
	}
	assert_true(clean >= 20 && conflict >= 20);
	(void)unlink(o);
	(void)unlink(a);
	(void)unlink(t);
	(void)rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_rows),
	    cmocka_unit_test(test_bounds),
	    cmocka_unit_test(test_writer_fails),
	    cmocka_unit_test(test_against_git),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
