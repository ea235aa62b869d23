/* S1-04: 'airlock diff' looks like git's; git's own output is the oracle, `git apply` the proof. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "os/process.h"
#include "sync/patch.h"
#include "scratch.h"

static int keep(void *arg, const char *p, size_t n)
{
	return buf_put(arg, p, n);
}

static struct view text(const char *s)
{
	return (struct view){s, strlen(s)};
}

static const struct patch_side none = {.what = PATCH_NONE};

static void show(const struct patch_file *f, bool eyes, bool color, struct buf *b)
{
	const struct patch_style s = {
	    .color = color, .eyes = eyes, .context = 3, .emit = keep, .arg = b};

	assert_int_equal(patch_write(f, &s, NULL), 0);
}

static void put_file(const char *name, struct view v)
{
	_cleanup_fd_ int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, v.p, v.n), (ssize_t)v.n);
}

/* What git says of the two files, from the first line that begins with "---". */
static void git_says(struct view a, struct view b, struct buf *out)
{
	const char *const argv[] = {
	    "git", "diff", "--no-index", "--no-ext-diff", "--no-indent-heuristic", "--no-color",
	    "a",   "b",	   NULL};
	const char *const env[] = {"PATH=/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM=1",
				   "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent", NULL};
	struct process_opts o = PROCESS_OPTS_INIT;
	char *from;
	int status;

	put_file("a", a);
	put_file("b", b);
	o.argv = argv;
	o.envp = env;
	o.out = out;
	assert_int_equal(process_run(&o, &status, NULL, NULL), 0);
	assert_true(status <= 1);
	from = strstr(buf_text(out), "--- ");
	if (from)
		buf_drop(out, (size_t)(from - out->data));
	else
		buf_reset(out);
}

static void against_git(struct view a, struct view b)
{
	_cleanup_buf_ struct buf ours = BUF_INIT(64 << 20), git = BUF_INIT(64 << 20);
	const struct patch_file f = {.old_path = "a",
				     .new_path = "b",
				     .a = patch_side_of(0100644, a),
				     .b = patch_side_of(0100644, b)};
	const char *from;

	show(&f, false, false, &ours);
	git_says(a, b, &git);
	from = strstr(buf_text(&ours), "--- ");
	assert_string_equal(from ? from : "", buf_text(&git));
}

static void test_S1_04_hunks_are_those_of_git(void **state)
{
	static const char *const rows[][2] = {
	    {"a\nb\nc\n", "a\nB\nc\n"},
	    {"a\nb\nc", "a\nb\nc\n"},
	    {"a\nb\nc\n", "a\nb\nc"},
	    {"a", "b"},
	    {"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n",
	     "x\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\ny\n"},
	    {"1\n2\n3\n4\n5\n6\n7\n8\n", "x\n2\n3\n4\n5\n6\n7\ny\n"},
	    {"int f(void)\n{\n\ta;\n\tb;\n\tc;\n\td;\n\te;\n\tf;\n\tg;\n}\n",
	     "int f(void)\n{\n\ta;\n\tb;\n\tc;\n\td;\n\te;\n\tX;\n\tg;\n}\n"},
	    {"a\na\na\na\n", "a\na\na\n"},
	    {"x\nx\n", "x\nx\nx\nx\n"},
	    {"a\nb\n\nc\n\n", "a\nb\n\nnew\n\nc\n\n"},
	    {"a\r\nb\r\n", "a\r\nB\r\n"},
	    {"one\ntwo\nthree\n", "zero\none\ntwo\nthree\nfour\n"},
	};

	(void)state;
	if (getenv("UNDER_VALGRIND"))
		skip(); /* it knows no pidfd_open, so no program starts */
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		against_git(text(rows[i][0]), text(rows[i][1]));
		against_git(text(rows[i][1]), text(rows[i][0]));
	}
}

/* A random pair: the patch, given to git apply, must make b out of a. */
static void one_random(unsigned seed)
{
	static const char *const words[] = {"a\n", "b\n", "c\n",   "{\n",
					    "}\n", "\n",  "x y\n", "\tz\n"};
	const char *const argv[] = {"git", "apply", "--unidiff-zero", "-p1", "p", NULL};
	const char *const env[] = {"PATH=/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM=1",
				   "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent", NULL};
	_cleanup_buf_ struct buf a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20),
				 p = BUF_INIT(1 << 20), got = BUF_INIT(1 << 20);
	struct process_opts o = PROCESS_OPTS_INIT;
	char tail[PROCESS_TAIL_MAX + 1];
	_cleanup_fd_ int fd = -1;
	int status;
	ssize_t n;

	for (int i = 0; i < 60; i++) {
		const char *w = words[rand_r(&seed) % 8];

		if (rand_r(&seed) % 5)
			(void)buf_puts(&a, w);
		if (rand_r(&seed) % 5)
			(void)buf_puts(&b, w);
	}
	if (rand_r(&seed) % 3 == 0)
		(void)buf_puts(&b, "end");
	const struct patch_file f = {
	    .old_path = "f",
	    .new_path = "f",
	    .a = patch_side_of(0100644, (struct view){buf_text(&a), a.len}),
	    .b = patch_side_of(0100644, (struct view){buf_text(&b), b.len})};

	show(&f, false, false, &p);
	put_file("f", f.a.text);
	put_file("p", (struct view){buf_text(&p), p.len});
	o.argv = argv;
	o.envp = env;
	if (a.len != b.len || memcmp(a.data, b.data, a.len) != 0) {
		assert_int_equal(process_run(&o, &status, tail, NULL), 0);
		if (status)
			fail_msg("seed: git apply: %s\n%s", tail, buf_text(&p));
	}
	fd = open("f", O_RDONLY | O_CLOEXEC);
	n = read(fd, buf_room(&got, 1 << 16), 1 << 16);
	assert_int_equal(n, (ssize_t)b.len);
	assert_memory_equal(got.data, b.data, b.len);
}

static void test_S1_04_git_apply_takes_random_patches(void **state)
{
	(void)state;
	if (getenv("UNDER_VALGRIND"))
		skip(); /* it knows no pidfd_open, so no program starts */
	for (unsigned i = 0; i < 40; i++)
		one_random(i * 7919 + 1);
}

static void test_S1_04_headers(void **state)
{
	static const struct patch_side empty = {.what = PATCH_TEXT, .mode = 0100644};
	const struct {
		struct patch_file f;
		const char *want;
	} rows[] = {
	    {{.old_path = "n",
	      .new_path = "n",
	      .a = none,
	      .b = patch_side_of(0100755, text("x\n"))},
	     "diff --git a/n b/n\nnew file mode 100755\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"},
	    {{.old_path = "d", .new_path = "d", .a = patch_side_of(0100644, text("x")), .b = none},
	     "diff --git a/d b/d\ndeleted file mode 100644\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
	     "\\ No newline at end of file\n"},
	    {{.old_path = "e", .new_path = "e", .a = none, .b = empty},
	     "diff --git a/e b/e\nnew file mode 100644\n"},
	    {{.old_path = "m",
	      .new_path = "m",
	      .a = patch_side_of(0100644, text("x\n")),
	      .b = patch_side_of(0100755, text("x\n")),
	      .same = true},
	     "diff --git a/m b/m\nold mode 100644\nnew mode 100755\n"},
	    {{.old_path = "o",
	      .new_path = "p q",
	      .similarity = 100,
	      .a = empty,
	      .b = empty,
	      .same = true},
	     "diff --git a/o b/p q\nsimilarity index 100%\nrename from o\nrename to p q\n"},
	    {{.old_path = "a b",
	      .new_path = "a b",
	      .a = patch_side_of(0100644, text("x\n")),
	      .b = patch_side_of(0100644, text("y\n"))},
	     "diff --git a/a b b/a b\n--- a/a b\t\n+++ b/a b\t\n@@ -1 +1 @@\n-x\n+y\n"},
	    {{.old_path = "l", .new_path = "l", .a = none, .b = patch_side_of(0120000, text("t"))},
	     "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+t\n"
	     "\\ No newline at end of file\n"},
	    {{.old_path = "b",
	      .new_path = "b",
	      .a = none,
	      .b = patch_side_of(0100644, (struct view){"a\0b", 3})},
	     "diff --git a/b b/b\nnew file mode 100644\nBinary files /dev/null and b/b differ\n"},
	    {{.old_path = "m",
	      .new_path = "m",
	      .a = empty,
	      .b = empty,
	      .same = true,
	      .mark = "one\ntwo"},
	     "# airlock: one\n# airlock: two\ndiff --git a/m b/m\n"},
	    {{.old_path = "g",
	      .new_path = "g",
	      .a = {.what = PATCH_LOST, .mode = 0100644},
	      .b = empty},
	     "diff --git a/g b/g\n# airlock: the bytes of one side are not kept any more, or not what was kept\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 16);

		show(&rows[i].f, false, false, &b);
		assert_string_equal(buf_text(&b), rows[i].want);
	}
}

static void test_D3_names_are_quoted_as_git_quotes_them(void **state)
{
	static const char *const rows[][2] = {
	    {"plain-1.c", "a/plain-1.c"},
	    {"with space", "a/with space"},
	    {"tab\there", "\"a/tab\\there\""},
	    {"new\nline", "\"a/new\\nline\""},
	    {"q\"b\\", "\"a/q\\\"b\\\\\""},
	    {"\033[2J", "\"a/\\033[2J\""},
	    {"\303\251", "\"a/\\303\\251\""},
	    {"\377", "\"a/\\377\""},
	    {"\a\b\v\f\r", "\"a/\\a\\b\\v\\f\\r\""},
	    {"\x7f", "\"a/\\177\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(4096);

		assert_int_equal(patch_quote(&b, "a/", rows[i][0]), 0);
		assert_string_equal(buf_text(&b), rows[i][1]);
	}
}

static void test_S1_04_nothing_of_a_sandbox_reaches_a_terminal_raw(void **state)
{
	static const char evil[] = "x\033]0;title\007y\r\302\233z\342\200\256w\377 \303\251\tq\n";
	const struct patch_file f = {.old_path = "\033[31mname",
				     .new_path = "\033[31mname",
				     .a = none,
				     .b = patch_side_of(0100644, text(evil))};
	_cleanup_buf_ struct buf seen = BUF_INIT(1 << 16), raw = BUF_INIT(1 << 16);

	(void)state;
	show(&f, true, false, &seen);
	for (size_t i = 0; i < seen.len; i++)
		assert_true((unsigned char)seen.data[i] >= 0x20 || strchr("\n\t", seen.data[i]));
	assert_non_null(
	    strstr(buf_text(&seen), "+x^[]0;title^Gy^M<C2><9B>z<E2><80><AE>w<FF> \303\251\tq\n"));
	/* In a file or a pipe the bytes are the patch. */
	show(&f, false, false, &raw);
	assert_non_null(strstr(buf_text(&raw), evil));
}

static void test_limits_large_texts_are_told_not_shown(void **state)
{
	size_t n = 2 * (DIFF_LINES_MAX + 1);
	_cleanup_free_ char *many = malloc(n);
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	assert_non_null(many);
	for (size_t i = 0; i < n; i++)
		many[i] = i & 1 ? '\n' : 'x';
	const struct patch_file f = {.old_path = "m",
				     .new_path = "m",
				     .a = none,
				     .b = patch_side_of(0100644, (struct view){many, n})};

	show(&f, false, false, &b);
	assert_non_null(strstr(buf_text(&b), "Binary files /dev/null and b/m differ\n"));
}

/* More edits than the search allows: still a right patch. */
static void test_limits_beyond_the_edits_the_rest_is_one_change(void **state)
{
	_cleanup_buf_ struct buf a = BUF_INIT(1 << 22), b = BUF_INIT(1 << 22),
				 out = BUF_INIT(1 << 24);
	struct patch_count c;

	(void)state;
	for (int i = 0; i < 12000; i++) {
		(void)buf_putf(&a, "old %d\n", i * 7);
		(void)buf_putf(&b, "new %d\n", i * 11);
	}
	const struct patch_file f = {
	    .old_path = "m",
	    .new_path = "m",
	    .a = patch_side_of(0100644, (struct view){buf_text(&a), a.len}),
	    .b = patch_side_of(0100644, (struct view){buf_text(&b), b.len})};

	assert_int_equal(patch_count(&f, &c), 0);
	assert_int_equal(c.added, 12000);
	assert_int_equal(c.deleted, 12000);
	show(&f, false, false, &out);
	assert_non_null(strstr(buf_text(&out), "@@ -1,12000 +1,12000 @@\n"));
}

static void test_renames_are_measured(void **state)
{
	(void)state;
	assert_int_equal(patch_similarity(text("a\nb\nc\nd\n"), text("a\nb\nc\nd\n")), 100);
	assert_int_equal(patch_similarity(text("a\nb\nc\nd\n"), text("a\nb\nX\nY\n")), 50);
	assert_int_equal(patch_similarity(text("a\n"), text("b\n")), 0);
	assert_int_equal(patch_similarity(text(""), text("b\n")), 0);
}

static char dir[] = "/tmp/test-patch-XXXXXX";

static int set_up(void **state)
{
	(void)state;
	return scratch_dir(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	(void)unlink("a");
	(void)unlink("b");
	(void)unlink("f");
	(void)unlink("p");
	return chdir("/") < 0 || rmdir(dir) < 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_S1_04_hunks_are_those_of_git),
	    cmocka_unit_test(test_S1_04_git_apply_takes_random_patches),
	    cmocka_unit_test(test_S1_04_headers),
	    cmocka_unit_test(test_D3_names_are_quoted_as_git_quotes_them),
	    cmocka_unit_test(test_S1_04_nothing_of_a_sandbox_reaches_a_terminal_raw),
	    cmocka_unit_test(test_limits_large_texts_are_told_not_shown),
	    cmocka_unit_test(test_limits_beyond_the_edits_the_rest_is_one_change),
	    cmocka_unit_test(test_renames_are_measured),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
