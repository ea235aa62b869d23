#include "guest/command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest/fork.h"
#include "guest/relay.h"
#include "guest/tree.h"

/* When pid 1 looks for the first time whether a command runs; then each time twice as long. */
#define START_LOOK_MS 4
#define START_LOOK_MAX_MS 1000
/* Between two KILL passes over a tree that is still dying. */
#define KILL_PASS_MS 10
/* What a shell assumes when the environment has no PATH. */
#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin"

static int64_t after_ms(int64_t ms)
{
	return clock_mono_ns() + ms * NS_PER_MS;
}

/* Nobody reads the words any more. */
static void free_words(struct command *c)
{
	gm_exec_done(&c->x);
	free(c->shell_argv);
	c->shell_argv = NULL;
}

/* No process shares its words or its stack any more. */
static void forget(struct command *c)
{
	void *stack = c->stack;

	free_words(c);
	cleanup_fd(&c->master);
	*c = (struct command){.stack = stack, .master = -1};
}

/* Its last event is out. */
static void said(struct command *c)
{
	c->phase = CP_SAID;
	cleanup_fd(&c->master);
	if (!c->holder && !c->relay)
		forget(c);
}

static void kill_relay(struct command *c)
{
	if (c->relay)
		(void)kill(c->relay, SIGKILL);
}

static const char *env_path(char *const *env)
{
	for (; *env; env++)
		if (str_starts(*env, "PATH="))
			return *env + 5;
	return PATH_DEFAULT;
}

/* A terminal and the process that carries its bytes. 0 and *ret_slave, or negative errno. */
static int open_terminal(struct command *c, const int fds[FRAME_FDS_MAX], int *ret_slave)
{
	struct relay *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->in = r->out = r->master = -1;
	r->newline = true;
	e = relay_open(r, c->x.rows, c->x.cols, ret_slave);
	if (e == 0) {
		pid_t pid;

		c->master = r->master;
		r->in = fds[0];
		r->out = fds[1];
		pid = fork();
		if (pid == 0) {
			fork_close((int[]){r->in, r->out, r->master}, 3);
			relay_run(r);
		}
		e = pid < 0 ? -errno : 0;
		c->relay = pid < 0 ? 0 : pid;
	}
	free(r);
	return e;
}

static const char *start(struct command *c, const int fds[FRAME_FDS_MAX], int *ret_error)
{
	size_t argc = strv_len(c->x.argv);
	_cleanup_fd_ int slave = -1;
	struct hold *h = &c->hold;
	static char sh[] = "sh";
	int r;

	*ret_error = ENOMEM;
	h->x = &c->x;
	h->path = env_path(c->x.env);
	h->tty = c->x.flags & GX_TTY;
	c->shell_argv = h->shell_argv = calloc(argc + 2, sizeof(*h->shell_argv));
	if (!c->shell_argv)
		return "decode";
	h->shell_argv[0] = sh;
	memcpy(h->shell_argv + 2, c->x.argv + 1, argc * sizeof(*h->shell_argv));
	if (!c->stack)
		c->stack = hold_stack();
	if (!c->stack)
		return "fork";
	if (h->tty) {
		r = open_terminal(c, fds, &slave);
		*ret_error = -r;
		if (r < 0)
			return "terminal";
	}
	for (int i = 0; i < 3; i++)
		h->fds[i] = h->tty ? slave : fds[i];
	r = hold_start(h, c->stack, &c->holder);
	*ret_error = -r;
	return r < 0 ? "fork" : NULL;
}

static void look_again(struct command *c)
{
	c->look_ms = c->look_ms ? c->look_ms * 2 : START_LOOK_MS;
	if (c->look_ms > START_LOOK_MAX_MS)
		c->look_ms = START_LOOK_MAX_MS;
	c->due_ns = after_ms(c->look_ms);
}

bool command_start(struct command *c, struct gm_exec *x, const int fds[FRAME_FDS_MAX], int wake,
		   struct outbox *o)
{
	const char *step;
	int error;

	*c = (struct command){.phase = CP_STARTING, .id = x->id, .x = *x, .stack = c->stack};
	*x = (struct gm_exec){0};
	c->master = -1;
	c->hold.wake = wake;
	look_again(c);
	step = start(c, fds, &error);
	if (!step)
		return true;
	outbox_failed(o, c->id, error, step);
	kill_relay(c);
	said(c);
	return false;
}

static void kill_pass(struct command *c)
{
	bool ended = hold_main_ended(&c->hold);
	size_t n = 0;

	/* Without /proc only the command's own group can be named. */
	if (tree_signal(c->holder, NULL, SIGKILL, &n) < 0 && !ended)
		(void)kill(-c->hold.main, SIGKILL);
	if (ended && n > c->leftovers && c->phase != CP_KILL)
		c->leftovers = n;
	c->due_ns = after_ms(KILL_PASS_MS);
}

static void start_killing(struct command *c)
{
	if (c->phase == CP_DRAIN)
		kill_relay(c);
	if (c->phase >= CP_KILL)
		return;
	/* The command may have stopped its holder. */
	(void)kill(c->holder, SIGCONT);
	kill_pass(c);
	c->phase = CP_KILL;
	c->give_up_ns = after_ms(KILL_GRACE_MS);
}

static void deliver(struct command *c, int signo)
{
	if (signo == SIGKILL)
		start_killing(c);
	else if (c->holder && tree_signal(c->holder, NULL, signo, NULL) < 0 &&
		 !hold_main_ended(&c->hold))
		(void)kill(-c->hold.main, signo);
}

void command_signal(struct command *c, uint32_t signo)
{
	c->signals |= UINT64_C(1) << (signo - 1);
	if (c->phase == CP_STARTING && signo == SIGKILL && !c->give_up_ns)
		c->give_up_ns = after_ms(KILL_GRACE_MS);
}

void command_winsize(struct command *c, uint32_t rows, uint32_t cols)
{
	struct winsize w = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};

	if (c->master >= 0 && rows && cols)
		(void)ioctl(c->master, TIOCSWINSZ, &w);
}

bool command_reaped(struct command *c, pid_t pid)
{
	enum hold_state state = hold_state(&c->hold);

	if (pid == c->relay) {
		c->relay = 0;
		/* Killed by the sandbox, or done: the terminal's other side hangs up either way. */
		cleanup_fd(&c->master);
	} else if (pid == c->holder) {
		c->holder = 0;
		if (c->phase < CP_DRAIN && state != HOLD_DONE && state != HOLD_FAILED) {
			c->phase = CP_LOST;
			return true;
		}
	}
	if (c->phase == CP_SAID && !c->holder && !c->relay)
		forget(c);
	return false;
}

static void say_exited(struct command *c, struct outbox *o)
{
	const struct hold *h = &c->hold;
	struct gm_exited x = {.id = c->id,
			      .leftovers = (uint32_t)c->leftovers,
			      .cpu_ns = h->cpu_ns,
			      .maxrss_kib = h->maxrss_kib};

	if (!hold_main_ended(h))
		x.signo = SIGKILL;
	else if (WIFSIGNALED(h->status))
		x.signo = (uint32_t)WTERMSIG(h->status);
	else
		x.code = (uint32_t)WEXITSTATUS(h->status);
	outbox_exited(o, &x);
	said(c);
}

void command_lost_end(struct command *c, size_t swept, bool gone, struct outbox *o)
{
	struct gm_exited x = {.id = c->id, .signo = SIGKILL, .leftovers = (uint32_t)swept};

	if (!gone && !c->started) {
		/* Somebody may still be in the middle of its execve: what it reads is never reused. */
		c->stack = NULL;
		c->x = (struct gm_exec){0};
		c->shell_argv = NULL;
	}
	kill_relay(c);
	/* It may have killed its holder before this process looked, or before the holder had said that it runs. */
	if (!c->started)
		outbox_started(o, c->id, (uint32_t)c->hold.main);
	outbox_exited(o, &x);
	said(c);
}

/* News of the holder. False: the last event is out. */
static bool hear_holder(struct command *c, struct outbox *o)
{
	enum hold_state state = hold_state(&c->hold);

	if (state == HOLD_FAILED) {
		outbox_failed(o, c->id, c->hold.error, c->hold.step);
		kill_relay(c);
		said(c);
		return false;
	}
	if (state != HOLD_STARTING && !c->started) {
		c->started = true;
		free_words(c);
		outbox_started(o, c->id, (uint32_t)c->hold.main);
		c->phase = CP_RUNNING;
	}
	if (state == HOLD_DONE && c->phase < CP_DRAIN)
		c->phase = CP_DRAIN;
	return true;
}

static void deliver_all(struct command *c)
{
	uint64_t set = c->signals;
	int64_t from = clock_mono_ns(), to;

	c->signals = 0;
	for (int sig = 1; set && sig <= 64; sig++)
		if (set & UINT64_C(1) << (sig - 1))
			deliver(c, sig);
	/* A flood of requests may walk trees for half of the time, others have the rest. */
	to = clock_mono_ns();
	c->signals_due_ns = to + (to - from);
}

bool command_step(struct command *c, int64_t now_ns, struct outbox *o)
{
	bool due;

	if (c->phase == CP_FREE || c->phase == CP_LOST || c->phase == CP_SAID || !hear_holder(c, o))
		return false;
	if (c->signals && c->phase != CP_STARTING && now_ns >= c->signals_due_ns)
		deliver_all(c);
	due = now_ns >= c->due_ns;
	switch (c->phase) {
	case CP_STARTING:
		/* Asked to kill what hangs in its execve, or a holder that was stopped. */
		if (c->give_up_ns && now_ns >= c->give_up_ns) {
			(void)tree_signal(c->holder, NULL, SIGKILL, NULL);
			(void)kill(c->holder, SIGKILL);
			c->give_up_ns = INT64_MAX;
		}
		if (due)
			look_again(c);
		break;
	case CP_RUNNING:
		if (!hold_main_ended(&c->hold))
			break;
		c->phase = CP_SETTLE;
		c->due_ns = after_ms(LEFTOVER_SETTLE_MS);
		break;
	case CP_SETTLE:
		if (!due)
			break;
		(void)tree_signal(c->holder, NULL, SIGTERM, &c->leftovers);
		c->phase = CP_TERM;
		c->due_ns = after_ms(LEFTOVER_GRACE_MS);
		break;
	case CP_TERM:
		if (due)
			start_killing(c);
		break;
	case CP_KILL:
		if (!due)
			break;
		if (now_ns < c->give_up_ns) {
			kill_pass(c);
			break;
		}
		(void)kill(c->holder, SIGKILL);
		kill_relay(c);
		say_exited(c, o);
		return true;
	case CP_DRAIN:
		/* It was killed, and nobody reads what its terminal holds still. */
		if (c->relay && c->give_up_ns && now_ns >= c->give_up_ns) {
			kill_relay(c);
			c->give_up_ns = INT64_MAX;
		}
		if (!c->relay)
			say_exited(c, o);
		break;
	default:
		break;
	}
	return false;
}

int64_t command_due(const struct command *c)
{
	int64_t due = INT64_MAX;

	if (c->phase == CP_STARTING)
		return c->give_up_ns && c->give_up_ns < c->due_ns ? c->give_up_ns : c->due_ns;
	if (c->phase == CP_SETTLE || c->phase == CP_TERM || c->phase == CP_KILL)
		due = c->due_ns;
	if (c->phase == CP_DRAIN && c->relay && c->give_up_ns)
		due = c->give_up_ns;
	if (c->phase > CP_DRAIN)
		return due;
	return c->signals && c->signals_due_ns < due ? c->signals_due_ns : due;
}
