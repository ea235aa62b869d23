/* os/mux.h: channels over one stream, seen from both ends, and from an end that lies (B-01). */
#include "os/mux.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#include <cmocka.h>

struct ends {
	struct mux a, b; /* a opens */
};

static void connect_ends(struct ends *e)
{
	int p[2], q[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(pipe2(q, O_CLOEXEC), 0);
	mux_init(&e->a, p[0], q[1], true);
	mux_init(&e->b, q[0], p[1], false);
}

static int step(struct mux *m, struct frame *f)
{
	struct pollfd v[MUX_FDS];
	size_t n = mux_poll(m, v);
	int r;

	(void)poll(v, n, 0);
	r = mux_run(m, v, n);
	return r < 0 ? r : mux_next(m, f);
}

static void settle_one(struct mux *m)
{
	struct frame f;

	assert_int_equal(step(m, &f), 0);
}

static void settle(struct ends *e)
{
	struct frame f;

	for (int i = 0; i < 200; i++) {
		assert_int_equal(step(&e->a, &f), 0);
		assert_int_equal(step(&e->b, &f), 0);
	}
}

static void done(struct ends *e)
{
	mux_done(&e->a);
	mux_done(&e->b);
}

static size_t drain(int fd)
{
	char b[65536];
	size_t all = 0;
	ssize_t k;

	while ((k = read(fd, b, sizeof(b))) > 0)
		all += (size_t)k;
	return all;
}

static void a_slow_reader_stops_its_channel_and_loses_nothing(void **state)
{
	static struct ends e;
	char block[4096];
	int sink[2], peer = -1, fast[2], fast_peer = -1;
	size_t sent = 0, got = 0;
	uint8_t type;
	struct buf b;

	(void)state;
	memset(block, 'x', sizeof(block));
	connect_ends(&e);
	assert_int_equal(pipe2(sink, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(mux_open(&e.a, 7, MUX_TO_OPENER | MUX_AWAITED, sink[1]), 0);
	settle(&e);
	assert_int_equal(mux_take_peers(&e.b, 7, &peer, 1), 1);
	(void)fcntl(peer, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 50; i++) {
		ssize_t k;

		while ((k = write(peer, block, sizeof(block))) > 0)
			sent += (size_t)k;
		settle(&e);
	}
	/* Two pipes and a window, no more: nobody holds the rest. */
	assert_in_range(sent, MUX_WINDOW, MUX_WINDOW + 4 * 65536);
	assert_int_equal(mux_hold(&e.a, 7, 67, (struct view){"end", 3}, INT64_MAX), 0);
	assert_false(mux_due(&e.a, clock_mono_ns(), &type, &b));
	/* Another one goes on meanwhile. */
	assert_int_equal(pipe2(fast, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(mux_open(&e.a, 8, MUX_TO_OPENER, fast[1]), 0);
	settle(&e);
	assert_int_equal(mux_take_peers(&e.b, 8, &fast_peer, 1), 1);
	assert_int_equal(write(fast_peer, "quick", 5), 5);
	settle(&e);
	assert_int_equal(drain(fast[0]), 5);
	(void)close(peer);
	for (int i = 0; i < 50; i++) {
		got += drain(sink[0]);
		settle(&e);
	}
	got += drain(sink[0]);
	assert_int_equal(got, sent);
	assert_true(mux_due(&e.a, clock_mono_ns(), &type, &b));
	assert_int_equal(type, 67);
	assert_memory_equal(b.data, "end", 3);
	buf_done(&b);
	(void)close(sink[0]);
	(void)close(fast[0]);
	(void)close(fast_peer);
	done(&e);
}

static void a_reader_that_leaves_is_told(void **state)
{
	static struct ends e;
	int sink[2], peer = -1;

	(void)state;
	connect_ends(&e);
	assert_int_equal(pipe2(sink, O_CLOEXEC), 0);
	assert_int_equal(mux_open(&e.a, 1, MUX_TO_OPENER, sink[1]), 0);
	settle(&e);
	assert_int_equal(mux_take_peers(&e.b, 1, &peer, 1), 1);
	(void)close(sink[0]);
	assert_int_equal(write(peer, "x", 1), 1);
	settle(&e);
	assert_int_equal(write(peer, "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	(void)close(peer);
	done(&e);
}

/* The other side has room to wait for, and would for ever. */
static void a_group_that_ends_tells_who_sends(void **state)
{
	static struct ends e;
	int source[2], peer = -1;
	ssize_t k;

	(void)state;
	connect_ends(&e);
	assert_int_equal(pipe2(source, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(mux_open(&e.a, 4, 0, source[0]), 0);
	settle(&e);
	assert_int_equal(mux_take_peers(&e.b, 4, &peer, 1), 1);
	for (int i = 0; i < 50; i++) {
		do {
			k = write(source[1], "0123456789abcdef", 16);
		} while (k > 0);
		assert_int_equal(errno, EAGAIN);
		settle(&e);
	}
	/* Nobody writes into the pipe any more, so nobody meets its end. */
	mux_end_group(&e.b, 4);
	settle(&e);
	assert_int_equal(write(source[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	(void)close(source[1]);
	(void)close(peer);
	done(&e);
}

struct lie {
	const char *name;
	uint8_t type;
	uint32_t v[2];
	size_t n; /* bytes of v, then zeros */
	size_t zeros;
	int expect;
};

static const struct lie lies[] = {
    {"a channel that never was", MX_DATA, {9}, 4, 1, -EPROTO},
    {"channel 0", MX_DATA, {0}, 4, 1, -EPROTO},
    {"no channel at all", MX_DATA, {0}, 2, 0, -EPROTO},
    {"more than there is room for", MX_DATA, {1}, 4, MUX_WINDOW + 1, -EPROTO},
    {"room for what is not sent", MX_ROOM, {1, 5}, 8, 0, -EPROTO},
    {"stop of what we do not send", MX_STOP, {1}, 4, 0, -EPROTO},
    {"an end with more behind it", MX_EOF, {1}, 4, 1, -EPROTO},
    {"a channel of its own", MX_OPEN, {2, 2}, 8, 1, -EPROTO},
    {"a sign of life with a payload", MX_ALIVE, {0}, 0, 1, -EPROTO},
    {"what is right", MX_DATA, {1}, 4, 5, 0},
    {"what is right in size", MX_DATA, {1}, 4, MUX_WINDOW, 0},
};

static void an_end_that_lies_is_cut_off(void **state)
{
	static struct ends e;
	static char data[FRAME_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		const struct lie *l = &lies[i];
		_cleanup_buf_ struct buf b = BUF_INIT(sizeof(data) + 64), out = BUF_INIT(FRAME_MAX);
		struct frame f;
		int sink[2];

		connect_ends(&e);
		assert_int_equal(pipe2(sink, O_CLOEXEC), 0);
		assert_int_equal(mux_open(&e.a, 1, MUX_TO_OPENER, sink[1]), 0);
		(void)buf_put(&b, l->v, l->n);
		(void)buf_put(&b, data, l->zeros);
		assert_int_equal(frame_put(&out, l->type, 0, b.data, b.len), 0);
		(void)buf_put(&e.a.rx, out.data, out.len);
		if (mux_next(&e.a, &f) != l->expect)
			fail_msg("%s: not %d", l->name, l->expect);
		(void)close(sink[0]);
		done(&e);
	}
}

static void descriptors_of_a_stream_are_a_lie(void **state)
{
	static struct ends e;
	_cleanup_buf_ struct buf out = BUF_INIT(64);
	struct frame f;

	(void)state;
	connect_ends(&e);
	assert_int_equal(frame_put(&out, 65, 1, "x", 1), 0);
	(void)buf_put(&e.a.rx, out.data, out.len);
	assert_int_equal(mux_next(&e.a, &f), -EPROTO);
	done(&e);
}

static void the_last_word_does_not_wait_for_ever(void **state)
{
	static struct ends e;
	int sink[2];
	uint8_t type;
	struct buf b;

	(void)state;
	connect_ends(&e);
	assert_int_equal(pipe2(sink, O_CLOEXEC), 0);
	assert_int_equal(mux_open(&e.a, 3, MUX_TO_OPENER | MUX_AWAITED, sink[1]), 0);
	assert_int_equal(mux_hold(&e.a, 3, 67, (struct view){"", 0}, 1000), 0);
	assert_false(mux_due(&e.a, 999, &type, &b));
	assert_true(mux_due(&e.a, 1000, &type, &b));
	buf_done(&b);
	/* Its channels went with it. */
	assert_int_equal(drain(sink[0]), 0);
	(void)close(sink[0]);
	done(&e);
}

/* Cuts. --------------------------------------------------------------------------------------- */

#define CUT_BYTES (3u << 20)
#define CUT_LANES 3

/* Byte i of a lane: no two places of it look the same for long. */
static char byte_of(size_t lane, size_t i)
{
	uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(lane * 40503u) ^ (uint32_t)(i >> 13);

	return (char)(x >> 11);
}

struct lane {
	int from, to; /* where the test writes and reads */
	size_t sent, got;
};

static void write_lane(struct lane *n, size_t lane)
{
	char block[5000];
	size_t want = CUT_BYTES - n->sent < sizeof(block) ? CUT_BYTES - n->sent : sizeof(block);
	ssize_t k;

	if (n->from < 0)
		return;
	for (size_t i = 0; i < want; i++)
		block[i] = byte_of(lane, n->sent + i);
	k = want ? write(n->from, block, want) : 0;
	if (k > 0)
		n->sent += (size_t)k;
	if (n->sent == CUT_BYTES)
		cleanup_fd(&n->from);
}

static void read_lane(struct lane *n, size_t lane)
{
	char block[8192];
	ssize_t k = read(n->to, block, sizeof(block));

	for (ssize_t i = 0; i < k; i++)
		if (block[i] != byte_of(lane, n->got + (size_t)i))
			fail_msg("lane %zu differs at byte %zu", lane, n->got + (size_t)i);
	if (k > 0)
		n->got += (size_t)k;
}

/* What is under way is lost, each way, wherever it is. */
static void cut(struct ends *e)
{
	int p[2], q[2];

	mux_detach(&e->a);
	mux_detach(&e->b);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(pipe2(q, O_CLOEXEC), 0);
	assert_int_equal(mux_attach(&e->a, p[0], q[1], e->b.came, NULL), 0);
	assert_int_equal(mux_attach(&e->b, q[0], p[1], e->a.came, NULL), 0);
}

/* One lane to the guest, two from it; the pipes' ends of both sides are the test's. */
static void open_lanes(struct ends *e, struct lane *lane)
{
	int p[2], peers[CUT_LANES];

	for (size_t i = 0; i < CUT_LANES; i++) {
		assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
		assert_int_equal(
		    mux_open(&e->a, 5, i ? MUX_TO_OPENER | MUX_AWAITED : 0, p[i ? 1 : 0]), 0);
		lane[i] = i ? (struct lane){.to = p[0]} : (struct lane){.from = p[1]};
	}
	settle(e);
	assert_int_equal(mux_take_peers(&e->b, 5, peers, CUT_LANES), CUT_LANES);
	for (size_t i = 0; i < CUT_LANES; i++) {
		(void)fcntl(peers[i], F_SETFL, O_NONBLOCK);
		*(i ? &lane[i].from : &lane[i].to) = peers[i];
	}
}

static bool all_there(const struct lane *lane)
{
	for (size_t i = 0; i < CUT_LANES; i++)
		if (lane[i].got < CUT_BYTES)
			return false;
	return true;
}

static void every_byte_comes_once_whatever_is_cut(void **state)
{
	static struct ends e;
	struct lane lane[CUT_LANES];
	unsigned cuts = 0, put = 0, messages = 0, seed = 1;
	size_t most = 0;
	struct frame f;
	uint8_t type;
	struct buf b;
	int r;

	(void)state;
	connect_ends(&e);
	open_lanes(&e, lane);
	for (int turn = 0; turn < 200000 && !all_there(lane); turn++) {
		for (size_t i = 0; i < CUT_LANES; i++) {
			write_lane(&lane[i], i);
			if (rand_r(&seed) % 3)
				read_lane(&lane[i], i);
		}
		if (rand_r(&seed) % 2)
			assert_int_equal(step(&e.a, &f), 0);
		r = rand_r(&seed) % 2 ? step(&e.b, &f) : 0;
		assert_in_range(r, 0, 1);
		if (r) {
			assert_memory_equal(f.payload.p, &messages, sizeof(messages));
			messages++;
		}
		if (turn % 20 == 0) {
			assert_int_equal(mux_put(&e.a, 70, &put, sizeof(put)), 0);
			put++;
		}
		if (rand_r(&seed) % 30 == 0) {
			cut(&e);
			cuts++;
		}
		most = e.b.tx.cap > most ? e.b.tx.cap : most;
	}
	assert_true(all_there(lane));
	assert_true(cuts > 5);
	/* What is kept is bounded, and what was said to be there is not kept. */
	assert_in_range(most, 1, 4 * MUX_KEPT);
	assert_int_equal(mux_hold(&e.b, 5, 67, (struct view){"end", 3}, INT64_MAX), 0);
	for (; messages < put; messages++) {
		while ((r = step(&e.b, &f)) == 0)
			assert_int_equal(step(&e.a, &f), 0);
		assert_int_equal(r, 1);
		assert_memory_equal(f.payload.p, &messages, sizeof(messages));
	}
	settle(&e);
	assert_true(mux_due(&e.b, clock_mono_ns(), &type, &b));
	buf_done(&b);
	for (size_t i = 0; i < CUT_LANES; i++)
		cleanup_fd(&lane[i].to);
	done(&e);
}

static void what_is_put_while_it_is_away_waits(void **state)
{
	static struct ends e;
	struct frame f;
	int p[2], q[2];

	(void)state;
	connect_ends(&e);
	mux_detach(&e.a);
	mux_detach(&e.b);
	assert_int_equal(mux_put(&e.a, 70, "x", 1), 0);
	assert_int_equal(step(&e.a, &f), 0);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(pipe2(q, O_CLOEXEC), 0);
	assert_int_equal(mux_attach(&e.b, q[0], p[1], e.a.came, NULL), 0);
	assert_int_equal(mux_attach(&e.a, p[0], q[1], e.b.came,
				    &(struct buf){.data = (char[]){"head"}, .len = 4}),
			 0);
	assert_int_equal(step(&e.a, &f), 0);
	/* The head is no part of the stream: who attaches takes it off. */
	{
		char head[4];

		assert_int_equal(read(e.b.in, head, 4), 4);
		assert_memory_equal(head, "head", 4);
	}
	assert_int_equal(step(&e.b, &f), 1);
	assert_int_equal(f.type, 70);
	done(&e);
}

/* It takes all that comes, and never says so: no more is read for it than may be kept. */
static void one_that_never_says_what_it_has_costs_no_more_memory(void **state)
{
	enum { LANES = 12 };
	static struct ends e;
	static char block[65536];
	int p[2], from[LANES];
	struct frame f;

	(void)state;
	connect_ends(&e);
	for (size_t i = 0; i < LANES; i++) {
		assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
		assert_int_equal(mux_open(&e.a, 5, 0, p[0]), 0);
		from[i] = p[1];
	}
	(void)fcntl(e.b.in, F_SETFL, O_NONBLOCK);
	for (int turn = 0; turn < 2000; turn++) {
		for (size_t i = 0; i < LANES; i++)
			(void)!write(from[i], block, sizeof(block));
		assert_int_equal(step(&e.a, &f), 0);
		while (read(e.b.in, block, sizeof(block)) > 0)
			continue;
	}
	assert_false(mux_roomy(&e.a));
	assert_in_range(e.a.tx.len, MUX_KEPT, MUX_KEPT + LANES * sizeof(block));
	for (size_t i = 0; i < LANES; i++)
		(void)close(from[i]);
	done(&e);
}

static void a_figure_that_cannot_be_is_refused(void **state)
{
	static struct ends e;
	static const uint8_t ahead[] = {8, 0, 0, 0, 1, MX_ALIVE, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0};
	int p[2], q[2];
	struct frame f;

	(void)state;
	for (int i = 0; i < 2; i++) {
		connect_ends(&e);
		assert_int_equal(mux_put(&e.a, 70, "x", 1), 0);
		settle_one(&e.a);
		mux_detach(&e.a);
		assert_int_equal(pipe2(p, O_CLOEXEC), 0);
		assert_int_equal(pipe2(q, O_CLOEXEC), 0);
		/* More than was ever written; less than was said before. */
		e.a.tx_had = i ? 4 : 0;
		assert_int_equal(mux_attach(&e.a, p[0], q[1], i ? 3 : 1000, NULL), -EPROTO);
		assert_true(e.a.away);
		(void)close(p[1]);
		(void)close(q[0]);
		done(&e);
	}
	connect_ends(&e);
	assert_int_equal(write(e.b.out, ahead, sizeof(ahead)), sizeof(ahead));
	assert_int_equal(step(&e.a, &f), -EPROTO);
	done(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_slow_reader_stops_its_channel_and_loses_nothing),
	    cmocka_unit_test(a_reader_that_leaves_is_told),
	    cmocka_unit_test(a_group_that_ends_tells_who_sends),
	    cmocka_unit_test(an_end_that_lies_is_cut_off),
	    cmocka_unit_test(descriptors_of_a_stream_are_a_lie),
	    cmocka_unit_test(the_last_word_does_not_wait_for_ever),
	    cmocka_unit_test(every_byte_comes_once_whatever_is_cut),
	    cmocka_unit_test(what_is_put_while_it_is_away_waits),
	    cmocka_unit_test(one_that_never_says_what_it_has_costs_no_more_memory),
	    cmocka_unit_test(a_figure_that_cannot_be_is_refused),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
