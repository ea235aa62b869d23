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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
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

static const struct host {
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

/* A start on that host, in a child; what it says. */
static void refused(const struct host *h, struct err *e)
{
	struct nbox b;
	int p[2], r = 0;
	pid_t pid;

	nbox_init(&b);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		r = nest(h->setting, h->cover);
		if (r < 0)
			(void)snprintf(e->text, sizeof(e->text), "surroundings: %s", strerror(-r));
		else
			r = provider_native.acquire(&b.spec, &b.sb, e);
		_exit(write(p[1], e, sizeof(*e)) == (ssize_t)sizeof(*e) && r < 0 ? 0 : 1);
	}
	(void)close(p[1]);
	assert_int_equal(read(p[0], e, sizeof(*e)), sizeof(*e));
	(void)close(p[0]);
	assert_int_equal(waitpid(pid, &r, 0), pid);
	if (r != 0 || e->code != ERR_UNAVAILABLE)
		fail_msg("%s: status %d, %s: %s", h->name, r, err_name(e->code), e->text);
	nbox_done(&b);
}

static void a_refused_start_names_cause_and_remedy(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		struct err e = ERR_INIT;

		refused(&hosts[i], &e);
		if (!strstr(e.text, hosts[i].why) || !strstr(e.text, hosts[i].remedy))
			fail_msg("%s: %s: %s", hosts[i].name, err_name(e.code), e.text);
	}
}

/*
 * The trials behind that message run dumpable, so in a program of their own and never in a copy of the caller, who holds
 * credentials: without the program there is no trial, and with another in its place nothing of ours reaches it.
 */
static void trials_are_no_copies_of_the_caller(void **state)
{
	static const char script[] = "#!/bin/sh\n"
				     "exec tr '\\0' '\\n' </proc/$$/environ >\"$0.environ\"\n";
	char exe[4096], try[4096 + 16], away[4096 + 32], text[4096] = "";
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	(void)state;
	assert_true(n > 0);
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	(void)snprintf(try, sizeof(try), "%s/airlock-try", exe);
	(void)snprintf(away, sizeof(away), "%s.environ", try);
	if (access(exe, W_OK) < 0)
		skip();
	assert_int_equal(setenv("A_SECRET", "in the environment", 1), 0);
	for (int there = 0; there < 2; there++) {
		struct err e = ERR_INIT;

		assert_true(unlink(try) == 0 || there);
		if (there) {
			_cleanup_fd_ int fd = open(try, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

			assert_int_equal(write(fd, script, sizeof(script) - 1), sizeof(script) - 1);
		}
		refused(&hosts[0], &e);
		assert_null(strstr(e.text, hosts[0].why));
		assert_non_null(strstr(e.text, "airlock doctor"));
	}
	{
		_cleanup_fd_ int fd = open(away, O_RDONLY | O_CLOEXEC);

		assert_true(fd >= 0);
		n = read(fd, text, sizeof(text) - 1);
		assert_true(n >= 0);
		assert_null(strstr(text, "A_SECRET"));
	}
	assert_int_equal(unlink(away), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_refused_start_names_cause_and_remedy),
	    cmocka_unit_test(trials_are_no_copies_of_the_caller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
