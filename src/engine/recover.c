#include "engine/recover.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/changeset.h"
#include "engine/history.h"
#include "engine/interrupt.h"
#include "engine/maps.h"
#include "engine/sweep.h"
#include "store/run.h"
#include "sync/indexlock.h"

static int no_work(struct state *st, const struct run_row *run, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0};

	if (changeset_find(st, run->id, &c, NULL) == 0 && c.files)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "run %s was brought back, its results wait: airlock diff %s, airlock apply %s",
		    run->id, run->id, run->id);
	return err_set(e, ERR_NOT_FOUND,
		       "run %s keeps no work: it was brought back, or there was none", run->id);
}

/* The lease of a run, ours to recover; every other state has its own answer. */
static int claim(struct state *st, const struct run_row *run, struct lease_row *l, bool *ret_kept,
		 struct err *e)
{
	int r = lease_get(st->store, run->lease_id, l, e);

	if (r < 0)
		return r;
	switch (l->state) {
	case LEASE_RECOVERABLE:
	case LEASE_KEPT:
		break;
	case LEASE_RELEASED:
	case LEASE_CLEANUP:
		return no_work(st, run, e);
	default:
		return err_set(e, ERR_CONFLICT,
			       "run %s is in use by process %d: wait for it, or airlock stop %s",
			       run->id, (int)l->owner.pid, run->id);
	}
	*ret_kept = l->state == LEASE_KEPT;
	return sweep_claim(st, l, LEASE_RECOVERING, e);
}

static int start(struct state *st, const struct lease_row *l, const struct lease_spec *s, bool kept,
		 struct sandbox **ret, struct err *e)
{
	const struct provider_ops *ops = provider_find(l->provider);
	_cleanup_free_ char *dir = state_path(st, "leases", l->id, NULL);
	struct sandbox_spec spec;

	if (!ops || ops->in_place)
		return err_set(e, ERR_UNAVAILABLE,
			       "provider %s keeps nothing that could be recovered", l->provider);
	if (!dir)
		return err_set(e, ERR_NOMEM, "recover: out of memory");
	if (!s->manifest)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the run was cut short before its workspace was copied in: there is no work");
	leasespec_sandbox(s, l, dir, &spec);
	spec.cancel = interrupt_first();
	spec.identities = st->identities;
	if (kept)
		return ops->attach(&spec, ret, e);
	/* Nobody is to stay: whoever recovers is the life line. */
	spec.keep = false;
	if (ops->isolates)
		spec.net = NET_NONE;
	return ops->acquire(&spec, ret, e);
}

/* Commits too; a way that is closed for good (the repository is broken) is no reason to try again. */
static int commits(struct sandbox *sb, const struct lease_spec *s, const struct lease_row *l,
		   const char *run_dir, bool files_back, struct transfer *t, struct err *e)
{
	const struct history_opts o = {.spec = s,
				       .lease = l,
				       .run_dir = run_dir,
				       .run_id = path_base(run_dir),
				       .files_back = files_back};

	history_out(sb, &o, t);
	return t->history.retry
		   ? err_set(e, ERR_UNAVAILABLE, "the files are back, the commits are not: %s",
			     t->history.why)
		   : 0;
}

/* This attempt only: the lease's row stays as the run made it. */
static int loosen(struct lease_spec *s, const struct recover_opts *o, struct err *e)
{
	int r = 0;

	s->strict = s->strict && !o->no_strict;
	for (size_t i = 0; r == 0 && o->exclude && o->exclude[i]; i++)
		r = strv_add(&s->exclude, o->exclude[i]);
	return r < 0 ? err_set(e, ERR_NOMEM, "recover: out of memory") : 0;
}

static int bring_back(struct state *st, struct lease_row *l, bool kept, const char *run_dir,
		      const struct recover_opts *o, const struct run_ui *ui, struct transfer *t,
		      struct err *e)
{
	char text[512];

	_cleanup_leasespec_ struct lease_spec s = {0};
	struct transfer_job j = {st, NULL, &s, l, run_dir, ui, -1};
	_cleanup_fd_ int turn = -1, lock = -1;
	struct sandbox *sb = NULL;
	struct err re = ERR_INIT, left = ERR_INIT;
	int r = leasespec_get(l->spec, &s, e), k;

	if (r == 0)
		r = loosen(&s, o, e);
	if (r == 0)
		r = unpack_recover(l->workspace, st->dir, &left, e);
	if (left.code != ERR_NONE && ui->note)
		ui->note(ui->arg, true, left.text);
	/* After the repair, which may be about this run and locks it itself. */
	if (r >= 0)
		r = lock = changeset_lock(run_dir, ui, e);
	if (r >= 0)
		r = start(st, l, &s, kept, &sb, e);
	if (r < 0)
		return r;
	j.sb = sb;
	l->monitor = st->self;
	l->monitor.pid = sb->monitor_pid;
	l->monitor.start = sb->monitor_start;
	r = lease_save(st->store, l, e);
	if (r == 0 && s.review)
		r = changeset_begin(st, path_base(run_dir), &s, e);
	if (r == 0)
		r = transfer_turn(&j, "baseline", &turn, e);
	j.baseline = s.review ? -1 : turn;
	if (r == 0)
		r = transfer_out(&j, t, e);
	if (t->out_done) {
		k = commits(sb, &s, l, run_dir, r == 0, t, r == 0 ? e : &re);
		r = r == 0 ? k : r;
	}
	if (s.review)
		changeset_settle(st, path_base(run_dir));
	if (r == 0 && t->withheld) {
		transfer_withheld_text(t, path_base(run_dir), text, sizeof(text));
		r = err_set(e, ERR_UNAVAILABLE, "%s", text);
	}
	if (r == 0 && s.map_roots)
		maps_gone(sb, &s);
	k = sb->ops->release(sb, &re);
	if (r == 0 && k < 0) {
		*e = re;
		r = k;
	}
	return r;
}

/* All of it is here: from now on only its removal is left, and nothing makes it work to bring back again. */
static int settle(struct state *st, struct lease_row *l, const char *run_id,
		  const struct run_ui *ui, struct err *e)
{
	const struct provider_ops *ops = provider_find(l->provider);
	struct err why = ERR_INIT;
	int r;

	l->state = LEASE_CLEANUP;
	l->owner = l->monitor = (struct proc_id){0};
	r = lease_save(st->store, l, e);
	if (r == 0)
		r = run_set_recovered(st->store, run_id, e);
	if (r < 0)
		return r;
	r = sweep_remove_storage(st, l, false, &why);
	if (r < 0 && ops && ops->elsewhere) {
		if (ui->note)
			ui->note(ui->arg, true, why.text);
		return 0;
	}
	if (r < 0)
		*e = why;
	return r;
}

/*
 * As before: nothing is lost by a failed attempt. A kept sandbox that still lives, because nothing attached to it or it did not
 * end, stays one: who forgets its monitor can end it no more, and the next would make a second one over its layer.
 */
static void stay(struct state *st, struct lease_row *l, bool kept, const struct run_ui *ui)
{
	const struct provider_ops *ops = provider_find(l->provider);
	struct err e = ERR_INIT;
	bool lives = l->monitor.pid && proc_alive(&l->monitor);
	/* Elsewhere one has no process here until it is attached to. */
	bool untouched = kept && ops && ops->elsewhere && !l->monitor.pid;

	if (lives && !kept && sweep_end_sandbox(l, NULL, &e) < 0) {
		/* Ours until we end, and then for a sweep. */
		if (ui->note)
			ui->note(ui->arg, true, e.text);
		return;
	}
	l->state = (lives && kept) || untouched ? LEASE_KEPT : LEASE_RECOVERABLE;
	l->owner = (struct proc_id){0};
	if (l->state == LEASE_RECOVERABLE)
		l->monitor = (struct proc_id){0};
	(void)lease_save(st->store, l, NULL);
}

int recover_run(struct state *st, const char *word, const struct recover_opts *o,
		const struct run_ui *ui, struct transfer *t, char **ret_run_dir, struct err *e)
{
	struct run_row run = {0};
	struct lease_row l = {0};
	bool kept = false, lives;
	int r = sweep_run(st, ui, e);

	if (r >= 0)
		r = run_find(st->store, word, &run, e);
	/* Whether it keeps work or not: who was killed while its commits came back left it. */
	if (r == 0)
		indexlock_sweep_at(run.workspace);
	if (r == 0)
		r = claim(st, &run, &l, &kept, e);
	if (r < 0)
		goto out;
	lives = l.monitor.pid != 0 && proc_alive(&l.monitor);
	*ret_run_dir = state_path(st, "runs", run.id, NULL);
	r = *ret_run_dir ? bring_back(st, &l, lives, *ret_run_dir, o, ui, t, e)
			 : err_set(e, ERR_NOMEM, "recover: out of memory");
	if (r == 0) {
		r = settle(st, &l, run.id, ui, e);
	} else {
		stay(st, &l, kept, ui);
	}
out:
	lease_row_done(&l);
	run_row_done(&run);
	return r;
}
