/* provider/ssh/send.h: a machine that takes nothing keeps nobody from stopping (RT-06). */
#include "provider/ssh/send.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"

#include <cmocka.h>

#define MANIFEST (4 << 20) /* more than a pipe holds */

static volatile int cancel;

static void on_alarm(int signo)
{
	(void)signo;
	cancel = 1;
}

static void test_a_cancel_comes_through_a_full_pipe(void **state)
{
	char path[] = "/tmp/airlock-send-XXXXXX";
	const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
	_cleanup_fd_ int fd = mkstemp(path), rd = -1, wr = -1;
	struct sandbox_spec s = {.cancel = &cancel};
	struct err e = ERR_INIT;
	int p[2];

	(void)state;
	assert_int_equal(ftruncate(fd, MANIFEST), 0);
	s.manifest = path;
	assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
	rd = p[0];
	wr = p[1];
	/* As glibc installs it: a write that blocks would go on after it. */
	(void)signal(SIGALRM, on_alarm);
	assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
	assert_int_equal(ssh_send(&s, wr, rd, &e), -ECANCELED);
	(void)unlink(path);
	assert_int_equal(e.code, ERR_CANCELLED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_cancel_comes_through_a_full_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
