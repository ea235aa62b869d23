#include "engine/runner_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/changeset.h"
#include "engine/history.h"
#include "engine/inplace.h"
#include "engine/interrupt.h"
#include "engine/maps.h"
#include "engine/probe.h"
#include "engine/record.h"
#include "engine/runenv.h"
#include "engine/sweep.h"
#include "sync/indexlock.h"

void runner_note(struct runner *r, bool warn, const char *text)
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

static void log_header(struct runner *r)
{
	_cleanup_strv_ char **limits = NULL;
	struct buf b = BUF_INIT(65536);

	(void)buf_putf(&b, "run %s, lease %s, environment %s (provider %s)", r->run.id, r->lease.id,
		       r->q->env_name, ops(r)->name);
	runner_note(r, false, buf_text(&b));
	buf_reset(&b);
	(void)buf_puts(&b, "workspace ");
	(void)str_printable(&b, r->run.workspace, strlen(r->run.workspace));
	(void)buf_putf(&b, " (%s)", r->q->workspace_why);
	runner_note(r, false, buf_text(&b));
	buf_reset(&b);
	(void)buf_putf(&b, "command %s", r->run.command);
	runner_note(r, false, buf_text(&b));
	buf_done(&b);
	if (request_limits(r->q, &limits) == 0)
		for (size_t i = 0; i < strv_len(limits); i++)
			runner_note(r, false, limits[i]);
}

/*
 * Whether the results can be written at the end, asked before somebody waits an hour for them. Where not, they
 * wait as a review's do. A kept sandbox outlives the state of its workspace.
 */
static int foresee(struct runner *r)
{
	const char *dir = r->attached ? r->lease.workspace : r->q->workspace;

	if (ops(r)->in_place || r->spec.review ||
	    faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0 ||
	    (errno != EROFS && errno != EACCES && errno != EPERM))
		return 0;
	r->spec.review = !r->attached && !r->spec.keep;
	return errno;
}

static void say_read_only(struct runner *r, int why)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_MAX + 1024);

	(void)buf_putf(&b, "the workspace %s cannot be written (%s): ", r->lease.workspace,
		       strerror(why));
	if (r->spec.review)
		(void)buf_putf(
		    &b,
		    "nothing of what the command makes comes into it, all is kept for 'airlock diff %s' and 'airlock "
		    "apply %s', as with --review. Make it writable before the apply",
		    r->run.id, r->run.id);
	else
		(void)buf_puts(
		    &b,
		    "what the command makes is kept in the sandbox's storage, and comes back only once the workspace is "
		    "writable. Make it so before the command ends");
	runner_note(r, true, buf_text(&b));
}

static int prepare(struct runner *r, struct err *e)
{
	int k = phase_begin(r, "resolve", true, e), read_only = 0;

	if (k == 0 && !r->attached)
		k = leasespec_from_request(&r->spec, r->q, e);
	if (k == 0)
		read_only = foresee(r);
	if (k == 0)
		k = runner_add_rows(r, e);
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
	if (read_only)
		say_read_only(r, read_only);
	return runenv_build(r->q, r->run.id, &r->env, e);
}

static int sync_in_phase(struct runner *r, struct err *e)
{
	struct err left = ERR_INIT;
	int k;

	if (ops(r)->in_place || r->attached)
		return 0;
	k = phase_begin(r, "sync_in", true, e);
	if (k < 0)
		return k;
	indexlock_sweep_at(r->lease.workspace);
	k = unpack_recover(r->lease.workspace, r->st->dir, &left, e);
	if (left.code != ERR_NONE)
		runner_note(r, true, left.text);
	if (k > 0)
		runner_note(
		    r, true,
		    "a publish into this workspace had been cut short: it was finished or undone");
	if (k >= 0)
		k = transfer_in(r->st, r->q, &r->spec, r->ui, &r->o->xfer, e);
	/* Before anything can be written inside: from then on the base must stay for 'airlock recover'. */
	if (k == 0)
		k = sync_pin(r->spec.manifest, r->lease.id, e);
	if (k == 0)
		k = runner_save_lease(r, e);
	return phase_end(r, k);
}

/* Where the command starts: the place that the provider has given the workspace. */
static int set_cwd(struct runner *r, struct err *e)
{
	const char *top = r->sb->inside ? r->sb->inside : r->lease.workspace;

	r->cwd = r->q->subdir[0] ? path_join(top, r->q->subdir) : strdup(top);
	return r->cwd ? 0 : err_set(e, ERR_NOMEM, "run: out of memory");
}

static int start_phase(struct runner *r, struct err *e)
{
	struct sandbox_spec s;
	int k = phase_begin(r, "start", true, e);

	if (k < 0)
		return k;
	leasespec_sandbox(&r->spec, &r->lease, r->lease_dir, &s);
	s.cancel = interrupt_first();
	s.sockets = runner_bridge_sockets(r->q);
	s.identities = r->st->identities;
	k = r->attached ? ops(r)->attach(&s, &r->sb, e) : ops(r)->acquire(&s, &r->sb, e);
	r->lost = r->attached && k == -ENOENT;
	if (k == 0) {
		runner_listen(r);
		k = set_cwd(r, e);
	}
	if (k < 0)
		return phase_end(r, k);
	memcpy(r->o->isolation, r->sb->isolation, sizeof(r->o->isolation));
	r->o->isolation_len = r->sb->isolation_len;
	r->lease.state = LEASE_ACTIVE;
	r->lease.monitor = r->st->self; /* the boot id */
	r->lease.monitor.pid = r->sb->monitor_pid;
	r->lease.monitor.start = r->sb->monitor_start;
	/* From here on there may be work inside; with mappings once they are there whole: until then what is missing was not deleted. */
	if (!r->attached)
		r->spec.executed = !r->spec.maps;
	k = r->shared ? 0 : runner_save_lease(r, e);
	if (k == 0 && r->spec.maps && !r->attached) {
		k = maps_in(r->sb, &r->spec, r->lease_dir, e);
		r->spec.executed = k == 0;
		/* Which directories they were, before a command can change what belongs there. */
		if (k == 0)
			k = runner_save_lease(r, e);
	}
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
		runner_note(r, true, "running the install command, once");
		k = probe_install(&c, &pe);
		if (k == 0)
			k = probe_run(&c, &missing, &pe);
	}
	if (k < 0 && e)
		*e = pe;
	return phase_end(r, k);
}

static int bridge_phase(struct runner *r, struct err *e)
{
	int k;

	if (!r->q->api.url && !r->q->upstreams_len)
		return 0;
	k = phase_begin(r, "bridge", true, e);
	return k < 0 ? k : phase_end(r, runner_bridge_start(r, e));
}

static int network_phase(struct runner *r, struct err *e)
{
	int k;

	if (!r->q->net_allow)
		return 0;
	k = phase_begin(r, "network", true, e);
	return k < 0 ? k : phase_end(r, runner_net_start(r, e));
}

/* Said before anything of the command's happens. */
static int begin_in_place(struct runner *r, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8192);
	int k = inplace_record(r->sb, r->sb->inside, r->o->run_dir, e);

	if (k < 0)
		return k;
	r->o->git_there.repo = k;
	(void)buf_puts(&b, "works in place in ");
	(void)str_printable(&b, r->sb->inside, strlen(r->sb->inside));
	(void)buf_puts(
	    &b,
	    " on the other machine: nothing is copied, nothing is validated, what the command does there is done");
	(void)buf_puts(
	    &b, k ? "; what git would execute there is compared afterwards and told, not put back"
		  : "");
	runner_note(r, true, buf_text(&b));
	return 0;
}

static int execute_phase(struct runner *r, struct err *e)
{
	int k = phase_begin(r, "execute", true, e);

	if (k < 0)
		return k;
	if (ops(r)->in_place && ops(r)->elsewhere) {
		k = begin_in_place(r, e);
		if (k < 0)
			return phase_end(r, k);
	}
	/* With --keep not before: a sandbox that never ran anything of ours is nothing to keep. */
	k = r->q->keep || r->shared ? runner_share_lease(r, e) : 0;
	return phase_end(r, k < 0 ? k : runner_execute(r, e));
}

static int sync_out_phase(struct runner *r, struct err *e)
{
	struct transfer_job j = {r->st, r->sb, &r->spec, &r->lease, r->o->run_dir, r->ui, -1};
	int k;

	r->turn_ns = clock_real_ns();
	if (ops(r)->in_place)
		return r->o->git_there.repo ? inplace_compare(r->sb, r->sb->inside, r->o->run_dir,
							      &r->o->git_there, e)
					    : 0;
	k = phase_begin(r, "sync_out", false, e);
	if (k < 0)
		return k;
	/* Held over the commits as well: they come back one command after the other, as the files do. */
	k = transfer_turn(&j, "baseline", &r->baseline, e);
	r->turn_ns = clock_real_ns();
	/* A review publishes nothing, so nothing moves on. */
	j.baseline = r->spec.review ? -1 : r->baseline;
	if (k == 0 && r->spec.review)
		k = changeset_begin(r->st, r->run.id, &r->spec, e);
	if (k == 0)
		k = runner_bring_back(r, &j, e);
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
	runner_note(r, false, buf_text(&b));
}

static void first_error(struct runner *r, int k, const struct err *e)
{
	if (k < 0 && r->o->err.code == ERR_NONE)
		r->o->err = *e;
}

static int release_phase(struct runner *r, bool settled, struct err *e)
{
	struct err later = ERR_INIT;
	int k = phase_begin(r, "release", false, e), k2;

	/* The sandbox ends and its work is kept even where nothing can be written down (a full state directory). */
	k2 = runner_release(r, settled, k < 0 ? &later : e);
	return phase_end(r, k < 0 ? k : k2);
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
	for (size_t i = 0; i < o->xfer.maps_len; i++)
		if (o->xfer.maps[i].rep.changes_len)
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
	/* An install command may need it. */
	if (k == 0)
		k = network_phase(r, e);
	if (k == 0)
		k = probe_phase(r, e);
	if (k == 0)
		k = bridge_phase(r, e);
	if (k == 0)
		k = execute_phase(r, e);
	runner_bridge_end(r);
	runner_net_end(r);
	return k;
}

static void drive(struct runner *r)
{
	struct err e = ERR_INIT;
	bool settled = false;
	int k;

	r->o->started_ns = clock_real_ns();
	r->renewed = clock_mono_ns();
	r->log.fd = r->log.reserve_fd = -1;
	k = forward(r, &e);
	first_error(r, k, &e);
	if (r->o->cmd.deaf)
		runner_note(r, true,
			    "the sandbox does not answer: its results are not asked for now");
	if (r->sb && r->o->command_ran && r->o->cmd.end != END_ABANDONED &&
	    r->o->cmd.end != END_LOST && !r->o->cmd.deaf) {
		if (r->o->cmd.end == END_STOPPED && !ops(r)->in_place)
			runner_note(
			    r, true,
			    "bringing the results back; press Ctrl-C again to stop now and keep them for 'airlock recover'");
		k = sync_out_phase(r, &e);
		first_error(r, k, &e);
		/* A cut that was not got over has taken it. */
		if (r->o->xfer.out_done && r->sb)
			history_phase(r, k == 0);
		if (r->spec.review && r->rows)
			changeset_settle(r->st, r->run.id);
		/* Commits that could not be fetched, files that could not be read may still be had: the storage stays. */
		settled = k == 0 && !r->o->xfer.history.retry && !r->o->xfer.withheld;
		if (settled && r->sb && r->spec.map_roots && !r->q->keep && !r->shared)
			maps_gone(r->sb, &r->spec);
		cleanup_fd(&r->baseline);
	} else if (!r->o->command_ran && !r->attached) {
		/* Nothing of the run's own was executed: there is no work to keep. */
		r->spec.executed = false;
		if (r->sb && r->spec.map_roots)
			maps_gone(r->sb, &r->spec);
	}
	k = release_phase(r, settled, &e);
	first_error(r, k, &e);
	finish(r);
	clear(r);
}

void runner_run(struct state *st, const struct request *q, const struct run_ui *ui,
		struct run_outcome *out)
{
	struct runner r = {.st = st, .q = q, .ui = ui, .o = out, .baseline = -1};

	*out = (struct run_outcome){.lease_state = LEASE_RELEASED};
	drive(&r);
}

void runner_exec(struct state *st, const struct lease_row *lease, const struct request *q,
		 const struct run_ui *ui, struct run_outcome *out)
{
	struct runner r = {.st = st,
			   .q = q,
			   .ui = ui,
			   .o = out,
			   .attached = true,
			   .shared = true,
			   .baseline = -1,
			   .lease = *lease};
	struct err e = ERR_INIT;

	*out = (struct run_outcome){.lease_state = LEASE_RELEASED};
	r.lease.spec = NULL;
	if (leasespec_get(lease->spec, &r.spec, &e) < 0) {
		first_error(&r, -1, &e);
		out->exit_status = EXIT_AIRLOCK;
		return;
	}
	drive(&r);
}

void run_outcome_done(struct run_outcome *o)
{
	transfer_done(&o->xfer);
	inplace_report_done(&o->git_there);
	strv_free(TAKE_PTR(o->net.refused));
	free(o->run_dir);
	free(o->log_path);
	o->run_dir = o->log_path = NULL;
}
