/* What git converts between the bytes of commits and those of the work tree (S1-05): told, and never done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "os/beneath.h"
#include "sync/quarantine_convert.h"
#include "sync/quarantine_differ.h"
#include "scratch.h"

static char top[] = "/tmp/airlock-convert-XXXXXX";
static int top_fd = -1;
static struct git_repo *g;
static struct err e;

static void put(const char *path, const char *bytes, size_t n)
{
	struct beneath b = {.root = top_fd};
	_cleanup_fd_ int fd = -1;

	assert_true(beneath_mkparents(&b, path, 0755) >= 0);
	(void)unlinkat(top_fd, path, 0);
	fd = beneath_create(&b, path, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
}

static void attributes(const char *text)
{
	put(".gitattributes", text, strlen(text));
}

static void git(const char *const *words, char id[65])
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct process_opts io = PROCESS_OPTS_INIT;

	io.out = &b;
	io.cwd_fd = top_fd;
	if (git_run(g, words, NULL, &io, &e) < 0)
		fail_msg("%s", e.text);
	if (id)
		(void)snprintf(id, 65, "%.*s", (int)strcspn(buf_text(&b), "\n"), buf_text(&b));
}

static void config(const char *key, const char *value)
{
	git((const char *const[]){"config", key, value, NULL}, NULL);
}

static enum quarantine_convert of(const char *path)
{
	struct quarantine_settings s = {0};
	enum quarantine_convert ret;

	quarantine_settings_read(g, &s);
	assert_int_equal(quarantine_convert(g, &s, top_fd, &path, 1, &ret), 0);
	return ret;
}

/* git itself: what it would store of a file whose lines end with CR LF. */
static enum quarantine_convert of_git(void)
{
	char got[65], plain[65];

	git((const char *const[]){"hash-object", "f", NULL}, got);
	git((const char *const[]){"hash-object", "--no-filters", "f", NULL}, plain);
	return strcmp(got, plain) == 0 ? CONVERT_NOTHING : CONVERT_LINES;
}

static void test_attributes(void **state)
{
	static const struct {
		const char *line;
		enum quarantine_convert lines, unasked; /* with core.autocrlf, without */
	} cases[] = {
	    {"", CONVERT_LINES, CONVERT_NOTHING},
	    {"* text", CONVERT_LINES, CONVERT_LINES},
	    {"* text=auto", CONVERT_LINES, CONVERT_LINES},
	    {"* -text", CONVERT_NOTHING, CONVERT_NOTHING},
	    {"* !text", CONVERT_LINES, CONVERT_NOTHING},
	    {"* binary", CONVERT_NOTHING, CONVERT_NOTHING},
	    {"* eol=crlf", CONVERT_LINES, CONVERT_LINES},
	    {"* eol=lf", CONVERT_LINES, CONVERT_LINES},
	    {"* eol=cr", CONVERT_LINES, CONVERT_NOTHING},
	    {"* -text eol=crlf", CONVERT_NOTHING, CONVERT_NOTHING},
	    {"* crlf", CONVERT_LINES, CONVERT_LINES},
	    {"* crlf=input", CONVERT_LINES, CONVERT_LINES},
	    {"* -crlf", CONVERT_NOTHING, CONVERT_NOTHING},
	    {"* -text crlf", CONVERT_NOTHING, CONVERT_NOTHING},
	    {"* text -crlf", CONVERT_LINES, CONVERT_LINES},
	    {"* filter=lfs", CONVERT_BYTES, CONVERT_BYTES},
	    {"* -text filter=lfs", CONVERT_BYTES, CONVERT_BYTES},
	    {"* -filter", CONVERT_LINES, CONVERT_NOTHING},
	    {"* filter", CONVERT_LINES, CONVERT_NOTHING},
	    {"* working-tree-encoding=UTF-16", CONVERT_BYTES, CONVERT_BYTES},
	    {"* ident", CONVERT_BYTES, CONVERT_BYTES},
	    {"* -ident", CONVERT_LINES, CONVERT_NOTHING},
	    {"* ident=no", CONVERT_LINES, CONVERT_NOTHING},
	    {"*.other text filter=x", CONVERT_LINES, CONVERT_NOTHING},
	    {"f text\nf -text", CONVERT_NOTHING, CONVERT_NOTHING},
	    {"[attr]mine text filter=x\n* mine", CONVERT_BYTES, CONVERT_BYTES},
	    /* Nothing that git understands. */
	    {"\"* text", CONVERT_LINES, CONVERT_NOTHING},
	    {"* text=\001\377 =", CONVERT_LINES, CONVERT_NOTHING},
	    {"* text=\001\377", CONVERT_LINES, CONVERT_NOTHING},
	    {"* text=false crlf=input", CONVERT_LINES, CONVERT_LINES},
	    {"* text=no -crlf", CONVERT_NOTHING, CONVERT_NOTHING},
	    {"[attr]", CONVERT_LINES, CONVERT_NOTHING},
	    {"!* text", CONVERT_LINES, CONVERT_NOTHING},
	};

	(void)state;
	put("f", "f\r\n", 3);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		enum quarantine_convert got;

		attributes(cases[i].line);
		config("core.autocrlf", "false");
		got = of("f");
		if (got != cases[i].unasked)
			fail_msg("%s: %d", cases[i].line, got);
		if (got != CONVERT_BYTES && got != of_git())
			fail_msg("%s: git itself does not", cases[i].line);
		config("core.autocrlf", "input");
		got = of("f");
		if (got != cases[i].lines)
			fail_msg("%s with autocrlf: %d", cases[i].line, got);
		if (got != CONVERT_BYTES && got != of_git())
			fail_msg("%s with autocrlf: git itself does not", cases[i].line);
	}
}

/* One answer for each path, whatever is in its name, in the order of the paths; also for one that is not there. */
static void test_paths(void **state)
{
	static const char *const paths[] = {"text",	    "a\nb.txt",		"-z",
					    "d/e/x.txt",    "d/x.txt",		"\"q\".txt",
					    ":(glob)*.txt", "\303\244\377.txt", "unspecified"};
	static const enum quarantine_convert want[] = {
	    CONVERT_NOTHING, CONVERT_LINES, CONVERT_NOTHING, CONVERT_BYTES,  CONVERT_NOTHING,
	    CONVERT_LINES,   CONVERT_LINES, CONVERT_LINES,   CONVERT_NOTHING};
	enum quarantine_convert got[ARRAY_LEN(paths)];
	struct quarantine_settings s = {.read = true};

	(void)state;
	attributes("*.txt text\n");
	put("d/.gitattributes", "*.txt -text\n", 12);
	put("d/e/.gitattributes", "*.txt filter=f\n", 15);
	assert_int_equal(quarantine_convert(g, &s, top_fd, paths, ARRAY_LEN(paths), got), 0);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (got[i] != want[i])
			fail_msg("%s: %d", paths[i], got[i]);
	assert_int_equal(quarantine_convert(g, &s, top_fd, paths, 0, got), 0);
}

static void test_attributes_that_cannot_be_read(void **state)
{
	static const char *const places[] = {".gitattributes", "d/.gitattributes",
					     "d/e/.gitattributes", ".git/info/attributes"};
	const char *path = "d/e/f";
	struct quarantine_settings s = {.read = true};
	enum quarantine_convert got;
	char *big = malloc(1 << 20);

	(void)state;
	put(path, "f\n", 2);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		assert_int_equal(mkfifoat(top_fd, places[i], 0600), 0);
		assert_int_equal(quarantine_convert(g, &s, top_fd, &path, 1, &got), -EINVAL);
		assert_int_equal(unlinkat(top_fd, places[i], 0), 0);
	}
	/* Of those git says something, or takes them for absent; it waits for none. */
	assert_int_equal(mkdirat(top_fd, ".gitattributes", 0700), 0);
	assert_int_equal(of(path), CONVERT_NOTHING);
	assert_int_equal(unlinkat(top_fd, ".gitattributes", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("/dev/zero", top_fd, ".gitattributes"), 0);
	assert_int_equal(of(path), CONVERT_NOTHING);
	put(".gitattributes", "\0* text\n\0\0", 10);
	assert_int_equal(of(path), CONVERT_NOTHING);
	assert_non_null(big);
	memset(big, 'x', 1 << 20);
	put(".gitattributes", big, 1 << 20);
	free(big);
	assert_int_equal(of(path), CONVERT_NOTHING);
}

static void test_settings(void **state)
{
	static const struct {
		const char *value;
		bool yes;
	} cases[] = {{"true", true}, {"input", true}, {"1", true},  {"yes", true}, {"false", false},
		     {"No", false},  {"off", false},  {"0", false}, {"", false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct quarantine_settings s = {0};

		config("core.autocrlf", cases[i].value);
		config("core.fileMode", cases[i].value);
		quarantine_settings_read(g, &s);
		assert_int_equal(s.autocrlf, cases[i].yes);
		assert_int_equal(s.plain_mode, !cases[i].yes);
		/* Once for all. */
		config("core.autocrlf", cases[i].yes ? "false" : "true");
		quarantine_settings_read(g, &s);
		assert_int_equal(s.autocrlf, cases[i].yes);
	}
}

/* --- what becomes of it: files against objects ----------------------------------------- */

#define SAME (-1)

static int told;

static int on_differ(void *arg, const char *path, enum quarantine_difference how)
{
	(void)arg;
	assert_string_equal(path, "f");
	assert_int_equal(told, SAME);
	told = (int)how;
	return 0;
}

/* How the file `here` differs from an object of the bytes `there`. */
static int differs(const struct quarantine *q, const char *there, size_t there_n, const char *here,
		   size_t here_n)
{
	struct beneath b = {.root = top_fd};
	struct quarantine_differ *d = quarantine_differ_new(q, top_fd, on_differ, NULL);
	struct quarantine_file file;
	char id[65];

	assert_non_null(d);
	put("object", there, there_n);
	git((const char *const[]){"hash-object", "-w", "--no-filters", "object", NULL}, id);
	put("f", here, here_n);
	assert_int_equal(quarantine_file_at(&b, "f", &file), 0);
	told = SAME;
	if (quarantine_differ_add(d, id, false, "f", &file, &e) < 0 ||
	    quarantine_differ_end(d, &e) < 0)
		fail_msg("%s", e.text);
	quarantine_differ_free(d);
	return told;
}

static void test_files(void **state)
{
	static const struct {
		const char *line, *there;
		size_t there_n;
		const char *here;
		size_t here_n;
		int want;
	} cases[] = {
#define BYTES(s) s, sizeof(s) - 1
	    {"f -text", BYTES("a\nb\n"), BYTES("a\nb\n"), SAME},
	    {"f -text", BYTES("a\nb\n"), BYTES("a\r\nb\r\n"), DIFFERS_BYTES},
	    {"f text", BYTES("a\nb\n"), BYTES("a\r\nb\r\n"), SAME},
	    {"f text", BYTES("a\nb"), BYTES("a\r\nb"), SAME},
	    {"f text", BYTES(""), BYTES(""), SAME},
	    {"f text", BYTES("a\nb\n"), BYTES("a\r\nc\r\n"), DIFFERS_BYTES},
	    /* Lines that end in two ways: which of them git would take for what, only git knows. */
	    {"f text", BYTES("a\nb\n"), BYTES("a\r\nb\n"), DIFFERS_BYTES},
	    {"f text", BYTES("a\nb\n"), BYTES("a\nb\r\n"), DIFFERS_BYTES},
	    {"f text", BYTES("a\nb\n"), BYTES("a\r\r\nb\r\r\n"), DIFFERS_BYTES},
	    {"f text", BYTES("a\nb\n"), BYTES("a\rb\r"), DIFFERS_BYTES},
	    /* An object with CR or NUL, which git may leave as it is. */
	    {"f text", BYTES("a\r\nb\n"), BYTES("a\r\nb\r\n"), DIFFERS_BYTES},
	    {"f text", BYTES("a\r\nb\n"), BYTES("a\r\r\nb\r\n"), DIFFERS_BYTES},
	    {"f text", BYTES("a\0\nb\n"), BYTES("a\0\r\nb\r\n"), DIFFERS_BYTES},
	    {"f text", BYTES("a\r\nb\n"), BYTES("a\r\nb\n"), SAME},
	    {"f filter=rot", BYTES("a\n"), BYTES("b\n"), DIFFERS_CONVERTED},
	    {"f filter=rot", BYTES("a\n"), BYTES("a\r\n"), DIFFERS_CONVERTED},
	    {"f filter=rot", BYTES("a\n"), BYTES("a\n"), SAME},
	    {"f working-tree-encoding=UTF-16LE", BYTES("a\n"), BYTES("a\0\n\0"), DIFFERS_CONVERTED},
#undef BYTES
	};
	_cleanup_free_ char *run = path_join(top, ".git/run"), *ran = path_join(top, "ran"),
			    *command = NULL;
	struct quarantine *q;

	(void)state;
	assert_int_equal(mkdir(run, 0700), 0);
	assert_true(asprintf(&command, "touch %s; cat", ran) > 0);
	config("filter.rot.clean", command);
	config("filter.rot.smudge", command);
	if (quarantine_new(g, run, &q, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int got;

		attributes(cases[i].line);
		got = differs(q, cases[i].there, cases[i].there_n, cases[i].here, cases[i].here_n);
		if (got != cases[i].want)
			fail_msg("case %zu (%s): %d, not %d", i, cases[i].line, got, cases[i].want);
	}
	assert_int_equal(access(ran, F_OK), -1);
	/* Attributes that nobody can read make no file the same. */
	assert_int_equal(unlinkat(top_fd, ".gitattributes", 0), 0);
	assert_int_equal(mkfifoat(top_fd, ".gitattributes", 0600), 0);
	assert_int_equal(differs(q, "a\n", 2, "a\r\n", 3), DIFFERS_BYTES);
	quarantine_free(q);
}

static int set_up(void **state)
{
	struct process_opts io = PROCESS_OPTS_INIT;
	enum git_found found;
	int status = 1;

	(void)state;
	e = (struct err)ERR_INIT;
	memcpy(top + sizeof(top) - 7, "XXXXXX", 6);
	if (!scratch_dir(top))
		return -1;
	(void)alarm(60); /* a git that waits must not hang the suite */
	/* The account's own configuration is part of what is asked. */
	(void)setenv("HOME", top, 1);
	(void)unsetenv("XDG_CONFIG_HOME");
	top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	io.argv = (const char *const[]){"git", "init", "-q", "-b", "main", top, NULL};
	io.envp = (const char *const *)environ;
	return process_run(&io, &status, NULL, &e) < 0 || status ||
		       git_open(top, false, NULL, &g, &found, &e) < 0 || found != GIT_FOUND_REPO
		   ? -1
		   : 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)alarm(0);
	git_free(g);
	g = NULL;
	cleanup_fd(&top_fd);
	scratch_remove(top);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_attributes, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_paths, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_attributes_that_cannot_be_read, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_settings, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_files, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
