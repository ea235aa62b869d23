#include "engine/runner_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "engine/interrupt.h"

/* RT-01: everything through the shell; one word is a script, several are a command with arguments. */
static int shell_words(const struct request *q, char ***ret)
{
	const char *sh = q->bash ? "bash" : "sh";
	size_t n = strv_len(q->argv);
	int r = strv_add(ret, sh);

	if (q->interactive)
		return r < 0 ? r : strv_add(ret, "-i");
	if (r == 0)
		r = strv_add(ret, "-c");
	if (n == 1)
		return r < 0 ? r : strv_add(ret, q->argv[0]);
	if (r == 0)
		r = strv_add(ret, "exec \"$@\"");
	if (r == 0)
		r = strv_add(ret, sh);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = strv_add(ret, q->argv[i]);
	return r;
}

/* Whatever the main process made of it: a build may go on without the compiler that was killed. */
static void say_oom(struct runner *r)
{
	unsigned n = r->o->cmd.oom_kills;
	char text[256], size[16];

	if (!n)
		return;
	str_human_size(r->q->memory.v, size, sizeof(size));
	(void)snprintf(
	    text, sizeof(text),
	    "limit memory: the kernel killed %u process%s at %s (set by %s); change it with --memory",
	    n, n == 1 ? "" : "es", r->q->memory.v ? size : "the host's limit",
	    r->q->memory.source[0] ? r->q->memory.source : "default");
	runner_note(r, true, text);
}

static void say_stream(struct runner *r, const char *name, int error)
{
	char text[256];

	if (!error)
		return;
	(void)snprintf(
	    text, sizeof(text),
	    "%s of the command could not be written to its end: %s; the run log has all of it: airlock logs %s",
	    name, strerror(error), r->run.id);
	runner_note(r, true, text);
}

/* "the command was ...": how its end was brought about. */
static const char *ended_how(const struct command_result *c)
{
	return c->away ? "given up: there is no connection, and the guest there ends it by itself"
	       : c->killed ? "ended with KILL"
			   : "ended with TERM";
}

static void say_end(struct runner *r)
{
	const struct command_result *c = &r->o->cmd;
	char t[48], text[512];

	switch (c->end) {
	case END_TIMEOUT:
		clock_human((int64_t)r->q->timeout.v, t, sizeof(t));
		(void)snprintf(
		    text, sizeof(text),
		    "limit time: the command ran longer than %s (set by %s) and was %s; change it with "
		    "--timeout, 0 for none",
		    t, r->q->timeout.source, ended_how(c));
		break;
	case END_STOPPED:
		(void)snprintf(text, sizeof(text), "stopped by signal %d; the command was %s",
			       interrupt_signo(), ended_how(c));
		break;
	case END_ABANDONED:
		(void)snprintf(text, sizeof(text),
			       "stopped at once by a second signal; the command was %s",
			       c->away ? ended_how(c) : "killed");
		break;
	case END_LOST:
		(void)snprintf(text, sizeof(text),
			       "the sandbox ended while the command was running");
		break;
	case END_SIGNALED:
		(void)snprintf(text, sizeof(text), "the command was ended by signal %d (%s)%s",
			       c->signo, strsignal(c->signo),
			       c->signo == SIGKILL && r->q->memory.v && !c->oom_kills
				   ? "; the memory limit may have done that"
				   : "");
		break;
	default:
		if (!c->leftovers)
			return;
		(void)snprintf(text, sizeof(text),
			       "%u background process%s that the command left behind %s ended",
			       c->leftovers, c->leftovers == 1 ? "" : "es",
			       c->leftovers == 1 ? "was" : "were");
	}
	/* a lost sandbox is the run's error, which says it with the cause: for the log alone here */
	runner_note(r, c->end != END_LOST, text);
}

/*
 * Why the directory in which the user stands may not be there inside, and what helps. The command is not started at the
 * workspace's top instead: what it does to the files around it would be done to others.
 */
static const char *no_start_hint(const struct runner *r, int sys)
{
	if (sys != ENOENT)
		return " (start airlock from another directory of the workspace)";
	if (ops(r)->in_place)
		return " (start airlock from a directory that is there, the workspace's top for one)";
	if (r->attached)
		return " (the sandbox has no such directory: it was made here since, or was ignored, or a command inside "
		       "removed it; start airlock from one that is there, the workspace's top for one)";
	return " (a directory that is ignored is not sent; use --include, or start airlock from another one)";
}

static int command_failed(struct runner *r, struct err *e)
{
	const struct command_result *c = &r->o->cmd;

	if (c->end == END_LOST)
		return err_set(e, ERR_UNAVAILABLE,
			       "%s%sthe sandbox of run %s ended while the command was running",
			       r->sb->why, r->sb->why[0] ? ": " : "", r->run.id);
	if (c->end != END_FAILED)
		return 0;
	if (strcmp(c->step, "chdir") == 0)
		return err_set(e, ERR_NOT_FOUND, "the command cannot start in %s: %s%s", r->cwd,
			       strerror(c->sys), no_start_hint(r, c->sys));
	return err_set(e, ERR_UNAVAILABLE, "the command could not be started (%s: %s)", c->step,
		       strerror(c->sys));
}

static void tick(void *arg)
{
	runner_bridge_watch(arg);
	runner_net_watch(arg);
	runner_renew(arg);
}

int runner_execute(struct runner *r, struct err *e)
{
	_cleanup_strv_ char **argv = NULL;
	struct winsize ws = {.ws_row = 24, .ws_col = 80};
	struct command_opts o = {
	    .env = r->env,
	    .cwd = r->cwd,
	    .io = {.log = &r->log, .in = r->ui->in, .out = r->ui->out, .err = r->ui->err},
	    .tty = r->q->tty,
	    .timeout_ns = (int64_t)r->q->timeout.v,
	    .interruptible = true,
	    .tick = tick,
	    .tick_arg = r,
	};
	int k;

	if (shell_words(r->q, &argv) < 0)
		return err_set(e, ERR_NOMEM, "command: out of memory");
	o.argv = argv;
	if (o.tty)
		(void)ioctl(r->ui->in, TIOCGWINSZ, &ws);
	o.rows = ws.ws_row;
	o.cols = ws.ws_col;
	if (o.tty && r->ui->terminal)
		r->ui->terminal(r->ui->arg, true);
	r->o->command_ran = true;
	k = command_run(r->sb, &o, &r->o->cmd, e);
	if (o.tty && r->ui->terminal)
		r->ui->terminal(r->ui->arg, false);
	if (k == 0) {
		say_stream(r, "stdout", r->o->cmd.out_error);
		say_stream(r, "stderr", r->o->cmd.err_error);
		say_oom(r);
		say_end(r);
		k = command_failed(r, e);
	}
	return k;
}
