/* Storage that foreign code filled is removed whole, and nothing beside it; on a budget, in pieces. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "provider/native_storage.h"

struct place {
	char dir[64];
	int fd;
};

static void up(struct place *p)
{
	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/airlock-storage-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(p->fd >= 0);
	assert_int_equal(mkdirat(p->fd, "keep", 0755), 0);
	assert_int_equal(close(openat(p->fd, "keep/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644)),
			 0);
}

static void down(struct place *p)
{
	unsigned all = UINT_MAX;

	/* Whatever was removed, this was not. */
	assert_int_equal(faccessat(p->fd, "keep/file", F_OK, 0), 0);
	assert_int_equal(storage_remove(p->fd, "keep", &all), 0);
	(void)close(p->fd);
	assert_int_equal(rmdir(p->dir), 0);
}

static bool there(const struct place *p, const char *name)
{
	return faccessat(p->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_kinds(void **state)
{
	unsigned all = UINT_MAX;
	struct place p;

	(void)state;
	up(&p);
	assert_int_equal(storage_remove(p.fd, "absent", &all), 0);
	assert_int_equal(symlinkat("keep", p.fd, "link"), 0);
	assert_int_equal(storage_remove(p.fd, "link", &all), 0);
	assert_false(there(&p, "link"));
	/* links inside a tree are removed, never followed */
	assert_int_equal(mkdirat(p.fd, "t", 0755), 0);
	assert_int_equal(symlinkat("../keep", p.fd, "t/link"), 0);
	assert_int_equal(mkdirat(p.fd, "t/dark", 0000), 0);
	assert_int_equal(mkfifoat(p.fd, "t/fifo", 0600), 0);
	assert_int_equal(fchmodat(p.fd, "t", 0000, 0), 0);
	assert_int_equal(storage_remove(p.fd, "t", &all), 0);
	assert_false(there(&p, "t"));
	down(&p);
}

/* Far deeper than descriptors would last. */
static void test_deep(void **state)
{
	unsigned all = UINT_MAX;
	struct place p;
	int at;

	(void)state;
	up(&p);
	assert_int_equal(mkdirat(p.fd, "d", 0755), 0);
	at = openat(p.fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 3000; i++) {
		int next;

		assert_int_equal(mkdirat(at, "d", 0755), 0);
		next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(at);
		at = next;
	}
	(void)close(at);
	assert_int_equal(storage_remove(p.fd, "d", &all), 0);
	assert_false(there(&p, "d"));
	down(&p);
}

static void test_budget(void **state)
{
	unsigned few = 10, all = UINT_MAX;
	struct place p;
	char name[32];

	(void)state;
	up(&p);
	assert_int_equal(mkdirat(p.fd, "t", 0755), 0);
	for (int i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "t/%d", i);
		(void)close(openat(p.fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	assert_int_equal(storage_remove(p.fd, "t", &few), -EAGAIN);
	assert_int_equal(few, 0);
	assert_true(there(&p, "t"));
	assert_int_equal(storage_remove(p.fd, "t", &all), 0);
	assert_false(there(&p, "t"));
	down(&p);
}

/* A used overlay work directory is replaced, the rest is kept. */
static void test_make_again(void **state)
{
	struct stat st;
	struct place p;

	(void)state;
	up(&p);
	assert_int_equal(storage_make(p.dir, (uid_t)-1, (gid_t)-1, NULL), 0);
	assert_int_equal(fstatat(p.fd, "tmp", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 01777);
	assert_int_equal(mkdirat(p.fd, "work/work", 0000), 0);
	assert_int_equal(mkdirat(p.fd, "upper/mine", 0755), 0);
	assert_int_equal(storage_make(p.dir, (uid_t)-1, (gid_t)-1, NULL), 0);
	assert_false(there(&p, "work/work"));
	assert_true(there(&p, "upper/mine"));
	assert_int_equal(storage_destroy(p.dir, NULL, 0, NULL), 0);
	assert_false(there(&p, "upper"));
	assert_false(there(&p, "home"));
	down(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_kinds),
	    cmocka_unit_test(test_deep),
	    cmocka_unit_test(test_budget),
	    cmocka_unit_test(test_make_again),
	};

	return cmocka_run_group_tests_name("native_storage", tests, NULL, NULL);
}
