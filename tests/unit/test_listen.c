/* A socket that listens, is ended, and listens again for somebody else. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/listen.h"

static int reach(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = listen_socket();

	assert_true(fd >= 0);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	(void)close(fd);
	return -errno;
}

/* A connection that it accepts is whole: nothing of the end before is inherited. */
static void accept_one(int fd, uint16_t port)
{
	int c = reach(port), s;
	char b = 0;

	assert_true(c >= 0);
	s = accept(fd, NULL, NULL);
	assert_true(s >= 0);
	assert_int_equal(send(s, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(recv(c, &b, 1, 0), 1);
	(void)close(s);
	(void)close(c);
}

static void listens_again(void **state)
{
	int fd = listen_socket(), waiting;
	uint16_t port = 0;
	char b;

	(void)state;
	assert_true(fd >= 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(listen_on(fd, "127.0.0.1", 0, &port), 0);
		assert_true(port > 0);
		accept_one(fd, port);
		/* As airlock-launch does it for one that was killed; then whoever waits to be accepted is told. */
		waiting = reach(port);
		assert_true(waiting >= 0);
		if (i == 0)
			listen_end(fd);
		else if (i == 1)
			(void)shutdown(fd, SHUT_RDWR);
		if (i < 2) {
			assert_true(recv(waiting, &b, 1, 0) <= 0);
			assert_int_equal(reach(port), -ECONNREFUSED);
		}
		(void)close(waiting);
		/* Of one that has ended: shutdown leaves a mark, which the next use takes away. */
		if (i == 0)
			(void)shutdown(fd, SHUT_RDWR);
	}
	(void)close(fd);
}

static void errors(void **state)
{
	int fd = listen_socket(), other = listen_socket();
	uint16_t port = 0, again;

	(void)state;
	assert_int_equal(listen_on(fd, "localhost", 0, &port), -EINVAL);
	assert_int_equal(listen_on(fd, "127.0.0.1", 0, &port), 0);
	assert_int_equal(listen_on(other, "127.0.0.1", port, &again), -EADDRINUSE);
	(void)close(fd);
	(void)close(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(listens_again),
					   cmocka_unit_test(errors)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
