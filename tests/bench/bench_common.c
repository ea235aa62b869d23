#include "bench_common.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define W(s) ((char *)(uintptr_t)(s))

char *bench_true[] = {W("sh"), W("-c"), W("true"), NULL};

void bench_die(const char *what, const struct err *e)
{
	(void)fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		      e ? e->text : strerror(errno));
	exit(1);
}

int bench_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

void bench_run_true(struct sandbox *sb, const char *cwd, char *const *env, int null)
{
	const struct exec_spec x = {
	    .argv = bench_true, .env = env, .cwd = cwd, .in = null, .out = null, .err = null};
	struct sandbox_event ev = {0};
	struct err e = ERR_INIT;
	uint32_t id;

	if (sb->ops->exec(sb, &x, &id, &e) < 0)
		bench_die("exec", &e);
	for (;;) {
		struct pollfd p = {.fd = sb->ops->event_fd(sb), .events = POLLIN};
		int r = sb->ops->next_event(sb, &ev, &e);

		if (r < 0)
			bench_die("event", &e);
		if (r == 0)
			(void)poll(&p, 1, -1);
		else if (ev.type == SE_EXITED && ev.code == 0 && ev.signo == 0)
			return;
		else if (ev.type != SE_STARTED)
			bench_die("the command failed", NULL);
	}
}
