#include "engine/runner.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/history.h"
#include "engine/interrupt.h"
#include "engine/probe.h"
#include "engine/record.h"
#include "engine/runenv.h"
#include "engine/sweep.h"

struct runner {
	struct state *st;
	const struct request *q;
	const struct run_ui *ui;
	struct run_outcome *o;
	struct lease_row lease;
	struct lease_spec spec;
	struct run_row run;
	struct runlog log;
	struct sandbox *sb;
	char *lease_dir, *cwd;
	char **env;
	int64_t phase_began, renewed;
	bool rows;     /* lease and run are in the database */
	bool attached; /* the lease was there before this run */
	bool lost;     /* the kept sandbox is not there any more */
};

static const struct provider_ops *ops(const struct runner *r)
{
	return r->q->provider;
}

static void note(struct runner *r, bool warn, const char *text)
{
	runlog_note(&r->log, clock_real_ns(), text);
	if (warn && r->ui->note)
		r->ui->note(r->ui->arg, warn, text);
}

static int phase_begin(struct runner *r, const char *name, bool may_stop, struct err *e)
{
	struct phase_row *p = &r->o->phases[r->o->phases_len];

	if (may_stop && *interrupt_first()) {
		(void)snprintf(r->o->error_phase, sizeof(r->o->error_phase), "%s", name);
		return err_set(e, ERR_CANCELLED,
			       "stopped before phase %s; nothing was started after that", name);
	}
	*p = (struct phase_row){.seq = (int)r->o->phases_len, .started_ns = clock_real_ns()};
	(void)snprintf(p->name, sizeof(p->name), "%s", name);
	(void)snprintf(r->run.phase, sizeof(r->run.phase), "%s", name);
	r->phase_began = clock_mono_ns();
	return r->rows ? run_set_phase(r->st->store, r->run.id, name, e) : 0;
}

static int phase_end(struct runner *r, int result)
{
	struct phase_row *p = &r->o->phases[r->o->phases_len++];

	p->duration_ns = clock_mono_ns() - r->phase_began;
	(void)snprintf(p->outcome, sizeof(p->outcome), "%s",
		       result >= 0 ? "ok" : (result == -ECANCELED ? "cancelled" : "failed"));
	if (result < 0)
		(void)snprintf(r->o->error_phase, sizeof(r->o->error_phase), "%s", p->name);
	return result;
}

static int save_lease(struct runner *r, struct err *e)
{
	free(r->lease.spec);
	r->lease.spec = NULL;
	int k = leasespec_put(&r->spec, &r->lease.spec, e);

	return k < 0 ? k : lease_save(r->st->store, &r->lease, e);
}

static char *command_json(char *const *argv)
{
	json_t *a = json_array();
	char *text;

	for (size_t i = 0; argv && argv[i]; i++) {
		struct buf b = BUF_INIT((size_t)16 << 20);

		/* Words are bytes; the row wants UTF-8, so odd bytes are shown as \xNN. */
		(void)str_printable(&b, argv[i], strlen(argv[i]));
		(void)json_array_append_new(a, json_string(buf_text(&b)));
		buf_done(&b);
	}
	text = json_dumps(a, JSON_COMPACT);
	json_decref(a);
	return text;
}

/* Lease (unless there is one) and run appear together, before anything exists that they speak of. */
static int add_rows(struct runner *r, struct err *e)
{
	int k = id_new(r->run.id);

	if (k < 0)
		return err_sys(e, -k, "make a run id");
	if (!r->attached) {
		k = id_new(r->lease.id);
		if (k < 0)
			return err_sys(e, -k, "make a lease id");
		(void)snprintf(r->lease.provider, sizeof(r->lease.provider), "%s", ops(r)->name);
		(void)snprintf(r->lease.env, sizeof(r->lease.env), "%s", r->q->env_name);
		(void)snprintf(r->lease.workspace, sizeof(r->lease.workspace), "%s",
			       r->q->workspace);
		r->lease.state = LEASE_ACQUIRING;
		r->lease.owner = r->st->self;
		r->lease.expires_ns = clock_real_ns() + LEASE_EXPIRY_NS;
		k = leasespec_put(&r->spec, &r->lease.spec, e);
	}
	memcpy(r->run.lease_id, r->lease.id, sizeof(r->run.lease_id));
	memcpy(r->run.workspace, r->lease.workspace, sizeof(r->run.workspace));
	r->run.command = command_json(r->q->argv);
	r->run.state = RUN_RUNNING;
	r->run.owner = r->st->self;
	r->run.started_ns = r->o->started_ns;
	if (k == 0 && !r->run.command)
		k = err_set(e, ERR_NOMEM, "run: out of memory");
	if (k == 0)
		k = db_begin(r->st->store, e);
	if (k < 0)
		return k;
	if (!r->attached)
		k = lease_add(r->st->store, &r->lease, e);
	if (k == 0)
		k = run_add(r->st->store, &r->run, e);
	k = db_end(r->st->store, k, e);
	r->rows = k == 0;
	return k;
}

static void log_header(struct runner *r)
{
	_cleanup_strv_ char **limits = NULL;
	struct buf b = BUF_INIT(65536);

	(void)buf_putf(&b, "run %s, lease %s, environment %s (provider %s)", r->run.id, r->lease.id,
		       r->q->env_name, ops(r)->name);
	note(r, false, buf_text(&b));
	buf_reset(&b);
	(void)buf_puts(&b, "workspace ");
	(void)str_printable(&b, r->run.workspace, strlen(r->run.workspace));
	(void)buf_putf(&b, " (%s)", r->q->workspace_why);
	note(r, false, buf_text(&b));
	buf_reset(&b);
	(void)buf_putf(&b, "command %s", r->run.command);
	note(r, false, buf_text(&b));
	buf_done(&b);
	if (request_limits(r->q, &limits) == 0)
		for (size_t i = 0; i < strv_len(limits); i++)
			note(r, false, limits[i]);
}

static int prepare(struct runner *r, struct err *e)
{
	int k = phase_begin(r, "resolve", true, e);

	if (k == 0 && !r->attached)
		k = leasespec_from_request(&r->spec, r->q, e);
	if (k == 0)
		k = add_rows(r, e);
	if (k == 0)
		k = state_mkdir(r->st, "runs", r->run.id, e);
	if (k == 0 && !r->attached)
		k = state_mkdir(r->st, "leases", r->lease.id, e);
	if (k < 0)
		return k;
	memcpy(r->o->id, r->run.id, sizeof(r->o->id));
	memcpy(r->o->lease_id, r->lease.id, sizeof(r->o->lease_id));
	r->o->run_dir = state_path(r->st, "runs", r->run.id, NULL);
	r->o->log_path = state_path(r->st, "runs", r->run.id, "log");
	r->lease_dir = state_path(r->st, "leases", r->lease.id, NULL);
	if (!r->o->run_dir || !r->o->log_path || !r->lease_dir)
		return err_set(e, ERR_NOMEM, "run: out of memory");
	/*
	 * The sandbox's user must walk through it to its storage. Nobody else can: the state directory above is
	 * 0700.
	 */
	if (!r->attached && chmod(r->lease_dir, 0711) < 0)
		return err_sys(e, errno, "set the mode of %s", r->lease_dir);
	k = runlog_create(&r->log, r->o->log_path, r->q->log_limit.v, e);
	if (k < 0)
		return k;
	log_header(r);
	if (ops(r)->in_place) {
		r->cwd = r->q->subdir[0] ? path_join(r->lease.workspace, r->q->subdir)
					 : strdup(r->lease.workspace);
	} else {
		r->cwd = r->q->subdir[0] ? path_join(INSIDE_WORKSPACE, r->q->subdir)
					 : strdup(INSIDE_WORKSPACE);
	}
	if (!r->cwd)
		return err_set(e, ERR_NOMEM, "run: out of memory");
	return runenv_build(r->q, r->run.id, &r->env, e);
}

static int sync_in_phase(struct runner *r, struct err *e)
{
	int k;

	if (ops(r)->in_place || r->attached)
		return 0;
	k = phase_begin(r, "sync_in", true, e);
	if (k < 0)
		return k;
	k = unpack_recover(r->lease.workspace, e);
	if (k > 0)
		note(r, true,
		     "a publish into this workspace had been cut short: it was finished or undone");
	if (k >= 0)
		k = transfer_in(r->st, r->q, &r->spec, r->ui, &r->o->xfer, e);
	/* Before anything can be written inside: from then on the base must stay for 'airlock recover'. */
	if (k == 0)
		k = sync_pin(r->spec.manifest, r->lease.id, e);
	if (k == 0)
		k = save_lease(r, e);
	return phase_end(r, k);
}

static int start_phase(struct runner *r, struct err *e)
{
	struct sandbox_spec s;
	int k = phase_begin(r, "start", true, e);

	if (k < 0)
		return k;
	leasespec_sandbox(&r->spec, &r->lease, r->lease_dir, &s);
	k = r->attached ? ops(r)->attach(&s, &r->sb, e) : ops(r)->acquire(&s, &r->sb, e);
	r->lost = r->attached && k < 0;
	if (k < 0)
		return phase_end(r, k);
	memcpy(r->o->isolation, r->sb->isolation, sizeof(r->o->isolation));
	r->o->isolation_len = r->sb->isolation_len;
	r->lease.state = LEASE_ACTIVE;
	r->lease.monitor = r->st->self; /* the boot id */
	r->lease.monitor.pid = r->sb->monitor_pid;
	r->lease.monitor.start = r->sb->monitor_start;
	/* From here on there may be work inside. */
	r->spec.executed = true;
	k = save_lease(r, e);
	return phase_end(r, k);
}

static int probe_phase(struct runner *r, struct err *e)
{
	struct probe_ctx c = {r->sb, r->q, r->env, r->cwd, &r->log, r->ui};
	bool missing = false;
	struct err pe = ERR_INIT;
	int k;

	if (!r->q->clis && !r->q->install)
		return 0;
	k = phase_begin(r, "probe", true, e);
	if (k < 0)
		return k;
	k = probe_run(&c, &missing, &pe);
	if (k < 0 && missing && r->q->install) {
		(void)phase_end(r, 0);
		k = phase_begin(r, "install", true, e);
		if (k < 0)
			return k;
		note(r, true, "running the install command, once");
		k = probe_install(&c, &pe);
		if (k == 0)
			k = probe_run(&c, &missing, &pe);
	}
	if (k < 0 && e)
		*e = pe;
	return phase_end(r, k);
}

static void renew(void *arg)
{
	struct runner *r = arg;
	int64_t now = clock_mono_ns();

	if (now - r->renewed < LEASE_RENEW_NS)
		return;
	r->renewed = now;
	r->lease.expires_ns = clock_real_ns() + LEASE_EXPIRY_NS;
	(void)lease_save(r->st->store, &r->lease, NULL);
}

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
	note(r, true, text);
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
	note(r, true, text);
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
		    "limit time: the command ran longer than %s (set by %s) and was ended with %s; change it with "
		    "--timeout, 0 for none",
		    t, r->q->timeout.source, c->killed ? "KILL" : "TERM");
		break;
	case END_STOPPED:
		(void)snprintf(text, sizeof(text),
			       "stopped by signal %d; the command's processes were ended with %s",
			       interrupt_signo(), c->killed ? "KILL" : "TERM");
		break;
	case END_ABANDONED:
		(void)snprintf(
		    text, sizeof(text),
		    "stopped at once by a second signal; the command's processes were killed");
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
	note(r, true, text);
}

static int command_failed(struct runner *r, struct err *e)
{
	const struct command_result *c = &r->o->cmd;

	if (c->end == END_LOST)
		return err_set(e, ERR_UNAVAILABLE,
			       "the sandbox of run %s ended while the command was running",
			       r->run.id);
	if (c->end != END_FAILED)
		return 0;
	if (strcmp(c->step, "chdir") == 0)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the command cannot start in %s: %s (a directory that is ignored is not sent; use --include, or "
		    "start airlock from another one)",
		    r->cwd, strerror(c->sys));
	return err_set(e, ERR_UNAVAILABLE, "the command could not be started (%s: %s)", c->step,
		       strerror(c->sys));
}

static int execute_phase(struct runner *r, struct err *e)
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
	    .tick = renew,
	    .tick_arg = r,
	};
	int k = phase_begin(r, "execute", true, e);

	if (k < 0)
		return k;
	if (shell_words(r->q, &argv) < 0)
		return phase_end(r, err_set(e, ERR_NOMEM, "command: out of memory"));
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
	return phase_end(r, k);
}

static int sync_out_phase(struct runner *r, struct err *e)
{
	const struct transfer_job j = {r->st, r->sb, &r->spec, &r->lease, r->o->run_dir, r->ui};
	int k;

	if (ops(r)->in_place)
		return 0;
	k = phase_begin(r, "sync_out", false, e);
	if (k < 0)
		return k;
	k = transfer_out(&j, &r->o->xfer, e);
	return phase_end(r, k);
}

/* Never the run's failure: what it says is in the summary and the record. */
static void history_phase(struct runner *r, bool files_back)
{
	const struct history *h = &r->o->xfer.history;
	const struct history_opts o = {.spec = &r->spec,
				       .lease = &r->lease,
				       .run_dir = r->o->run_dir,
				       .run_id = r->run.id,
				       .path = runenv_path(r->env),
				       .files_back = files_back};
	_cleanup_buf_ struct buf b = BUF_INIT(16384);
	struct err e = ERR_INIT;

	if (ops(r)->in_place || !r->spec.repo || !r->o->xfer.left_out || *interrupt_second())
		return;
	if (phase_begin(r, "history", false, &e) < 0)
		return;
	history_out(r->sb, &o, &r->o->xfer);
	(void)phase_end(r, 0);
	if (h->outcome == HISTORY_FAILED)
		(void)snprintf(r->o->phases[r->o->phases_len - 1].outcome,
			       sizeof(r->o->phases[0].outcome), "failed");
	(void)buf_puts(&b, "history: ");
	history_text(h, &b);
	note(r, false, buf_text(&b));
}

static void first_error(struct runner *r, int k, const struct err *e)
{
	if (k < 0 && r->o->err.code == ERR_NONE)
		r->o->err = *e;
}

/* Where the lease goes: nothing to bring back, kept, or recoverable. */
static enum lease_state lease_goal(const struct runner *r, bool results_done)
{
	if (results_done && (r->q->keep || r->attached))
		return LEASE_KEPT;
	if (r->attached && !r->o->command_ran && !r->lost)
		return LEASE_KEPT;
	if (results_done || ops(r)->in_place || !r->spec.executed)
		return LEASE_CLEANUP;
	return LEASE_RECOVERABLE;
}

static int release_phase(struct runner *r, bool results_done, struct err *e)
{
	enum lease_state goal = lease_goal(r, results_done);
	int k = phase_begin(r, "release", false, e);

	if (k < 0)
		return k;
	if (r->sb && goal == LEASE_KEPT)
		ops(r)->detach(r->sb);
	else if (r->sb)
		k = ops(r)->release(r->sb, e);
	r->sb = NULL;
	if (!r->rows)
		return phase_end(r, k);
	if (k < 0) {
		/* Without proof that it ended, the row keeps its owner: the next sweep looks again. */
		r->o->lease_state = r->lease.state;
		return phase_end(r, k);
	}
	r->lease.state = goal;
	r->lease.owner = (struct proc_id){0};
	r->lease.expires_ns = clock_real_ns() + KEPT_EXPIRY_NS;
	if (goal != LEASE_KEPT)
		r->lease.monitor = (struct proc_id){0};
	k = save_lease(r, e);
	if (k == 0 && goal == LEASE_CLEANUP) {
		k = sweep_remove_storage(r->st, &r->lease, e);
	}
	r->o->lease_state = r->lease.state;
	return phase_end(r, k);
}

static int final_status(const struct runner *r)
{
	const struct run_outcome *o = r->o;

	if (o->err.code == ERR_CANCELLED && o->stop_signo)
		return 128 + o->stop_signo;
	if (o->err.code != ERR_NONE)
		return EXIT_AIRLOCK;
	switch (o->cmd.end) {
	case END_TIMEOUT:
		return EXIT_TIMEOUT;
	case END_STOPPED:
	case END_ABANDONED:
		return 128 + o->stop_signo;
	default:
		return command_status(&o->cmd);
	}
}

/* A run that left nothing behind, here or in the sandbox: only its own record would be lost. */
static bool left_nothing(const struct run_outcome *o)
{
	if (o->state != RUN_FINISHED || o->lease_state == LEASE_KEPT ||
	    o->lease_state == LEASE_RECOVERABLE || !o->xfer.out_done || o->xfer.history.asked)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(o->xfer.out.counts); i++)
		if (o->xfer.out.counts[i])
			return false;
	return true;
}

static void finish(struct runner *r)
{
	struct run_outcome *o = r->o;
	_cleanup_free_ char *record = NULL;
	struct err e = ERR_INIT;
	int k = 0;

	o->stop_signo = *interrupt_first() ? interrupt_signo() : 0;
	o->ended_ns = clock_real_ns();
	o->exit_status = final_status(r);
	if (o->err.code == ERR_CANCELLED || o->cmd.end == END_STOPPED ||
	    o->cmd.end == END_ABANDONED)
		o->state = RUN_INTERRUPTED;
	else
		o->state = o->err.code == ERR_NONE ? RUN_FINISHED : RUN_FAILED;
	if (o->err.code != ERR_NONE)
		runlog_note(&r->log, o->ended_ns, o->err.text);
	runlog_end(&r->log, o->ended_ns, (uint32_t)o->exit_status);
	o->log_dropped = r->log.dropped;
	o->log_error = r->log.error;
	runlog_close(&r->log);
	if (!r->rows)
		return;
	r->run.state = o->state;
	r->run.exit_status = o->exit_status;
	r->run.ended_ns = o->ended_ns;
	free(r->run.error);
	r->run.error = strdup(o->err.code == ERR_NONE ? "" : o->err.text);
	record = record_text(r->q, o);
	k = db_begin(r->st->store, &e);
	if (k == 0)
		k = run_end(r->st->store, &r->run, &e);
	for (size_t i = 0; k >= 0 && i < o->phases_len; i++)
		k = phase_add(r->st->store, r->run.id, &o->phases[i], &e);
	if (k >= 0 && record)
		k = report_put(r->st->store, r->run.id, record, &e);
	k = db_end(r->st->store, k, &e);
	if (k < 0 && r->ui->note)
		r->ui->note(r->ui->arg, true, e.text);
	if (left_nothing(o))
		db_relax(r->st->store);
	if (record)
		record_save(o->run_dir, record);
}

static void clear(struct runner *r)
{
	lease_row_done(&r->lease);
	leasespec_done(&r->spec);
	run_row_done(&r->run);
	free(r->lease_dir);
	free(r->cwd);
	strv_free(r->env);
}

/* The steps up to the end of the command. */
static int forward(struct runner *r, struct err *e)
{
	int k = prepare(r, e);

	(void)phase_end(r, k);
	if (k == 0)
		k = sync_in_phase(r, e);
	if (k == 0)
		k = start_phase(r, e);
	if (k == 0)
		k = probe_phase(r, e);
	return k == 0 ? execute_phase(r, e) : k;
}

static void drive(struct runner *r)
{
	struct err e = ERR_INIT;
	bool results_done = false;
	int k;

	r->o->started_ns = clock_real_ns();
	r->renewed = clock_mono_ns();
	r->log.fd = r->log.reserve_fd = -1;
	k = forward(r, &e);
	first_error(r, k, &e);
	if (r->o->cmd.deaf)
		note(r, true, "the sandbox does not answer: its results are not asked for now");
	if (r->sb && r->o->command_ran && r->o->cmd.end != END_ABANDONED &&
	    r->o->cmd.end != END_LOST && !r->o->cmd.deaf) {
		if (r->o->cmd.end == END_STOPPED && !ops(r)->in_place)
			note(
			    r, true,
			    "bringing the results back; press Ctrl-C again to stop now and keep them for 'airlock recover'");
		k = sync_out_phase(r, &e);
		first_error(r, k, &e);
		if (r->o->xfer.out_done)
			history_phase(r, k == 0);
		/* Commits that could not be fetched, files that could not be read may still be had: the storage stays. */
		results_done = k == 0 && ((!r->o->xfer.history.retry && !r->o->xfer.withheld) ||
					  r->q->keep || r->attached);
	} else if (!r->o->command_ran && !r->attached) {
		/* Nothing of the run's own was executed: there is no work to keep. */
		r->spec.executed = false;
	}
	k = release_phase(r, results_done, &e);
	first_error(r, k, &e);
	finish(r);
	clear(r);
}

void runner_run(struct state *st, const struct request *q, const struct run_ui *ui,
		struct run_outcome *out)
{
	struct runner r = {.st = st, .q = q, .ui = ui, .o = out};

	*out = (struct run_outcome){.lease_state = LEASE_RELEASED};
	drive(&r);
}

void runner_exec(struct state *st, const struct lease_row *lease, const struct request *q,
		 const struct run_ui *ui, struct run_outcome *out)
{
	struct runner r = {.st = st, .q = q, .ui = ui, .o = out, .attached = true, .lease = *lease};
	struct err e = ERR_INIT;

	*out = (struct run_outcome){.lease_state = lease->state};
	r.lease.spec = NULL;
	if (leasespec_get(lease->spec, &r.spec, &e) < 0) {
		out->err = e;
		out->exit_status = EXIT_AIRLOCK;
		return;
	}
	drive(&r);
}

void run_outcome_done(struct run_outcome *o)
{
	transfer_done(&o->xfer);
	free(o->run_dir);
	free(o->log_path);
	o->run_dir = o->log_path = NULL;
}
