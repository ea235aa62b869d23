/* Where cgroups lie: both versions, hybrid hosts, containers with a root of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "os/cgroup.h"

static const char hybrid[] =
    "26 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "31 30 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "32 30 0:29 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n"
    "34 30 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "38 30 0:35 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n"
    "40 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
static const char unified[] =
    "25 1 0:5 / /proc rw - proc proc rw\n"
    "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char joined[] =
    "41 30 0:31 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n";

static const struct {
	const char *info, *controller, *point, *root;
} mounts[] = {
    {hybrid, "memory", "/sys/fs/cgroup/memory", "/"},
    {hybrid, "cpu", "/sys/fs/cgroup/cpu", "/"}, /* not cpuacct */
    {hybrid, "pids", "/sys/fs/cgroup/pids", "/"},
    {hybrid, "", "/sys/fs/cgroup/unified", "/"},
    {hybrid, "blkio", NULL, NULL},
    {unified, "", "/sys/fs/cgroup", "/"},
    {unified, "memory", NULL, NULL},
    {joined, "cpu", "/sys/fs/cgroup/cpu,cpuacct", "/docker/abc"},
    {joined, "", NULL, NULL},
    {"", "memory", NULL, NULL},
    {"garbage without fields\n- -\n", "memory", NULL, NULL},
    {"1 2 3 - cgroup", "memory", NULL, NULL},
};

static void test_mounts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
		_cleanup_free_ char *point = NULL, *root = NULL;
		bool found = cgroup_find_mount(mounts[i].info, mounts[i].controller, &point, &root);

		assert_int_equal(found, mounts[i].point != NULL);
		if (!found)
			continue;
		assert_string_equal(point, mounts[i].point);
		assert_string_equal(root, mounts[i].root);
	}
}

static void test_self(void **state)
{
	static const char v1[] =
	    "9:name=systemd:/\n4:memory:/process/fe80\n2:cpu,cpuacct:/a b\n0::/user.slice\n";
	static const struct {
		const char *controller, *path;
	} t[] = {{"memory", "/process/fe80"},
		 {"cpu", "/a b"},
		 {"cpuacct", "/a b"},
		 {"", "/user.slice"},
		 {"pids", NULL}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_free_ char *p = cgroup_find_self(v1, t[i].controller);

		if (t[i].path)
			assert_string_equal(p, t[i].path);
		else
			assert_null(p);
	}
	assert_null(cgroup_find_self("", "memory"));
	assert_null(cgroup_find_self("nonsense", ""));
}

static void test_count(void **state)
{
	static const char v2[] = "low 0\nhigh 3\nmax 7\noom 2\noom_kill 1\noom_group_kill 4\n";

	(void)state;
	assert_int_equal(cgroup_find_count(v2, "oom_kill"), 1);
	assert_int_equal(cgroup_find_count(v2, "oom"), 2);
	assert_int_equal(cgroup_find_count(v2, "kill"), 0);
	assert_int_equal(
	    cgroup_find_count("oom_kill_disable 0\nunder_oom 0\noom_kill 12", "oom_kill"), 12);
	assert_int_equal(cgroup_find_count("oom_kill x\n", "oom_kill"), 0);
	assert_int_equal(cgroup_find_count("", "oom_kill"), 0);
}

/* Nothing asked for: nothing made, nothing failed. */
static void test_none(void **state)
{
	const struct cgroup_limits none = {0};
	struct cgroup cg;

	(void)state;
	assert_int_equal(cgroup_create(&cg, "x", &none, NULL), 0);
	assert_int_equal(cg.in_force, 0);
	cgroup_remove(&cg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_mounts),
	    cmocka_unit_test(test_self),
	    cmocka_unit_test(test_count),
	    cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
