/* Unit tests of src/guest/front_away.c: a front whose stream another one has brought, and that other one (B-04, K5). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/front_internal.h"

#include <cmocka.h>

#include "scratch.h"

#define WAIT_MS 20000

static char lease[] = "1m0000000000abcd";

/* One that waits in a run's directory, with streams whose other ends are far_in and far_out. */
struct waits {
	char top[64], run[160];
	struct front f;
	int far_in, far_out;
};

static void begin(struct waits *w)
{
	struct rm_hold m = {.grace_ms = 60000, .id = "0123456789abcdef"};
	int in[2], out[2];

	*w = (struct waits){.top = "/tmp/airlock-away-XXXXXX"};
	assert_non_null(scratch_dir(w->top));
	(void)snprintf(w->run, sizeof(w->run), "%s/.airlock-runtime", w->top);
	assert_int_equal(mkdir(w->run, 0700), 0);
	(void)snprintf(w->run, sizeof(w->run), "%s/.airlock-runtime/runs", w->top);
	assert_int_equal(mkdir(w->run, 0700), 0);
	(void)snprintf(w->run, sizeof(w->run), "%s/.airlock-runtime/runs/%s", w->top, lease);
	assert_int_equal(mkdir(w->run, 0700), 0);
	w->f.place.run = open(w->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	front_join_init(&w->f.join);
	assert_int_equal(front_join_hold(&w->f.join, w->f.place.run, &m), 0);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	mux_init(&w->f.mux, in[0], out[1], false);
	w->far_in = in[1];
	w->far_out = out[0];
}

static void end(struct waits *w)
{
	front_join_done(&w->f.join);
	mux_done(&w->f.mux);
	cleanup_fd(&w->f.place.run);
	cleanup_fd(&w->far_in);
	cleanup_fd(&w->far_out);
	scratch_remove(w->top);
}

struct brings {
	struct front f;
	struct buf ask;
	pthread_t thread;
};

static void *bring(void *arg)
{
	struct brings *b = arg;

	return (void *)(intptr_t)front_attach(&b->f, (struct view){b->ask.data, b->ask.len});
}

static void start_bringing(struct brings *b, struct waits *w, uint64_t came)
{
	struct rm_attach m = {.came = came,
			      .place = {.grace_ms = 60000, .root = w->top, .lease = lease},
			      .hold = w->f.join.hold};
	int in[2], out[2];

	*b = (struct brings){.f = {.sigfd = -1}};
	buf_init(&b->ask, 8192);
	assert_int_equal(rm_attach_put(&b->ask, &m), 0);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	mux_init(&b->f.mux, in[0], out[1], false);
	(void)close(in[1]);
	(void)close(out[0]);
	assert_int_equal(pthread_create(&b->thread, NULL, bring, b), 0);
}

static void bringing_ends(struct brings *b)
{
	assert_int_equal(pthread_join(b->thread, NULL), 0);
	buf_done(&b->ask);
	mux_done(&b->f.mux);
}

static void hear(struct waits *w)
{
	struct pollfd p[FRONT_JOIN_FDS];

	front_join_poll(&w->f.join, p);
	assert_true(poll(p, FRONT_JOIN_FDS, WAIT_MS) > 0);
	front_hear_join(&w->f, p);
}

/* It stays for as long as the session lasts: a clock that only its own loop winds would end it, and sshd the session with it. */
static void who_brought_a_stream_stays_without_a_clock(void **state)
{
	int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
	struct itimerval left = {.it_value = {.tv_sec = 1}};
	struct brings b;
	struct waits w;

	(void)state;
	begin(&w);
	(void)alarm(1000);
	start_bringing(&b, &w, 0);
	while (w.f.join.carrier < 0)
		hear(&w);
	assert_false(w.f.mux.away);
	while (left.it_value.tv_sec && clock_mono_ns() < until) {
		assert_int_equal(getitimer(ITIMER_REAL, &left), 0);
		(void)poll(NULL, 0, 1);
	}
	(void)alarm(0);
	assert_true(front_join_carried(&w.f.join));
	end(&w);
	bringing_ends(&b);
	assert_true(b.f.ending);
	assert_int_equal(left.it_value.tv_sec, 0);
}

/* sshd closes our input when it ends, while the other way stays open: the same as when somebody lets go, but for the order. */
static void an_end_of_who_brought_the_stream_is_a_cut(void **state)
{
	int64_t now = clock_mono_ns();

	(void)state;
	for (int killed = 0; killed < 2; killed++) {
		struct waits w;
		int sv[2];

		begin(&w);
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
		w.f.join.carrier = sv[0];
		w.f.mux.eof = true;
		if (killed)
			cleanup_fd(&sv[1]);
		front_judge(&w.f, now);
		assert_int_equal(w.f.mux.away, killed);
		assert_false(w.f.gone);
		front_judge(&w.f, now + NS_PER_S);
		assert_int_equal(w.f.gone, !killed);
		cleanup_fd(&sv[1]);
		end(&w);
	}
}

static void one_with_a_figure_that_cannot_be_costs_no_stream(void **state)
{
	struct brings b;
	struct waits w;

	(void)state;
	begin(&w);
	start_bringing(&b, &w, 4711);
	hear(&w);
	hear(&w);
	bringing_ends(&b);
	assert_true(b.f.said_fault);
	assert_false(w.f.mux.away);
	assert_true(w.f.mux.in >= 0 && w.f.mux.out >= 0);
	end(&w);
}

/* Two come at a time: the first is told to come again, not that nobody waits. */
static void who_is_put_off_is_told_so(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	uint32_t word = 0;
	struct waits w;
	int fd[2];

	(void)state;
	begin(&w);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/join/0123456789abcdef", w.run);
	for (int i = 0; i < 2; i++) {
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof(a)), 0);
		hear(&w);
	}
	assert_int_equal(recv(fd[0], &word, sizeof(word), 0), sizeof(word));
	assert_int_equal(word, EAGAIN);
	assert_true(w.f.join.asks >= 0);
	(void)close(fd[0]);
	(void)close(fd[1]);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(who_brought_a_stream_stays_without_a_clock),
	    cmocka_unit_test(an_end_of_who_brought_the_stream_is_a_cut),
	    cmocka_unit_test(one_with_a_figure_that_cannot_be_costs_no_stream),
	    cmocka_unit_test(who_is_put_off_is_told_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
