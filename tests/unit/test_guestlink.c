/* provider/guestlink.h: a guest that only chatters keeps nobody waiting (S1-04, RT-06). */
#include "provider/guestlink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#include <cmocka.h>

#define FRAMES 4096 /* more than one read takes */

/* Frames that are no events, as many as lie in the socket. Returns the far end. */
static int chatter(struct guestlink *g)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAMES * FRAME_HEADER);
	int sv[2];

	for (size_t i = 0; i < FRAMES; i++)
		assert_int_equal(frame_put(&b, GM_PONG, 0, NULL, 0), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(send(sv[1], b.data, b.len, MSG_DONTWAIT), b.len);
	guestlink_init(g, sv[0], "the test");
	return sv[1];
}

static void test_chatter_hands_the_turn_back(void **state)
{
	struct sandbox_event ev = {0};
	struct guestlink g;
	_cleanup_fd_ int far = chatter(&g);
	int turns = 0, r;

	(void)state;
	assert_true(far >= 0);
	while ((r = guestlink_next_event(&g, &ev, NULL)) > 0) {
		assert_int_equal(ev.type, SE_STARTED);
		assert_int_equal(ev.id, 0);
		turns++;
	}
	assert_int_equal(r, 0);
	assert_true(turns > 1);
	chan_done(&g.ch);
}

/* With the time over, what is there already is not read to its end first. */
static void test_chatter_does_not_put_off_the_end(void **state)
{
	struct guestlink g;
	_cleanup_fd_ int far = chatter(&g);
	struct frame f;

	(void)state;
	assert_true(far >= 0);
	guestlink_shutdown(&g, clock_mono_ns() - 1);
	assert_true(g.ended);
	assert_int_equal(chan_recv(&g.ch, 0, &f, NULL, NULL), 1);
	chan_done(&g.ch);
}

/* Its descriptor stays readable, so a silent "nothing" would make who waits for something else turn in vain. */
static void test_the_end_is_told_each_time(void **state)
{
	struct sandbox_event ev;
	struct guestlink g;
	int sv[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	guestlink_init(&g, sv[0], "the test");
	(void)close(sv[1]);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(guestlink_next_event(&g, &ev, NULL), 1);
		assert_int_equal(ev.type, SE_ENDED);
	}
	chan_done(&g.ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_chatter_hands_the_turn_back),
	    cmocka_unit_test(test_the_end_is_told_each_time),
	    cmocka_unit_test(test_chatter_does_not_put_off_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
