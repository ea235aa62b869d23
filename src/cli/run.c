/* run, exec, shell: the verbs that execute commands. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/daemonrun.h"
#include "cli/runopts.h"
#include "cli/summary.h"
#include "cli/ui.h"
#include "engine/changeset.h"
#include "engine/interrupt.h"
#include "engine/record.h"
#include "engine/runner.h"
#include "engine/sweep.h"

static const struct opt *const run_tables[] = {opts_run, opts_exec, NULL};
static const struct opt *const exec_tables[] = {opts_exec, NULL};

/* Where --json wants the record: known, and open, before anything is done. */
struct recording {
	bool on;
	char *name; /* owned; NULL: stdout */
	int fd;	    /* owned */
};

static void recording_done(struct recording *rec)
{
	cleanup_fd(&rec->fd);
	free(rec->name);
}
#define _cleanup_recording_ __attribute__((cleanup(recording_done)))

/* What is there already stays until there is something to put in its place. */
static int recording_open(struct recording *rec, struct runopts *o, struct err *e)
{
	rec->on = o->json;
	rec->name = TAKE_PTR(o->json_file);
	if (!rec->name)
		return 0;
	rec->fd = open(rec->name, O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
	if (rec->fd >= 0)
		return 0;
	rec->on = false;
	return err_set(e, ERR_USAGE, "--json=%s: cannot be written: %s (nothing was started)",
		       rec->name, strerror(errno));
}

/* text NULL: it could not be made. */
static int recording_put(struct recording *rec, const char *text)
{
	size_t left = text ? strlen(text) : 0;

	if (!text || !rec->on)
		return rec->on ? -ENOMEM : 0;
	if (!rec->name)
		return fputs(text, stdout) < 0 || fflush(stdout) < 0 ? -errno : 0;
	/* A pipe or a device cannot be cut, and need not be. */
	if (ftruncate(rec->fd, 0) < 0 && errno != EINVAL)
		return -errno;
	for (const char *p = text; left;) {
		ssize_t n = write(rec->fd, p, left);

		if (n < 0 && errno != EINTR)
			return -errno;
		p += n > 0 ? n : 0;
		left -= (size_t)(n > 0 ? n : 0);
	}
	return 0;
}

static int recording_write(struct recording *rec, const struct request *q,
			   const struct run_outcome *out)
{
	_cleanup_free_ char *text = rec->on ? record_text(q, out) : NULL;

	return recording_put(rec, text);
}

/* A failure before there is a run: said, and with --json recorded. Returns the exit status. */
static int fail_early(struct recording *rec, const struct request *q, const struct err *e)
{
	struct run_outcome out = {.exit_status = cli_fail(e),
				  .state = RUN_FAILED,
				  .lease_state = LEASE_RELEASED,
				  .started_ns = clock_real_ns(),
				  .error_phase = "prepare",
				  .err = *e};
	int r;

	out.ended_ns = out.started_ns;
	r = recording_write(rec, q, &out);
	if (r < 0)
		cli_say("the record could not be written to %s: %s",
			rec->name ? rec->name : "stdout", strerror(-r));
	return out.exit_status;
}

static int report(struct runopts *o, struct recording *rec, struct run_outcome *out)
{
	int r = recording_write(rec, &o->req, out), status = out->exit_status;

	if (out->err.code != ERR_NONE)
		cli_say("%s%s%s", out->error_phase, out->error_phase[0] ? ": " : "", out->err.text);
	if (!o->quiet)
		summary_print(&o->req, out);
	else
		summary_losses(&o->req, out);
	if (r < 0) {
		cli_say("the record could not be written to %s: %s",
			rec->name ? rec->name : "stdout", strerror(-r));
		status = EXIT_AIRLOCK;
	}
	run_outcome_done(out);
	return status;
}

/* Open descriptors 0..2, so that no file of ours gets such a number. */
static void fill_stdio(bool *stdin_closed)
{
	*stdin_closed = fcntl(0, F_GETFD) < 0;
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

/* sweep messages are for a person; a failed sweep does not stop a run. */
static void sweep_first(struct state *st, const struct runopts *o, struct ui *ui)
{
	struct err e = ERR_INIT;

	if (sweep_run(st, &ui->run, &e) < 0 && !o->quiet)
		cli_say("left-overs of earlier runs were not dealt with: %s", e.text);
}

/* 1: the daemon has run it, *status is the command's; 0: it is run here. */
static int by_daemon(struct state *st, struct runopts *o, struct recording *rec, int *status,
		     struct err *e)
{
	_cleanup_free_ char *record = NULL;
	int r = daemonrun(st, o, status, &record, e), k;

	if (r <= 0 || !rec->on)
		return r;
	k = recording_put(rec, record);
	if (k < 0) {
		cli_say("the record could not be written to %s: %s",
			rec->name ? rec->name : "stdout", strerror(-k));
		*status = EXIT_AIRLOCK;
	}
	return r;
}

int cmd_run(int argc, char **argv)
{
	_cleanup_runopts_ struct runopts o = {0};
	_cleanup_state_ struct state st = {0};
	_cleanup_recording_ struct recording rec = {.fd = -1};
	struct run_outcome out;
	struct err e = ERR_INIT;
	struct ui ui;
	bool no_stdin;
	int r, k, status;

	fill_stdio(&no_stdin);
	r = runopts_parse(&o, NULL, run_tables, "run", argc - 1, argv + 1, &e);
	if (r == 0 && o.help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	if (r == 0 && !o.req.argv)
		r = err_set(&e, ERR_USAGE, "run needs a command: airlock run [options] -- CMD ...");
	k = recording_open(&rec, &o, r == 0 ? &e : NULL);
	if (r == 0)
		r = k;
	if (r == 0)
		r = interrupt_setup(&e);
	if (r == 0)
		r = state_open(&st, &e);
	if (r == 0 && o.env_name)
		r = by_daemon(&st, &o, &rec, &status, &e);
	if (r > 0)
		return status;
	if (r == 0)
		r = runopts_parse(&o, &st, run_tables, "run", argc - 1, argv + 1, &e);
	/* A named environment may ask for one too. */
	if (r == 0 && !rec.on)
		r = recording_open(&rec, &o, &e);
	if (r < 0)
		return fail_early(&rec, &o.req, &e);
	for (size_t i = 0; !o.quiet && i < strv_len(o.grants); i++)
		cli_say("agent: %s", o.grants[i]);
	ui_init(&ui, o.quiet, rec.on && !rec.name);
	if (no_stdin)
		ui.run.in = -1;
	sweep_first(&st, &o, &ui);
	runner_run(&st, &o.req, &ui.run, &out);
	ui_done(&ui);
	status = report(&o, &rec, &out);
	changeset_expire(&st);
	return status;
}

/* The kept lease of a run; names what else it is. Any number of commands may use it at once. */
static int find_kept(struct state *st, const char *word, struct lease_row *l, struct err *e)
{
	struct run_row run = {0};
	char id[sizeof(run.id)];
	int r = run_find(st->store, word, &run, e);

	if (r == 0)
		r = lease_get(st->store, run.lease_id, l, e);
	(void)snprintf(id, sizeof(id), "%s", run.id);
	run_row_done(&run);
	if (r < 0)
		return r;
	if (l->state == LEASE_RECOVERABLE)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the sandbox of run %s is not running any more; its work is kept: airlock recover %s",
		    id, id);
	if (l->state == LEASE_ACTIVE || l->state == LEASE_ACQUIRING)
		return err_set(
		    e, ERR_CONFLICT,
		    l->state == LEASE_ACTIVE
			? "run %s is not kept, or not yet: process %d is using it (see 'airlock run "
			  "--keep')"
			: "the sandbox of run %s is being made by process %d: try again",
		    id, (int)l->owner.pid);
	if (l->state != LEASE_KEPT)
		return err_set(e, ERR_NOT_FOUND,
			       "run %s has no kept sandbox (it is %s): use 'airlock run --keep'",
			       id, lease_state_name(l->state));
	return 0;
}

/* The request of a command in an existing lease: place and limits are the lease's. */
static int adopt_lease(struct request *q, const struct lease_row *l, struct err *e)
{
	struct lease_spec s;
	int r;

	q->provider = provider_find(l->provider);
	if (!q->provider)
		return err_set(e, ERR_UNAVAILABLE, "this build has no provider %s", l->provider);
	(void)snprintf(q->env_name, sizeof(q->env_name), "%s", l->env);
	(void)snprintf(q->workspace, sizeof(q->workspace), "%s", l->workspace);
	(void)snprintf(q->workspace_why, sizeof(q->workspace_why), "the workspace of lease %s",
		       l->id);
	runopts_here(q);
	r = leasespec_get(l->spec, &s, e);
	if (r < 0)
		return r;
	q->net = s.net;
	(void)snprintf(q->net_source, sizeof(q->net_source), "lease %s", l->id);
	q->net_allow = TAKE_PTR(s.net_allow);
	q->net_pins = TAKE_PTR(s.net_pins);
	q->memory.v = s.limits.memory_bytes;
	q->pids.v = s.limits.pids;
	q->cpu.v = s.limits.cpu_milli;
	/* The binds move over: PATH is built from them. */
	for (size_t i = 0; i < s.binds_len; i++)
		q->binds[i] = s.binds[i];
	q->binds_len = s.binds_len;
	s.binds_len = 0;
	q->keep = true;
	leasespec_done(&s);
	return 0;
}

static int in_lease(struct state *st, const char *word, struct runopts *o, struct recording *rec,
		    bool no_stdin)
{
	struct lease_row l = {0};
	struct run_outcome out;
	struct err e = ERR_INIT;
	struct ui ui;
	int r = find_kept(st, word, &l, &e);

	if (r == 0) {
		r = adopt_lease(&o->req, &l, &e);
		/* Judged by the rules of the lease's provider; a shell's were read with its options. */
		if (r == 0 && !o->req.vars)
			r = runopts_vars(o, &e);
	}
	if (r < 0) {
		lease_row_done(&l);
		return fail_early(rec, &o->req, &e);
	}
	ui_init(&ui, o->quiet, rec->on && !rec->name);
	if (no_stdin)
		ui.run.in = -1;
	runner_exec(st, &l, &o->req, &ui.run, &out);
	ui_done(&ui);
	lease_row_done(&l);
	return report(o, rec, &out);
}

int cmd_exec(int argc, char **argv)
{
	_cleanup_runopts_ struct runopts o = {0};
	_cleanup_state_ struct state st = {0};
	_cleanup_free_ char *word = NULL;
	_cleanup_recording_ struct recording rec = {.fd = -1};
	struct err e = ERR_INIT;
	bool no_stdin;
	size_t n;
	int r, k;

	fill_stdio(&no_stdin);
	/* RUN comes first or after the options; what follows it (and "--") is the command. */
	r = runopts_parse(&o, NULL, exec_tables, "exec", argc - 1, argv + 1, &e);
	if (r == 0 && o.help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	n = strv_len(o.req.argv);
	if (r == 0 && n > 1 && strcmp(o.req.argv[1], "--") == 0) {
		free(o.req.argv[1]);
		memmove(o.req.argv + 1, o.req.argv + 2, (n - 1) * sizeof(char *));
		n--;
	}
	if (r == 0 && n < 2)
		r = err_set(
		    &e, ERR_USAGE,
		    "exec needs a run and a command: airlock exec [options] RUN -- CMD ...");
	if (r == 0) {
		word = o.req.argv[0];
		memmove(o.req.argv, o.req.argv + 1, n * sizeof(char *));
	}
	k = recording_open(&rec, &o, r == 0 ? &e : NULL);
	if (r == 0)
		r = k;
	if (r == 0)
		r = interrupt_setup(&e);
	if (r == 0)
		r = state_open(&st, &e);
	if (r < 0)
		return fail_early(&rec, &o.req, &e);
	return in_lease(&st, word, &o, &rec, no_stdin);
}

int cmd_shell(int argc, char **argv)
{
	_cleanup_runopts_ struct runopts o = {0};
	_cleanup_state_ struct state st = {0};
	_cleanup_free_ char *word = NULL;
	_cleanup_recording_ struct recording rec = {.fd = -1};
	struct run_outcome out;
	struct err e = ERR_INIT;
	struct ui ui;
	bool no_stdin;
	int r, k;

	fill_stdio(&no_stdin);
	r = interrupt_setup(&e);
	if (r == 0)
		r = state_open(&st, &e);
	if (r == 0)
		r = runopts_parse(&o, &st, run_tables, "shell", argc - 1, argv + 1, &e);
	if (r == 0 && o.help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	if (r == 0 && strv_len(o.req.argv) > 1)
		r = err_set(&e, ERR_USAGE,
			    "shell takes at most one run: airlock shell [options] [RUN]");
	k = recording_open(&rec, &o, r == 0 ? &e : NULL);
	if (r == 0)
		r = k;
	if (r < 0)
		return fail_early(&rec, &o.req, &e);
	if (o.req.argv)
		word = TAKE_PTR(o.req.argv[0]);
	strv_free(TAKE_PTR(o.req.argv));
	o.req.interactive = true;
	o.req.tty = true;
	o.req.keep = true;
	if (word)
		return in_lease(&st, word, &o, &rec, no_stdin);
	ui_init(&ui, o.quiet, rec.on && !rec.name);
	if (no_stdin)
		ui.run.in = -1;
	sweep_first(&st, &o, &ui);
	runner_run(&st, &o.req, &ui.run, &out);
	ui_done(&ui);
	return report(&o, &rec, &out);
}
