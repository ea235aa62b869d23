/* engine/command.h: events that never cease put off no deadline (J11, S1-04). */
#include "engine/command.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

#include <cmocka.h>

struct fake {
	struct sandbox sb;
	int fd; /* always readable */
	int signo;
};

static struct fake *fake_of(struct sandbox *sb)
{
	return (struct fake *)sb;
}

static int event_fd(struct sandbox *sb)
{
	return fake_of(sb)->fd;
}

static int next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e)
{
	int signo = fake_of(sb)->signo;

	(void)e;
	*ret = (struct sandbox_event){.type = SE_STARTED};
	if (signo)
		*ret = (struct sandbox_event){.type = SE_EXITED, .id = 1, .signo = signo};
	return 1;
}

static int start(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	(void)sb;
	(void)x;
	(void)e;
	*ret_id = 1;
	return 0;
}

static int end(struct sandbox *sb, uint32_t id, int signo, struct err *e)
{
	(void)id;
	(void)e;
	fake_of(sb)->signo = signo;
	return 0;
}

static void test_a_time_out_comes_through_a_flood_of_events(void **state)
{
	static const struct provider_ops ops = {.name = "fake",
						.event_fd = event_fd,
						.next_event = next_event,
						.exec = start,
						.signal = end};
	struct fake f = {.sb = {.ops = &ops}, .fd = eventfd(1, EFD_CLOEXEC)};
	const struct command_opts o = {.io = {.in = -1, .out = -1, .err = -1},
				       .timeout_ns = NS_PER_MS};
	struct command_result r;

	(void)state;
	assert_int_equal(command_run(&f.sb, &o, &r, NULL), 0);
	assert_int_equal(r.end, END_TIMEOUT);
	assert_int_equal(r.signo, SIGTERM);
	(void)close(f.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_time_out_comes_through_a_flood_of_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
