/*
 * Sessions whose login shell does not come to our script: start files that wait for something, a home that hangs.
 *
 * Without a limit such a command is one that says nothing, for ever, and results are a stream that stands still, which airlock-unpack gives up
 * without knowing why. So the whole sandbox ends here, by name, before that. A shell that goes on later finds that it is too late
 * (plainscript.c): what was given up is not run behind the back of who gave it up.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "provider/ssh/plain_internal.h"

#define MORE_MS 2000 /* once: the clock ran while all of this machine was stopped, say */

static bool waits(struct plain *p, struct plain_command *c)
{
	c->begun |= atomic_load(&p->seen[plain_slot(c->number)]);
	return !c->begun && !c->over;
}

/* To the first that is due. */
static void wind(struct plain *p)
{
	struct itimerspec t = {0};
	int64_t first = INT64_MAX;

	for (struct plain_command *c = p->commands; c; c = c->next)
		if (waits(p, c) && c->due_ns < first)
			first = c->due_ns;
	if (first != INT64_MAX)
		t.it_value =
		    (struct timespec){.tv_sec = first / NS_PER_S, .tv_nsec = first % NS_PER_S};
	(void)timerfd_settime(p->clock, TFD_TIMER_ABSTIME, &t, NULL);
}

int plain_late_init(struct plain *p)
{
	struct epoll_event ev = {.events = EPOLLIN};

	p->clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return p->clock < 0 || epoll_ctl(p->epfd, EPOLL_CTL_ADD, p->clock, &ev) < 0 ? -errno : 0;
}

/* A machine whose login is slow has as much more. */
static int64_t limit_ns(const struct plain *p)
{
	return REMOTE_BEGIN_MS * NS_PER_MS + 2 * p->login_ns;
}

void plain_late_watch(struct plain *p, struct plain_command *c)
{
	c->due_ns = clock_mono_ns() + limit_ns(p);
	wind(p);
}

void plain_late_keep(struct plain *p)
{
	for (struct plain_command *c = p->commands; c; c = c->next)
		(void)waits(p, c);
}

static void give_up(struct plain *p, struct plain_command *c)
{
	char line[32];

	(void)snprintf(line, sizeof(line), "l %u.\n", c->number);
	plain_ask(p, line);
	c->over = true;
	/* Who reads what it was to print learns now that nothing comes. */
	plain_end_relay(c);
	(void)p->local->ops->signal(p->local, c->id, SIGKILL, NULL);
	(void)snprintf(
	    p->sb.why, sizeof(p->sb.why),
	    "ssh %.200s: the login shell there did not start our script within %d s, although it had before: its start files wait for something, or "
	    "that machine hangs",
	    p->target.label, (int)(limit_ns(p) / NS_PER_S));
}

bool plain_late(struct plain *p)
{
	uint64_t times;

	if (read(p->clock, &times, sizeof(times)) != (ssize_t)sizeof(times))
		return false;
	for (struct plain_command *c = p->commands; c; c = c->next) {
		if (!waits(p, c) || clock_mono_ns() < c->due_ns)
			continue;
		if (c->warned) {
			give_up(p, c);
			return true;
		}
		c->warned = true;
		c->due_ns = clock_mono_ns() + MORE_MS * NS_PER_MS;
	}
	wind(p);
	return false;
}
