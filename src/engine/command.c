#include "engine/command.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "engine/interrupt.h"

#define TICK_NS (NS_PER_S / 4) /* a lost bridge is replaced as soon as that */
#define EVENTS_MAX \
	64 /* taken in one turn: a guest that sends for ever puts off neither time nor signals */
#define LATE_MAX (2u << 20) /* two pipes of the kernel's default maximum, 1 MiB */

struct watch {
	struct sandbox *sb;
	const struct command_opts *o;
	struct command_result *res;
	struct pump pump;
	uint32_t id;
	bool ended;	    /* exit or failure event seen */
	bool more;	    /* events may be left in a buffer that no poll sees */
	bool reason;	    /* res->end is decided: time-out or stop */
	int64_t timeout_at; /* INT64_MAX: none */
	int64_t kill_at;    /* TERM was sent: KILL then */
	int64_t give_up_at; /* KILL was sent: the sandbox is lost then */
	int64_t drain_at;   /* after the end */
	int64_t tick_at;
	uint64_t late; /* bytes read after the end */
};

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int end_tree(struct watch *w, enum command_end why, bool now, struct err *e)
{
	int64_t t = clock_mono_ns();

	w->res->end = why;
	w->reason = true;
	w->timeout_at = INT64_MAX;
	w->kill_at = now ? t : t + KILL_GRACE_MS * NS_PER_MS;
	return now ? 0 : w->sb->ops->signal(w->sb, w->id, SIGTERM, e);
}

static void on_exit_event(struct watch *w, const struct sandbox_event *ev)
{
	struct command_result *r = w->res;

	w->ended = true;
	w->drain_at = clock_mono_ns() + DRAIN_GRACE_MS * NS_PER_MS;
	r->code = ev->code;
	r->signo = ev->signo;
	r->leftovers = ev->leftovers;
	r->cpu_ns = ev->cpu_ns;
	r->maxrss_kib = ev->maxrss_kib;
	r->oom_kills = ev->oom_kills;
	if (!w->reason)
		r->end = ev->signo ? END_SIGNALED : END_EXITED;
	pump_end_input(&w->pump);
}

static int take_events(struct watch *w, struct err *e)
{
	struct sandbox_event ev;

	w->more = false;
	for (int i = 0; !w->ended; i++) {
		int r;

		w->more = i == EVENTS_MAX;
		if (w->more)
			return 0;
		r = w->sb->ops->next_event(w->sb, &ev, e);
		if (r <= 0)
			return r;
		if (ev.type == SE_ENDED) {
			w->res->end = END_LOST;
			w->ended = true;
			w->drain_at = clock_mono_ns() + DRAIN_GRACE_MS * NS_PER_MS;
		} else if (ev.id != w->id) {
			continue;
		} else if (ev.type == SE_FAILED) {
			w->res->end = END_FAILED;
			w->res->sys = ev.sys;
			memcpy(w->res->step, ev.step, sizeof(w->res->step));
			w->ended = true;
			w->drain_at = clock_mono_ns();
		} else if (ev.type == SE_EXITED) {
			on_exit_event(w, &ev);
		}
	}
	return 0;
}

/* What time and signals ask for. */
static int judge(struct watch *w, struct err *e)
{
	int64_t now = clock_mono_ns();
	int r = 0;

	if (w->o->interruptible && !w->ended) {
		if (*interrupt_second() && w->res->end != END_ABANDONED)
			r = end_tree(w, END_ABANDONED, true, e);
		else if (*interrupt_first() && !w->reason)
			r = end_tree(w, END_STOPPED, false, e);
	}
	if (w->o->cancel && *w->o->cancel && !w->ended && w->res->end != END_ABANDONED)
		r = end_tree(w, END_ABANDONED, true, e);
	if (r == 0 && !w->ended && now >= w->timeout_at)
		r = end_tree(w, END_TIMEOUT, false, e);
	if (r == 0 && !w->ended && now >= w->kill_at) {
		w->res->killed = true;
		w->kill_at = INT64_MAX;
		w->give_up_at = now + KILL_GRACE_MS * NS_PER_MS;
		r = w->sb->ops->signal(w->sb, w->id, SIGKILL, e);
	}
	if (r == 0 && !w->ended && now >= w->give_up_at) {
		/* The release of the sandbox ends it for certain; here nobody waits for ever. */
		w->ended = true;
		w->res->deaf = true;
		w->drain_at = now;
	}
	/* Nobody there hears it; what runs there ends by itself, and the work waits. */
	if (r == 0 && !w->ended && w->reason && w->sb->away) {
		w->ended = true;
		w->res->deaf = w->res->away = true;
		w->drain_at = now;
	}
	if (now >= w->tick_at) {
		w->tick_at = now + TICK_NS;
		if (w->o->tick)
			w->o->tick(w->o->tick_arg);
	}
	return r;
}

static void resize(struct watch *w)
{
	struct winsize ws;

	if (w->o->tty && interrupt_winch() && ioctl(w->o->io.in, TIOCGWINSZ, &ws) == 0)
		(void)w->sb->ops->winsize(w->sb, w->id, ws.ws_row, ws.ws_col);
}

/* One that finds no command any more is gone: it was not for us. */
static void pass_signals(struct watch *w)
{
	int signo;

	while (w->o->interruptible && (signo = interrupt_passed()) != 0)
		if (!w->ended)
			(void)w->sb->ops->signal(w->sb, w->id, signo, NULL);
}

static bool finished(struct watch *w)
{
	if (!w->ended)
		return false;
	if (pump_drained(&w->pump))
		return true;
	/* A sink that is slow now has all the time it wants, unless a person is in a hurry. */
	if (pump_busy(&w->pump))
		return w->o->interruptible && *interrupt_second();
	return clock_mono_ns() >= w->drain_at;
}

/*
 * What a pipe still holds when the command has ended is read to its end however slow the sink is;
 * more than a pipe can hold comes from somebody who lives on, and does not prolong the run.
 */
static void prolong(struct watch *w, uint64_t moved)
{
	if (!w->ended || !moved)
		return;
	w->late += moved;
	if (w->late <= LATE_MAX)
		w->drain_at = clock_mono_ns() + DRAIN_GRACE_MS * NS_PER_MS;
}

static uint64_t total(const struct watch *w)
{
	return w->pump.out[0].total + w->pump.out[1].total;
}

static int loop(struct watch *w, struct err *e)
{
	struct pollfd v[PUMP_FDS + 2];
	int r = 0;

	while (r == 0 && !finished(w)) {
		int64_t at = w->tick_at;
		uint64_t before = total(w);
		size_t n, base = 2;
		int ms;

		if (!w->ended)
			at = min64(at, min64(w->timeout_at, min64(w->kill_at, w->give_up_at)));
		else
			at = min64(at, w->drain_at > clock_mono_ns() ? w->drain_at : INT64_MAX);
		ms = clock_poll_ms(at, clock_mono_ns());
		v[0] = (struct pollfd){.fd = interrupt_fd(), .events = POLLIN};
		v[1] = (struct pollfd){.fd = w->ended ? -1 : w->sb->ops->event_fd(w->sb),
				       .events = POLLIN};
		n = pump_poll(&w->pump, v + base, &ms);
		ms = w->more ? 0 : ms;
		if (poll(v, n + base, ms) < 0 && errno != EINTR)
			return err_sys(e, errno, "wait for the command");
		if (v[0].revents)
			interrupt_ack();
		resize(w);
		pass_signals(w);
		/* A terminal's Ctrl-C is a byte for the command, which does not get it now. */
		w->pump.in_break = w->o->tty && w->sb->away;
		pump_run(&w->pump, v + base, n);
		prolong(w, total(w) - before);
		if (v[1].revents || w->more)
			r = take_events(w, e);
		if (r == 0)
			r = judge(w, e);
	}
	return r;
}

static int start(struct watch *w, struct err *e)
{
	int cmd[3], r;
	struct pump_opts io = w->o->io;

	io.tty = w->o->tty;
	r = pump_init(&w->pump, &io, cmd, e);
	if (r < 0)
		return r;
	struct exec_spec x = {
	    .argv = w->o->argv,
	    .env = w->o->env,
	    .cwd = w->o->cwd,
	    .in = cmd[0],
	    .out = cmd[1],
	    .err = w->o->tty ? cmd[1] : cmd[2],
	    .tty = w->o->tty,
	    .rows = w->o->rows,
	    .cols = w->o->cols,
	};
	r = w->sb->ops->exec(w->sb, &x, &w->id, e);
	for (int i = 0; i < 3; i++)
		if (cmd[i] >= 0)
			(void)close(cmd[i]);
	if (r < 0)
		pump_done(&w->pump);
	return r;
}

int command_run(struct sandbox *sb, const struct command_opts *o, struct command_result *ret,
		struct err *e)
{
	struct watch w = {.sb = sb, .o = o, .res = ret};
	int64_t began = clock_mono_ns();
	int r;

	*ret = (struct command_result){.end = END_LOST};
	w.timeout_at = o->timeout_ns ? began + o->timeout_ns : INT64_MAX;
	w.kill_at = w.give_up_at = w.drain_at = INT64_MAX;
	w.tick_at = began + TICK_NS;
	r = start(&w, e);
	if (r < 0)
		return r;
	r = loop(&w, e);
	ret->duration_ns = clock_mono_ns() - began;
	ret->out_bytes = w.pump.out[0].total;
	ret->out_error = w.pump.out[0].sink_error;
	ret->err_error = w.pump.out[1].sink_error;
	ret->err_bytes = w.pump.out[1].total;
	pump_done(&w.pump);
	return r;
}

int command_status(const struct command_result *r)
{
	return r->signo ? 128 + r->signo : r->code;
}
