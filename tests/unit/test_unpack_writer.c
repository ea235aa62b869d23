/* S1-06, S1-07: the threads that make the staged files: in order, bounded, the first failure stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/beneath.h"
#include "sync/unpack_server.h"
#include "sync/unpack_writer.h"
#include "scratch.h"

#define BIG (3u << 20) /* more than the batches hold together */

static char top[] = "/tmp/test-unpack-writer-XXXXXX";
static int dir = -1;
static struct writer *w;
static struct err e;

/* In directory `where` of the stream, which is open as `at`. */
static int make_in(const char *where, int at, const char *name, const char *text, bool again)
{
	char path[64];
	struct writer_entry m = {
	    .dir = at, .name = name, .path = path, .mode = 0640, .again = again};
	int r;

	(void)snprintf(path, sizeof(path), "%s%s%s", where, *where ? "/" : "", name);
	r = writer_file(w, &m, &e);

	if (r == 0)
		r = writer_data(w, text, strlen(text), 0, &e);
	return r < 0 ? r : writer_end(w, strlen(text), false, 1500000000, &e);
}

static int make(int at, const char *name, const char *text, bool again)
{
	return make_in("", at, name, text, again);
}

static int make_dir(const char *name)
{
	int fd = mkdirat(dir, name, 0700) < 0
		     ? -1
		     : openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		fail_msg("%s: %s", name, strerror(errno));
	return fd;
}

static void assert_text(const char *path, const char *want)
{
	char got[128];
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, got, sizeof(got));

	if (n != (ssize_t)strlen(want) || memcmp(got, want, (size_t)n) != 0)
		fail_msg("%s: %zd bytes, not %s", path, n, want);
	(void)close(fd);
}

static void test_in_order(void **state)
{
	struct writer_entry link = {
	    .dir = dir, .name = "link", .path = "link", .mtime_ns = 2500000000};
	char to[16] = "";
	struct stat st;

	(void)state;
	assert_int_equal(make(dir, "a", "first", true), 0);
	assert_int_equal(make(dir, "a", "second", true), 0);
	assert_int_equal(make(dir, "gone", "x", false), 0);
	assert_int_equal(writer_unlink(w, dir, "gone", "gone", &e), 0);
	assert_int_equal(writer_unlink(w, dir, "never", "never", &e), 0);
	assert_int_equal(writer_link(w, &link, "a", &e), 0);
	assert_int_equal(writer_wait(w, &e), 0);
	assert_text("a", "second");
	assert_int_equal(fstatat(dir, "a", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_equal(st.st_mtim.tv_sec, 1);
	assert_int_equal(st.st_mtim.tv_nsec, 500000000);
	assert_int_equal(fstatat(dir, "gone", &st, 0), -1);
	assert_int_equal(readlinkat(dir, "link", to, sizeof(to) - 1), 1);
	assert_string_equal(to, "a");
}

/* One call with more than all batches hold, a hole before it and one behind. */
static void test_more_than_fits(void **state)
{
	_cleanup_free_ char *in = malloc(BIG), *out = malloc(BIG);
	struct writer_entry m = {.dir = dir, .name = "big", .path = "big", .mode = 0600};
	_cleanup_fd_ int fd = -1;
	struct stat st;

	(void)state;
	assert_true(in && out);
	for (size_t i = 0; i < BIG; i++)
		in[i] = (char)(i * 31 + i / 4096);
	assert_int_equal(writer_file(w, &m, &e), 0);
	assert_int_equal(writer_data(w, in, BIG, 10000, &e), 0);
	assert_int_equal(writer_end(w, 20000 + BIG, true, 0, &e), 0);
	assert_int_equal(writer_wait(w, &e), 0);
	fd = openat(dir, "big", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	assert_int_equal(st.st_size, 20000 + BIG);
	assert_int_equal(pread(fd, out, BIG, 10000), BIG);
	assert_memory_equal(in, out, BIG);
	assert_true(writer_pending(w) < BIG);
}

/* More directories than there may be descriptors: those under way are bounded. */
static void test_many_directories(void **state)
{
	struct rlimit old, few;
	char name[24];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){.rlim_cur = 160, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < 500; i++) {
		int fd;

		(void)snprintf(name, sizeof(name), "d%d", i);
		fd = make_dir(name);
		assert_int_equal(make_in(name, fd, "f", name, false), 0);
		writer_close(w, fd, name, strlen(name));
	}
	assert_int_equal(writer_wait(w, &e), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	for (int i = 0; i < 500; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "d%d/f", i);
		(void)snprintf(name, sizeof(name), "d%d", i);
		assert_text(path, name);
	}
}

/* The first that fails is the one that is told, and nothing behind it is made, however much comes. */
static void test_first_failure_stands(void **state)
{
	_cleanup_free_ char *much = calloc(1, BIG);
	int lent = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	struct stat st;

	(void)state;
	assert_true(much && lent >= 0);
	assert_int_equal(make(dir, "before", "b", false), 0);
	assert_int_equal(make(dir, "before", "twice", false), 0); /* ordered, not yet tried */
	assert_int_equal(make(dir, "after", "a", false), 0);
	writer_close(w, lent, "", 0);
	r = writer_data(w, much, BIG, 0, &e);
	if (r != 0)
		assert_int_equal(r, -EEXIST);
	assert_int_equal(writer_wait(w, &e), -EEXIST);
	if (!strstr(e.text, "stage before in the-place"))
		fail_msg("%s", e.text);
	assert_int_equal(writer_wait(w, &e), -EEXIST);
	assert_int_equal(make(dir, "late", "l", false) < 0 || writer_wait(w, &e) < 0, 1);
	assert_text("before", "b");
	assert_int_equal(fstatat(dir, "after", &st, 0), -1);
	assert_int_equal(fstatat(dir, "late", &st, 0), -1);
	assert_int_equal(fcntl(lent, F_GETFD), -1);
}

/* Directories in turn, each member again and again: what came last in its directory is what is there. */
static void test_order_within_each_directory(void **state)
{
	enum { DIRS = 4, TIMES = 1500 };
	int fds[DIRS];
	char name[DIRS][8], text[16];

	(void)state;
	for (int i = 0; i < DIRS; i++) {
		(void)snprintf(name[i], sizeof(name[i]), "o%d", i);
		fds[i] = make_dir(name[i]);
	}
	for (int t = 1; t <= TIMES; t++) {
		(void)snprintf(text, sizeof(text), "%d", t);
		for (int i = 0; i < DIRS; i++) {
			char path[16];

			assert_int_equal(make_in(name[i], fds[i], "x", text, true), 0);
			assert_int_equal(make_in(name[i], fds[i], "y", text, true), 0);
			(void)snprintf(path, sizeof(path), "%s/y", name[i]);
			assert_int_equal(writer_unlink(w, fds[i], "y", path, &e), 0);
		}
	}
	for (int i = 0; i < DIRS; i++)
		writer_close(w, fds[i], name[i], strlen(name[i]));
	assert_int_equal(writer_wait(w, &e), 0);
	for (int i = 0; i < DIRS; i++) {
		char path[16];

		(void)snprintf(path, sizeof(path), "%s/x", name[i]);
		assert_text(path, text);
		(void)snprintf(path, sizeof(path), "%s/y", name[i]);
		assert_int_equal(faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW), -1);
		assert_int_equal(fcntl(fds[i], F_GETFD), -1);
	}
}

/* An earlier order fails later than one behind it, in a directory whose turn had not come: it is the one that is told. */
static void test_first_in_the_stream_is_told(void **state)
{
	_cleanup_free_ char *much = calloc(1, BIG);
	int a = make_dir("p0"), b = make_dir("p1"), r = 0;
	struct stat st;

	(void)state;
	assert_non_null(much);
	assert_int_equal(make_in("p0", a, "first", "1", false), 0);
	assert_int_equal(make_in("p1", b, "second", "1", false), 0);
	assert_int_equal(make_in("p0", a, "first", "twice", false), 0);
	assert_int_equal(make_in("p1", b, "second", "twice", false), 0);
	assert_int_equal(make_in("p1", b, "later", "l", false), 0);
	/* Its batches are handed over until the failure comes back. */
	for (int i = 0; r == 0 && i < 8; i++)
		r = writer_data(w, much, BIG, 0, &e);
	assert_int_equal(r, -EEXIST);
	assert_int_equal(make_in("p0", a, "after", "a", false) <= 0, 1);
	writer_close(w, a, "p0", 2);
	writer_close(w, b, "p1", 2);
	e = (struct err)ERR_INIT;
	assert_int_equal(writer_wait(w, &e), -EEXIST);
	if (!strstr(e.text, "stage p0/first in the-place"))
		fail_msg("%s", e.text);
	assert_text("p0/first", "1");
	assert_text("p1/second", "1");
	assert_int_equal(fstatat(dir, "p1/later", &st, 0), -1);
	assert_int_equal(fstatat(dir, "p0/after", &st, 0), -1);
	assert_int_equal(fcntl(a, F_GETFD), -1);
	assert_int_equal(fcntl(b, F_GETFD), -1);
}

static int set_up(void **state)
{
	(void)state;
	e = (struct err)ERR_INIT;
	memcpy(top + sizeof(top) - 7, "XXXXXX", 6);
	if (!scratch_dir(top))
		return -1;
	dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || writer_start(WRITER_LANES_MAX, &w, &e) < 0)
		return -1;
	return writer_begin(w, "the-place", dir, geteuid(), getegid());
}

static int tear_down(void **state)
{
	struct beneath b = {.root = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	int r = beneath_remove_tree(&b, top + 5);

	(void)state;
	writer_free(w);
	cleanup_fd(&dir);
	cleanup_fd(&b.root);
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_in_order, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_more_than_fits, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_many_directories, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_first_failure_stands, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_order_within_each_directory, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_first_in_the_stream_is_told, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
