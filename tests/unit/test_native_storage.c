/* Storage that foreign code filled is removed whole, and nothing beside it; on a budget, in pieces. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "provider/native_storage.h"
#include "scratch.h"

struct place {
	char dir[64];
	int fd;
};

static void up(struct place *p)
{
	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/airlock-storage-XXXXXX");
	assert_non_null(scratch_dir(p->dir));
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

/* A chain of n directories below `name`, the deepest first made `mode`. */
static void deep_chain(const struct place *p, const char *name, int n, mode_t mode)
{
	int at[80], k = 0;

	assert_true(n < (int)ARRAY_LEN(at));
	assert_int_equal(mkdirat(p->fd, name, 0755), 0);
	at[0] = openat(p->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (k = 1; k <= n; k++) {
		assert_int_equal(mkdirat(at[k - 1], "d", 0755), 0);
		at[k] = openat(at[k - 1], "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(at[k] >= 0);
	}
	while (k-- > 0) {
		assert_int_equal(fchmod(at[k], mode), 0);
		(void)close(at[k]);
	}
}

/* As Go's module cache is, and whatever an agent chmods: nothing of it may be written by its owner, at any depth. */
static void test_deep_without_write(void **state)
{
	static const mode_t modes[] = {0555, 0000, 0444, 0111};
	struct place p;

	(void)state;
	up(&p);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		for (int n = 30; n <= 70; n += i ? 20 : 1) {
			unsigned all = UINT_MAX;

			deep_chain(&p, "d", n, modes[i]);
			assert_int_equal(storage_remove(p.fd, "d", &all), 0);
			assert_false(there(&p, "d"));
			assert_false(there(&p, ".deep-0"));
		}
	down(&p);
}

static bool put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool all = write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	(void)close(fd);
	return all;
}

/* Mounts are ours alone from here on: something that nobody can remove is a mount point. */
static bool own_mounts(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (unshare((uid ? CLONE_NEWUSER : 0) | CLONE_NEWNS) < 0)
		return false;
	(void)snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
	if (uid && !put_text("/proc/self/uid_map", map))
		return false;
	(void)snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
	if (uid &&
	    (!put_text("/proc/self/setgroups", "deny") || !put_text("/proc/self/gid_map", map)))
		return false;
	return mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0;
}

/* What another lease left for good neither fails this one's end nor keeps the rest of the trash. */
static void test_trash_that_stays(void **state)
{
	char lease[96], trash[96], path[160];
	struct place p;

	(void)state;
	if (!own_mounts()) {
		print_message("no mounts of its own for this user: root shows it\n");
		return;
	}
	up(&p);
	(void)snprintf(lease, sizeof(lease), "%s/lease", p.dir);
	(void)snprintf(trash, sizeof(trash), "%s/trash", p.dir);
	assert_int_equal(mkdir(lease, 0700), 0);
	assert_int_equal(mkdir(trash, 0700), 0);
	for (int i = 0; i < 40; i++) {
		(void)snprintf(path, sizeof(path), "%s/%d", trash, i);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	(void)snprintf(path, sizeof(path), "%s/20/stays", trash);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mount("none", path, "tmpfs", 0, "size=4k"), 0);
	assert_int_equal(storage_make(lease, (uid_t)-1, (gid_t)-1, NULL), 0);
	assert_int_equal(storage_destroy(lease, trash, 1000, NULL), 0);
	assert_false(there(&p, "lease/upper"));
	for (int i = 0; i < 40; i++) {
		(void)snprintf(path, sizeof(path), "trash/%d", i);
		assert_int_equal(there(&p, path), i == 20);
	}
	(void)snprintf(path, sizeof(path), "%s/20/stays", trash);
	assert_int_equal(umount(path), 0);
	assert_int_equal(rmdir(path), 0);
	(void)snprintf(path, sizeof(path), "%s/20", trash);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(trash), 0);
	assert_int_equal(rmdir(lease), 0);
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

/* The sandbox may chmod what it was given as well, not only what it made. */
static void test_parts_without_write(void **state)
{
	static const char *const names[] = {"lease/upper", "lease/home", "lease/tmp"};
	static const mode_t modes[] = {0555, 0000};
	char lease[96], trash[96];
	struct place p;

	(void)state;
	up(&p);
	(void)snprintf(lease, sizeof(lease), "%s/lease", p.dir);
	(void)snprintf(trash, sizeof(trash), "%s/trash", p.dir);
	assert_int_equal(mkdirat(p.fd, "lease", 0700), 0);
	assert_int_equal(mkdirat(p.fd, "trash", 0700), 0);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		assert_int_equal(storage_make(lease, (uid_t)-1, (gid_t)-1, NULL), 0);
		for (size_t k = 0; k < ARRAY_LEN(names); k++)
			assert_int_equal(fchmodat(p.fd, names[k], modes[i], 0), 0);
		assert_int_equal(storage_destroy(lease, trash, UINT_MAX, NULL), 0);
	}
	assert_int_equal(unlinkat(p.fd, "lease", AT_REMOVEDIR), 0);
	assert_int_equal(unlinkat(p.fd, "trash", AT_REMOVEDIR), 0);
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

static int run_all(const char *name)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_kinds),
	    cmocka_unit_test(test_deep),
	    cmocka_unit_test(test_deep_without_write),
	    cmocka_unit_test(test_parts_without_write),
	    cmocka_unit_test(test_budget),
	    cmocka_unit_test(test_make_again),
	    cmocka_unit_test(test_trash_that_stays), /* the last: it leaves the machine's mounts */
	};

	return _cmocka_run_group_tests(name, tests, ARRAY_LEN(tests), NULL, NULL);
}

/* Modes are nothing to root, so root runs all of it as an ordinary user as well. */
int main(void)
{
	int status = 0;
	pid_t pid;

	if (geteuid() != 0)
		return run_all("native_storage");
	pid = fork();
	if (pid == 0) {
		if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
			_exit(1);
		exit(run_all("native_storage, ordinary user"));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return run_all("native_storage, root") + (status != 0);
}
