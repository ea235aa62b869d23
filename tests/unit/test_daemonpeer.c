/* A key is told to nobody but who may be the daemon: by user number, and by whether that process is in a sandbox. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/daemonpeer.h"

#define NOBODY 65534

/* Who listens, and at what. */
struct who {
	bool unix_socket, other, inside, hides, accepts;
};

static int listen_at(const struct who *w, struct sockaddr_storage *sa, socklen_t *len)
{
	struct sockaddr_in *a4 = (struct sockaddr_in *)sa;
	struct sockaddr_un *un = (struct sockaddr_un *)sa;
	int fd = socket(w->unix_socket ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*sa = (struct sockaddr_storage){0};
	if (w->unix_socket) {
		un->sun_family = AF_UNIX;
		*len = sizeof(sa_family_t); /* a name of the kernel's choice */
	} else {
		a4->sin_family = AF_INET;
		a4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		*len = sizeof(*a4);
	}
	if (fd < 0 || bind(fd, (struct sockaddr *)sa, *len) < 0 || listen(fd, 8) < 0)
		_exit(2);
	*len = sizeof(*sa);
	if (getsockname(fd, (struct sockaddr *)sa, len) < 0)
		_exit(2);
	return fd;
}

/* Becomes who it is, tells where it listens, takes a connection up and keeps it until it is killed. */
static void serve(const struct who *w, int tell)
{
	struct sockaddr_storage sa;
	socklen_t len;
	int fd;

	if (w->other &&
	    (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
		_exit(2);
	if (w->inside) {
		char name[] = "test_daemonpeer", *argv[] = {name, NULL, NULL};
		char text[16];

		/* What runs in a sandbox was executed there: that decides who sees through its hiding. */
		(void)snprintf(text, sizeof(text), "%d %d", tell, w->hides);
		argv[1] = text;
		if (unshare(CLONE_NEWUSER) == 0)
			(void)execv("/proc/self/exe", argv);
		_exit(3);
	}
	if (w->hides)
		(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	fd = listen_at(w, &sa, &len);
	if (write(tell, &len, sizeof(len)) != sizeof(len) ||
	    write(tell, &sa, sizeof(sa)) != sizeof(sa))
		_exit(2);
	if (w->accepts && accept(fd, NULL, NULL) < 0)
		_exit(2);
	for (;;)
		(void)pause();
}

static int ask(const struct who *w, int64_t wait_ms, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len = 0;
	int p[2], fd, r = -EIO;
	pid_t pid;

	if (pipe(p) < 0 || (pid = fork()) < 0)
		return -errno;
	if (pid == 0)
		serve(w, p[1]);
	(void)close(p[1]);
	if (read(p[0], &len, sizeof(len)) == sizeof(len) &&
	    read(p[0], &sa, sizeof(sa)) == sizeof(sa)) {
		fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, len) == 0)
			r = daemonpeer_check(fd, "there", clock_mono_ns() + wait_ms * NS_PER_MS, e);
		(void)close(fd);
	}
	(void)close(p[0]);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return r;
}

static void test_own(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(ask(&(struct who){.accepts = true}, 60000, &e), 0);
	assert_int_equal(ask(&(struct who){.accepts = true, .hides = true}, 60000, &e), 0);
	assert_int_equal(ask(&(struct who){.unix_socket = true}, 60000, &e), 0);
}

/* Until it is accepted a connection has no owner, and the kernel's word for that is root's number. */
static void test_not_accepted(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_true(ask(&(struct who){0}, 50, &e) < 0);
	assert_non_null(strstr(e.text, "takes up"));
}

static void test_other_user(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (geteuid() != 0) {
		print_message("only root can be two users\n");
		return;
	}
	assert_true(ask(&(struct who){.accepts = true, .other = true}, 60000, &e) < 0);
	assert_non_null(strstr(e.text, "AIRLOCK_DAEMON_USER=65534"));
	assert_true(ask(&(struct who){.unix_socket = true, .other = true}, 60000, &e) < 0);
	assert_int_equal(setenv("AIRLOCK_DAEMON_USER", "65534", 1), 0);
	assert_int_equal(ask(&(struct who){.accepts = true, .other = true}, 60000, &e), 0);
	assert_int_equal(ask(&(struct who){.unix_socket = true, .other = true}, 60000, &e), 0);
	assert_int_equal(unsetenv("AIRLOCK_DAEMON_USER"), 0);
}

/* The user's own number, seen from outside a sandbox that has the host's network (B-05). */
static void sandboxed(void)
{
	static const struct who who[] = {{.accepts = true, .inside = true},
					 {.accepts = true, .inside = true, .hides = true}};
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(who); i++)
		if (ask(&who[i], 60000, &e) >= 0 || !strstr(e.text, "sandbox"))
			_exit(1 + (int)i);
	_exit(0);
}

static void test_sandboxed(void **state)
{
	int status = -1;
	pid_t pid;

	(void)state;
	if (getenv("UNDER_VALGRIND"))
		skip(); /* memcheck does not start a program of another user again */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
				       setresuid(NOBODY, NOBODY, NOBODY) < 0))
			_exit(9);
		/* Since it changed its number it is hidden; a user's shell is not. */
		(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		sandboxed();
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	int tell, hides;

	if (argc == 2 && sscanf(argv[1], "%d %d", &tell, &hides) == 2)
		serve(&(struct who){.accepts = true, .hides = hides}, tell);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_own),
	    cmocka_unit_test(test_not_accepted),
	    cmocka_unit_test(test_other_user),
	    cmocka_unit_test(test_sandboxed),
	};

	return cmocka_run_group_tests_name("daemonpeer", tests, NULL, NULL);
}
