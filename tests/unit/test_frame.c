/* Unit tests of src/wire/frame.c and src/os/chan.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/chan.h"
#include "wire/frame.h"

static void frame_parse_judges_the_header(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct frame f;

	(void)state;
	assert_int_equal(frame_put(&b, 7, 0, "hi", 2), 0);
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(frame_parse(b.data, n, &f), 0);
	assert_int_equal(frame_parse(b.data, b.len, &f), 10);
	assert_int_equal(f.type, 7);
	assert_memory_equal(f.payload.p, "hi", 2);
	b.data[4] = 2; /* version */
	assert_int_equal(frame_parse(b.data, b.len, &f), -EPROTO);
	b.data[4] = 1;
	b.data[3] = 0x7f; /* length */
	assert_int_equal(frame_parse(b.data, b.len, &f), -EPROTO);
}

static void pair(struct chan *a, bool fds_a, struct chan *b, bool fds_b)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	chan_init(a, sv[0], fds_a);
	chan_init(b, sv[1], fds_b);
}

static void chan_carries_frames_and_descriptors(void **state)
{
	struct chan a, b;
	struct frame f;
	struct err e = ERR_INIT;
	int fds[FRAME_FDS_MAX], p[2];

	(void)state;
	pair(&a, false, &b, true);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(chan_send(&a, 1, "x", 1, NULL, 0, INT64_MAX, &e), 0);
	assert_int_equal(chan_send(&a, 2, "y", 1, p, 2, INT64_MAX, &e), 0);
	assert_int_equal(chan_send(&a, 3, "", 0, NULL, 0, INT64_MAX, &e), 0);
	assert_int_equal(chan_recv(&b, 0, &f, fds, &e), 1);
	assert_int_equal(f.type, 1);
	assert_int_equal(fds[0], -1);
	assert_int_equal(chan_recv(&b, 0, &f, fds, &e), 1);
	assert_int_equal(f.type, 2);
	assert_true(fds[0] >= 0 && fds[1] >= 0);
	assert_int_equal(fds[2], -1);
	assert_int_equal(write(fds[1], "z", 1), 1);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(chan_recv(&b, 0, &f, fds, &e), 1);
	assert_int_equal(f.type, 3);
	assert_int_equal(chan_recv(&b, 0, &f, fds, &e), -EAGAIN);
	chan_done(&a);
	assert_int_equal(chan_recv(&b, INT64_MAX, &f, fds, &e), 0);
	chan_done(&b);
	close(p[0]);
	close(p[1]);
}

/* B-01: a peer inside a sandbox cannot hand a descriptor to the host. */
static void b_01_descriptors_from_a_guest_are_dropped(void **state)
{
	struct chan guest, host;
	struct frame f;
	struct err e = ERR_INIT;
	int fds[FRAME_FDS_MAX], p[2];
	char c;

	(void)state;
	pair(&guest, false, &host, false);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(chan_send(&guest, 1, "x", 1, &p[1], 1, INT64_MAX, &e), 0);
	close(p[1]);
	assert_int_equal(chan_recv(&host, INT64_MAX, &f, fds, &e), 1);
	assert_int_equal(fds[0], -1);
	assert_int_equal(read(p[0], &c, 1), 0); /* the last copy of the write end is gone */
	chan_done(&guest);
	chan_done(&host);
	close(p[0]);
}

static void chan_waits_no_longer_than_asked(void **state)
{
	struct chan a, b;
	struct frame f;
	struct err e = ERR_INIT;
	_cleanup_free_ char *big = calloc(1, FRAME_MAX);

	(void)state;
	pair(&a, false, &b, false);
	assert_int_equal(chan_recv(&b, clock_mono_ns() + 20 * NS_PER_MS, &f, NULL, &e), -EAGAIN);
	assert_int_equal(chan_send(&a, 1, big, FRAME_MAX, NULL, 0, clock_mono_ns() + 20 * NS_PER_MS,
				   &e),
			 -ETIMEDOUT);
	assert_int_equal(chan_send(&a, 1, big, FRAME_MAX + 1, NULL, 0, INT64_MAX, &e), -E2BIG);
	chan_done(&a);
	assert_int_equal(chan_recv(&b, INT64_MAX, &f, NULL, &e), -EPROTO); /* cut short */
	assert_int_equal(chan_send(&b, 1, "x", 1, NULL, 0, INT64_MAX, &e), -EPIPE);
	chan_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(frame_parse_judges_the_header),
	    cmocka_unit_test(chan_carries_frames_and_descriptors),
	    cmocka_unit_test(b_01_descriptors_from_a_guest_are_dropped),
	    cmocka_unit_test(chan_waits_no_longer_than_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
