/*
 * A host that forbids a layer: the start fails closed and its message has the cause that is in force and the
 * remedy (FR-B010, FR-B024, FR-B071), not one guess for all.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "native_box.h"

static int put(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* An ordinary user of a namespace around, with the one id that exists there. */
static int nest(const char *setting, const char *cover)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[32], gmap[32];
	int r;

	(void)snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	(void)snprintf(gmap, sizeof(gmap), "%u %u 1", gid, gid);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	r = put("/proc/self/setgroups", "deny");
	r = r < 0 ? r : put("/proc/self/uid_map", map);
	r = r < 0 ? r : put("/proc/self/gid_map", gmap);
	if (r == 0 && setting)
		r = put(setting, "0");
	if (r == 0 && cover && mount("/dev/null", cover, NULL, MS_BIND, NULL) < 0)
		r = -errno;
	return r;
}

static const struct {
	const char *name, *setting, *cover;
	const char *why, *remedy;
} hosts[] = {
    {"user namespaces switched off", "/proc/sys/user/max_user_namespaces", NULL,
     "user.max_user_namespaces is 0", "sudo sysctl --system"},
    {"no network namespaces", "/proc/sys/user/max_net_namespaces", NULL,
     "network namespace: none is left", "sudo sysctl -w user.max_net_namespaces=15000"},
    {"covered /proc, as in a container", NULL, "/proc/meminfo", "/proc/meminfo",
     "--security-opt systempaths=unconfined"},
};

static void a_refused_start_names_cause_and_remedy(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		struct err e = ERR_INIT;
		struct nbox b;
		int p[2], r = 0;
		pid_t pid;

		nbox_init(&b);
		assert_int_equal(pipe2(p, O_CLOEXEC), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			r = nest(hosts[i].setting, hosts[i].cover);
			if (r < 0)
				(void)snprintf(e.text, sizeof(e.text), "surroundings: %s",
					       strerror(-r));
			else
				r = provider_native.acquire(&b.spec, &b.sb, &e);
			_exit(write(p[1], &e, sizeof(e)) == (ssize_t)sizeof(e) && r < 0 ? 0 : 1);
		}
		(void)close(p[1]);
		assert_int_equal(read(p[0], &e, sizeof(e)), sizeof(e));
		(void)close(p[0]);
		assert_int_equal(waitpid(pid, &r, 0), pid);
		if (r != 0 || e.code != ERR_UNAVAILABLE || !strstr(e.text, hosts[i].why) ||
		    !strstr(e.text, hosts[i].remedy))
			fail_msg("%s: status %d, %s: %s", hosts[i].name, r, err_name(e.code),
				 e.text);
		nbox_done(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_refused_start_names_cause_and_remedy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
