/* The lock of an index: whole before it has its name, and whose a left one is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "sync/indexlock.h"
#include "scratch.h"

static char top[] = "/tmp/indexlock-XXXXXX";
static char lock[64];
static struct git_repo repo;

/* What stands between a power cut and the file: the bytes that were on the disk when the name came. */
static struct {
	bool no_tmpfile;
	off_t synced, named; /* sizes: at the last fdatasync; when the name came */
	int names;
} disk;

int fdatasync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0)
		disk.synced = st.st_size;
	return (int)syscall(SYS_fdatasync, fd);
}

static void named(void)
{
	disk.named = disk.synced;
	disk.names++;
}

int linkat(int from, const char *a, int to, const char *b, int flags)
{
	if (disk.no_tmpfile && (flags & AT_SYMLINK_FOLLOW)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	named();
	return (int)syscall(SYS_linkat, from, a, to, b, flags);
}

int link(const char *a, const char *b)
{
	named();
	return (int)syscall(SYS_linkat, AT_FDCWD, a, AT_FDCWD, b, 0);
}

static void whole_before_it_has_its_name(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct indexlock l;
		struct err e = ERR_INIT;
		struct stat st;

		memset(&disk, 0, sizeof(disk));
		disk.no_tmpfile = i == 1;
		assert_int_equal(indexlock_take(&repo, &l, &e), 0);
		assert_int_equal(stat(lock, &st), 0);
		assert_true(st.st_size > 0);
		assert_int_equal(disk.names, 1);
		assert_int_equal(disk.named, st.st_size);
		assert_int_equal(st.st_nlink, 1);
		indexlock_release(&l);
		assert_int_equal(access(lock, F_OK), -1);
	}
	memset(&disk, 0, sizeof(disk));
}

/* A process that holds the lock until it is killed. */
static pid_t holder(void)
{
	int p[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct indexlock l;

		if (indexlock_take(&repo, &l, NULL) == 0 && write(p[1], "x", 1) == 1)
			(void)pause();
		_exit(1);
	}
	(void)close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	(void)close(p[0]);
	return pid;
}

static void of_a_killed_one_it_goes_of_a_living_one_not(void **state)
{
	pid_t pid = holder();

	(void)state;
	indexlock_sweep_at(top);
	assert_int_equal(access(lock, F_OK), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(access(lock, F_OK), 0);
	indexlock_sweep_at(top);
	assert_int_equal(access(lock, F_OK), -1);
}

static void gits_own_is_never_touched(void **state)
{
	static const char *const texts[] = {"", "DIRC", "airlock brings"};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		int fd = open(lock, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

		assert_true(fd >= 0);
		assert_int_equal(write(fd, texts[i], strlen(texts[i])), (int)strlen(texts[i]));
		(void)close(fd);
		indexlock_sweep_at(top);
		assert_int_equal(unlink(lock), 0);
	}
	assert_int_equal(symlink("index", lock), 0);
	indexlock_sweep_at(top);
	assert_int_equal(unlink(lock), 0);
	indexlock_sweep_at("/nowhere/at/all");
}

static int begin(void **state)
{
	static char git_dir[64];
	char path[96];
	int fd;

	(void)state;
	if (!scratch_dir(top))
		return -1;
	(void)snprintf(git_dir, sizeof(git_dir), "%s/.git", top);
	(void)snprintf(lock, sizeof(lock), "%s/.git/index.lock", top);
	repo.git_dir = git_dir;
	if (mkdir(git_dir, 0755) < 0)
		return -1;
	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", git_dir, i ? "refs" : "objects");
		if (mkdir(path, 0755) < 0)
			return -1;
	}
	(void)snprintf(path, sizeof(path), "%s/HEAD", git_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, "ref: refs/heads/main\n", 21) != 21)
		return -1;
	(void)close(fd);
	return 0;
}

static int end(void **state)
{
	static const char *const names[] = {".git/HEAD", ".git/objects", ".git/refs", ".git", ""};
	char path[96];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", top, names[i]);
		if (remove(path) < 0)
			return -1;
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole_before_it_has_its_name),
	    cmocka_unit_test(of_a_killed_one_it_goes_of_a_living_one_not),
	    cmocka_unit_test(gits_own_is_never_touched),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
