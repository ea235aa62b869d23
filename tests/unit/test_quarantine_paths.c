/* Paths of a sandbox's commits (B-01, S1-05): what door 1 refuses as a file is refused as a commit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "os/beneath.h"
#include "sync/quarantine_paths.h"
#include "scratch.h"

#define PATHS 6

static int tree(char *dir)
{
	int fd;

	(void)snprintf(dir, 64, "/tmp/airlock-qpaths-XXXXXX");
	assert_non_null(scratch_dir(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void gone(int fd, const char *dir)
{
	struct beneath b = {.root = AT_FDCWD};

	(void)b;
	close(fd);
	b.root = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(beneath_remove_tree(&b, dir + strlen("/tmp/")), 0);
	close(b.root);
}

static void put(int fd, const char *path)
{
	struct beneath b = {.root = fd};
	int f;

	assert_true(beneath_mkparents(&b, path, 0755) >= 0);
	f = beneath_create(&b, path, 0644);
	assert_true(f >= 0);
	close(f);
}

static void assert_rule(const char *rule, const char *want, const char *what)
{
	if ((rule || want) && (!rule || !want || strcmp(rule, want) != 0))
		fail_msg("%s: %s, not %s", what, rule ? rule : "accepted",
			 want ? want : "accepted");
}

static void test_names(void **state)
{
	static const struct {
		const char *path, *rule;
	} t[] = {
	    {"a/b", NULL},
	    {".gitignore", NULL},
	    {"a/.git/config", "git_metadata"},
	    {".GIT", "git_metadata"},
	    {"git~1/x", "git_metadata"},
	    {".airlock-staging/j", "reserved_name"},
	    {"d\\.airlock-staging", "reserved_name"},
	    {"d/.paperclip-runtime/x", "reserved_name"},
	    {".Paperclip-Repositories", "reserved_kind"},
	    {".paperclip-repositories/a", NULL},
	    {"a\nb", NULL},
	};
	char dir[64], path[4 * PATH_DEPTH_MAX + 8], name[PATH_SEGMENT_MAX + 2];
	struct commit_paths *p;
	int fd = tree(dir);
	const char *rule;

	(void)state;
	assert_int_equal(commit_paths_new(fd, &p), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		assert_int_equal(commit_paths_name(p, t[i].path, &rule), 0);
		assert_rule(rule, t[i].rule, t[i].path);
	}
	for (int over = 0; over < 2; over++) {
		size_t n = 2 * (PATH_DEPTH_MAX - 1 + (size_t)over);

		for (size_t i = 0; i < n; i++)
			path[i] = i % 2 ? '/' : 'd';
		memcpy(path + n, "x", 2);
		assert_int_equal(commit_paths_name(p, path, &rule), 0);
		assert_rule(rule, over ? "path_limit" : NULL, "depth");
		memset(name, 'n', sizeof(name));
		name[PATH_SEGMENT_MAX + over] = '\0';
		assert_int_equal(commit_paths_name(p, name, &rule), 0);
		assert_rule(rule, over ? "path_limit" : NULL, "segment");
	}
	commit_paths_free(p);
	gone(fd, dir);
}

static void test_links(void **state)
{
	static const struct {
		const char *path, *target;
		size_t n;
		const char *rule;
	} t[] = {
	    {"l", "a/b", 3, NULL},
	    {"d/e/l", "../../x", 7, NULL},
	    {"l", "/etc/passwd", 11, "link_escape"},
	    {"d/l", "../../up", 8, "link_escape"},
	    {"l", "d/../../up", 10, "link_escape"},
	    {"l", "d/../x", 6, "link_escape"}, /* inside only while d is no link */
	    {"l", "", 0, "link_escape"},
	    {"l", "a\0/etc", 6, "link_escape"},
	    {"l", ".git/hooks", 10, "git_metadata"},
	    {"l", "out/x", 5, "link_escape"}, /* over the user's own link */
	    {"l", "in/x", 4, NULL},
	    {"l", "loop/x", 6, "link_hops"},
	};
	static const size_t length[] = {25000, 5000, 70000};
	static char path[70002];
	char dir[64], far[64];
	struct commit_paths *p;
	int fd = tree(dir), r = 0;
	const char *rule;

	(void)state;
	assert_int_equal(symlinkat("/etc", fd, "out"), 0);
	assert_int_equal(symlinkat("d", fd, "in"), 0);
	assert_int_equal(symlinkat("loop", fd, "loop"), 0);
	assert_int_equal(commit_paths_new(fd, &p), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		assert_int_equal(commit_paths_link(p, t[i].path, t[i].target, t[i].n, &rule), 0);
		assert_rule(rule, t[i].rule, t[i].target);
	}
	/* git takes a path of any length (B-01). */
	for (size_t i = 0; i < ARRAY_LEN(length); i++) {
		for (size_t k = 0; k < length[i]; k++)
			path[k] = k % 250 == 249 ? '/' : 'd';
		memcpy(path + length[i], "x", 2);
		assert_int_equal(commit_paths_link(p, path, "y", 1, &rule), 0);
		assert_rule(rule, "path_limit", "long path of a link");
	}
	/* One target, named by a tree bomb a million times. */
	memset(far, '/', sizeof(far));
	for (int i = 0; i < COMMIT_LINK_STEPS_MAX && r == 0; i++)
		r = commit_paths_link(p, "a/../b", far, sizeof(far), &rule);
	assert_int_equal(r, -E2BIG);
	commit_paths_free(p);
	gone(fd, dir);
}

/* brought: paths of the commits; had: of the commit that was sent; host: of the work tree; came: of older ones. */
static void test_layout(void **state)
{
	static const struct {
		const char *what;
		const char *brought[PATHS], *had[PATHS], *host[PATHS];
		const char *asked, *rule;
		const char *came[PATHS];
	} t[] = {
	    {"config",
	     {"x/HEAD", "x/objects/k", "x/refs/k", "x/config"},
	     {0},
	     {0},
	     "x/config",
	     "git_layout",
	     {0}},
	    {"below hooks",
	     {"x/HEAD", "x/objects/k", "x/refs/k", "x/hooks/a"},
	     {0},
	     {0},
	     "x/hooks/a",
	     "git_layout",
	     {0}},
	    {"the rest of it",
	     {"x/HEAD", "x/objects/k", "x/refs/k", "x/config"},
	     {0},
	     {0},
	     "x/HEAD",
	     NULL,
	     {0}},
	    {"spelling",
	     {"x/head", "x/Objects/k", "x/REFS", "x/conFig"},
	     {0},
	     {0},
	     "x/conFig",
	     "git_layout",
	     {0}},
	    {"commondir", {"x/HEAD", "x/commondir"}, {0}, {0}, "x/commondir", "git_layout", {0}},
	    {"at the top",
	     {"HEAD", "objects/k", "refs/k", "config"},
	     {0},
	     {0},
	     "config",
	     "git_layout",
	     {0}},
	    {"no HEAD", {"x/objects/k", "x/refs/k", "x/hooks/a"}, {0}, {0}, "x/hooks/a", NULL, {0}},
	    {"no refs", {"x/HEAD", "x/objects/k", "x/hooks/a"}, {0}, {0}, "x/hooks/a", NULL, {0}},
	    {"another directory",
	     {"x/HEAD", "x/objects/k", "x/refs/k", "y/config"},
	     {0},
	     {0},
	     "y/config",
	     NULL,
	     {0}},
	    {"layout was sent",
	     {"x/config"},
	     {"x/HEAD", "x/objects/k", "x/refs/k"},
	     {0},
	     "x/config",
	     "git_layout",
	     {0}},
	    {"layout is here",
	     {"x/config"},
	     {0},
	     {"x/HEAD", "x/objects/k", "x/refs/k"},
	     "x/config",
	     "git_layout",
	     {0}},
	    {"half each",
	     {"x/config", "x/HEAD"},
	     {"x/objects/k"},
	     {"x/refs/k"},
	     "x/config",
	     "git_layout",
	     {0}},
	    {"brings orders to life",
	     {"x/HEAD", "x/objects/k", "x/refs/k"},
	     {0},
	     {"x/config"},
	     "x/refs/k",
	     "git_layout",
	     {0}},
	    {"of what was sent too",
	     {"x/HEAD", "x/objects/k", "x/refs/k"},
	     {"x/hooks/a"},
	     {0},
	     "x/HEAD",
	     "git_layout",
	     {0}},
	    {"of what a merge takes from an older commit",
	     {"x/HEAD", "x/objects/k", "x/refs/k"},
	     {0},
	     {0},
	     "x/HEAD",
	     "git_layout",
	     {"x/config"}},
	    {"to what a merge takes from an older commit",
	     {"x/config"},
	     {0},
	     {0},
	     "x/config",
	     "git_layout",
	     {"x/HEAD", "x/objects/k", "x/refs/k"}},
	    {"alive already",
	     {"x/refs/k"},
	     {"x/HEAD", "x/objects/k", "x/refs/k", "x/config"},
	     {0},
	     "x/refs/k",
	     NULL,
	     {0}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct commit_paths *p;
		char dir[64];
		int fd = tree(dir);
		size_t dir_n = 0;
		const char *rule;

		for (size_t k = 0; t[i].host[k]; k++)
			put(fd, t[i].host[k]);
		assert_int_equal(commit_paths_new(fd, &p), 0);
		for (size_t k = 0; t[i].brought[k]; k++) {
			assert_int_equal(commit_paths_name(p, t[i].brought[k], &rule), 0);
			assert_null(rule);
		}
		assert_true(commit_paths_ask(p));
		for (size_t k = 0; t[i].came[k]; k++)
			assert_int_equal(commit_paths_came(p, t[i].came[k], 1), 0);
		for (size_t k = 0; t[i].had[k]; k++)
			commit_paths_had(p, t[i].had[k]);
		commit_paths_layout(p, t[i].asked, &rule, &dir_n);
		assert_rule(rule, t[i].rule, t[i].what);
		commit_paths_free(p);
		gone(fd, dir);
	}
}

/* A merge of commits of the host brings no path, and may unite what they have all the same (F5). */
static void test_united(void **state)
{
	static const struct {
		const char *came[2][PATHS], *had[PATHS], *host[PATHS];
		bool refused;
	} t[] = {
	    {{{"x/config"}}, {"x/HEAD", "x/objects/k", "x/refs/k"}, {0}, true},
	    {{{"x/HEAD", "x/objects/k"}, {"x/config", "x/refs/k"}}, {0}, {0}, true},
	    {{{"x/config"}}, {0}, {"x/HEAD", "x/objects/k", "x/refs/k"}, true},
	    {{{"x/config"}}, {"x/HEAD", "x/refs/k"}, {0}, false},
	    /* The host's own repository, in one of its commits. */
	    {{{"x/HEAD", "x/config", "x/objects/k", "x/refs/k"}, {"x/HEAD"}}, {0}, {0}, false},
	    {{{"x/hooks/a"}}, {"x/HEAD", "x/config", "x/objects/k", "x/refs/k"}, {0}, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct commit_paths *p;
		char dir[64];
		int fd = tree(dir);
		const char *found;
		size_t n = 0;

		for (size_t k = 0; t[i].host[k]; k++)
			put(fd, t[i].host[k]);
		assert_int_equal(commit_paths_new(fd, &p), 0);
		for (size_t o = 0; o < 2; o++)
			for (size_t k = 0; t[i].came[o][k]; k++)
				assert_int_equal(commit_paths_came(p, t[i].came[o][k], o + 1), 0);
		for (size_t k = 0; t[i].had[k]; k++)
			commit_paths_had(p, t[i].had[k]);
		found = commit_paths_united(p, &n);
		if ((found != NULL) != t[i].refused)
			fail_msg("row %zu: %s", i, found ? "refused" : "accepted");
		if (found)
			assert_true(n == 1 && found[0] == 'x');
		commit_paths_free(p);
		gone(fd, dir);
	}
}

static void test_limit_and_flags(void **state)
{
	char dir[64], path[600];
	struct commit_paths *p;
	int fd = tree(dir), r = 0;
	const char *rule, *shown;

	(void)state;
	assert_int_equal(commit_paths_new(fd, &p), 0);
	for (int k = 0; k < 2; k++) { /* each once */
		assert_int_equal(commit_paths_name(p, ".envrc", &rule), 0);
		assert_int_equal(commit_paths_name(p, "a/.husky/pre-commit", &rule), 0);
		assert_int_equal(commit_paths_name(p, "plain", &rule), 0);
	}
	assert_int_equal(commit_paths_flagged(p, &shown), 2);
	assert_string_equal(shown, ".envrc, a/.husky/pre-commit");
	assert_false(commit_paths_ask(p));
	for (int i = 0; i < 200000 && r == 0; i++) {
		(void)snprintf(path, sizeof(path), "%0250d/%0250d/config", i, i);
		r = commit_paths_name(p, path, &rule);
	}
	assert_int_equal(r, -E2BIG);
	commit_paths_free(p);
	gone(fd, dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_names),	    cmocka_unit_test(test_links),
	    cmocka_unit_test(test_layout),	    cmocka_unit_test(test_united),
	    cmocka_unit_test(test_limit_and_flags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
