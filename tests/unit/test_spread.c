/* os/spread.h: the wish is on record where the file system knows it, and harms nothing elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "os/spread.h"
#include "scratch.h"

static char dir[256];

static int flags_of(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int flags = 0;

	assert_true(fd >= 0);
	(void)ioctl(fd, FS_IOC_GETFLAGS, &flags);
	return flags;
}

static void directories_get_places_of_their_own(void **state)
{
	_cleanup_free_ char *sub = NULL;
	struct statfs fs;
	struct stat st;

	(void)state;
	assert_int_equal(statfs(dir, &fs), 0);
	spread_below(dir);
	/* A second time changes nothing. */
	spread_below(dir);
	if (fs.f_type == EXT4_SUPER_MAGIC)
		assert_true(flags_of(dir) & FS_TOPDIR_FL);
	sub = path_join(dir, "sub");
	assert_non_null(sub);
	assert_int_equal(mkdir(sub, 0700), 0);
	assert_int_equal(stat(sub, &st), 0);
	/* What lies deeper stays together. */
	assert_false(flags_of(sub) & FS_TOPDIR_FL);
	assert_int_equal(rmdir(sub), 0);
}

/* As the state directory's are made: there once, private, and what is in it stays; nothing else is left. */
static void a_directory_by_another_name(void **state)
{
	_cleanup_free_ char *sub = path_join(dir, "leases"), *in = path_join(dir, "leases/x");
	struct stat st;

	(void)state;
	assert_int_equal(spread_mkdir(dir, "leases"), 0);
	assert_int_equal(stat(sub, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	assert_int_equal(mkdir(in, 0700), 0);
	assert_int_equal(spread_mkdir(dir, "leases"), 0);
	assert_int_equal(rmdir(in), 0);
	assert_int_equal(rmdir(sub), 0);
	/* The directory must be empty now. */
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(spread_mkdir(dir, "leases"), -ENOENT);
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void no_directory_no_harm(void **state)
{
	_cleanup_free_ char *file = path_join(dir, "file");
	struct stat before, after;
	int fd;

	(void)state;
	assert_non_null(file);
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(stat(file, &before), 0);
	spread_below(file);
	spread_below("/nonexistent/directory");
	assert_int_equal(stat(file, &after), 0);
	assert_int_equal(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
	assert_int_equal(before.st_ctim.tv_sec, after.st_ctim.tv_sec);
	assert_int_equal(unlink(file), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(directories_get_places_of_their_own),
	    cmocka_unit_test(a_directory_by_another_name),
	    cmocka_unit_test(no_directory_no_harm),
	};
	const char *tmp = getenv("TMPDIR");
	int r;

	(void)snprintf(dir, sizeof(dir), "%s/airlock-spread-XXXXXX", tmp ? tmp : "/tmp");
	if (!scratch_dir(dir))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)rmdir(dir);
	return r;
}
