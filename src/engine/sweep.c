#include "engine/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/changeset.h"
#include "engine/interrupt.h"
#include "engine/leasespec.h"
#include "engine/maps.h"
#include "engine/runlock.h"
#include "engine/sweep_elsewhere.h"
#include "provider/provider.h"
#include "store/run.h"
#include "sync/indexlock.h"

#define END_WAIT_NS (10 * NS_PER_S)
#define LOOKS_MAX 200
#define AWAY_MS 15000 /* for all of one: whoever sweeps waits for something else */

static bool has_owner_state(enum lease_state s)
{
	return s == LEASE_ACQUIRING || s == LEASE_ACTIVE || s == LEASE_RECOVERING ||
	       s == LEASE_CLEANUP;
}

bool sweep_unsettled(const struct lease_row *l)
{
	return has_owner_state(l->state);
}

int sweep_end_sandbox(const struct lease_row *l, const char *run_id, struct err *e)
{
	char mark[64];
	int r;

	/* The monitor is the end of its sandbox: the guest is killed with it by the kernel. */
	r = proc_signal(&l->monitor, SIGKILL);
	if (r == 0)
		r = proc_wait_gone(&l->monitor, clock_mono_ns() + END_WAIT_NS);
	if (r < 0 && r != -ESRCH)
		return err_sys(e, -r, "end the sandbox of lease %s (process %d)", l->id,
			       (int)l->monitor.pid);
	if (strcmp(l->provider, "local") != 0 || !run_id)
		return 0;
	(void)snprintf(mark, sizeof(mark), "AIRLOCK_RUN_ID=%s", run_id);
	for (int i = 0; i < LOOKS_MAX; i++)
		if (proc_signal_marked(mark, SIGKILL) <= 0)
			return 0;
	return err_set(e, ERR_TIMEOUT, "processes of run %s do not end", run_id);
}

struct how {
	bool give_up, nothing_stays;
	bool places;	  /* what mappings left there may not be gone */
	int64_t until_ns; /* 0: as long as it takes */
};

/* What lies elsewhere: only the row knows where, so it goes first. */
static int forget(struct state *st, const struct lease_row *l, const struct lease_spec *spec,
		  const struct how *how, struct err *e)
{
	const struct provider_ops *ops = provider_find(l->provider);
	_cleanup_free_ char *dir = state_path(st, "leases", l->id, NULL);
	_cleanup_strv_ char **places = NULL;
	struct sandbox_spec s;

	if (!ops || !ops->forget)
		return 0;
	/* In a sandbox they go with it. */
	if (!dir || (how->places && !ops->isolates && maps_parents(spec, &places) < 0))
		return err_set(e, ERR_NOMEM, "lease: out of memory");
	leasespec_sandbox(spec, l, dir, &s);
	/* The first signal stops the command; what it left goes away all the same. */
	s.cancel = interrupt_second();
	s.until_ns = how->until_ns;
	s.nothing_stays = how->nothing_stays;
	s.places = places;
	s.identities = st->identities;
	return err_wrap(e, ops->forget(&s, how->give_up, e), "what run of lease %s left elsewhere",
			l->id);
}

int sweep_give_up(struct state *st, const struct lease_row *l, struct err *e)
{
	const struct provider_ops *ops = provider_find(l->provider);
	_cleanup_leasespec_ struct lease_spec spec = {0};
	int r;

	if (!ops || !ops->elsewhere)
		return err_set(e, ERR_USAGE, "lease %s has nothing on another machine", l->id);
	r = leasespec_get(l->spec, &spec, e);
	return r < 0 ? r : forget(st, l, &spec, &(struct how){.give_up = true}, e);
}

static int remove_storage(struct state *st, struct lease_row *l, const struct how *how,
			  struct err *e)
{
	const struct provider_ops *ops = provider_find(l->provider);
	_cleanup_leasespec_ struct lease_spec spec = {0};
	_cleanup_free_ char *trash = NULL;
	int r = leasespec_get(l->spec, &spec, e);

	if (r == 0)
		r = forget(st, l, &spec, how, e);
	if (r == 0)
		r = state_discard(st, "leases", l->id, &trash, e);
	if (r == 0 && trash && ops)
		r = ops->destroy_storage(trash, e);
	if (r == 0 && trash)
		r = state_remove_tree(trash, e);
	if (r == 0 && spec.manifest)
		r = sync_unpin(spec.manifest, l->id, e);
	if (r < 0)
		return r;
	l->state = LEASE_RELEASED;
	l->owner = (struct proc_id){0};
	return lease_save(st->store, l, e);
}

int sweep_remove_storage(struct state *st, struct lease_row *l, bool nothing_stays, struct err *e)
{
	return remove_storage(
	    st, l, &(struct how){.nothing_stays = nothing_stays, .places = nothing_stays}, e);
}

void run_locks_done(struct run_locks *l)
{
	for (size_t i = 0; i < l->n; i++)
		cleanup_fd(&l->fd[i]);
	free(l->fd);
	*l = (struct run_locks){0};
}

/* 1 locked, or there is no directory; 0 somebody has it. */
static int lock_run(const char *dir, int *ret_fd, struct err *e)
{
	int r = runlock_try(dir, ret_fd);

	return r >= 0 ? r : r == -ENOENT ? 1 : err_sys(e, -r, "lock %s", dir);
}

int sweep_lock_runs(struct state *st, const char *lease_id, struct run_locks *ret, struct err *e)
{
	struct run_row *v = NULL;
	size_t n = 0;
	int r = run_list(st->store, true, lease_id, &v, &n, e);

	*ret = (struct run_locks){0};
	if (r == 0 && n && !(ret->fd = calloc(n, sizeof(*ret->fd))))
		r = err_set(e, ERR_NOMEM, "list runs: out of memory");
	r = r < 0 ? r : 1;
	for (size_t i = 0; r > 0 && i < n; i++) {
		_cleanup_free_ char *dir = state_path(st, "runs", v[i].id, NULL);

		r = dir ? lock_run(dir, &ret->fd[ret->n++], e)
			: err_set(e, ERR_NOMEM, "run: out of memory");
		if (r == 0)
			memcpy(ret->busy, v[i].id, sizeof(ret->busy));
	}
	run_list_free(v, n);
	return r;
}

int sweep_remove_runs(struct state *st, const char *lease_id, struct err *e)
{
	struct run_row *v = NULL;
	size_t n = 0;
	int r = run_list(st->store, true, lease_id, &v, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_free_ char *trash = NULL;

		/* Who was killed while its commits came back left it, and nobody comes back for this run. */
		indexlock_sweep_at(v[i].workspace);
		changeset_forget(st, v[i].id);
		r = state_discard(st, "runs", v[i].id, &trash, e);
		if (r == 0 && trash)
			r = state_remove_tree(trash, e);
	}
	run_list_free(v, n);
	return r;
}

static int end_run(struct state *st, struct run_row *run, const char *work, struct err *e)
{
	run->state = RUN_INTERRUPTED;
	run->exit_status = 125;
	run->ended_ns = clock_real_ns();
	free(run->error);
	if (asprintf(&run->error, "airlock (process %d) was killed in phase %s; %s",
		     (int)run->owner.pid, run->phase, work) < 0)
		run->error = NULL;
	return run_end(st->store, run, e);
}

/* Runs of the lease that were going on when their owner died. */
static int end_runs(struct state *st, const struct lease_row *l, bool kept, struct err *e)
{
	struct run_row *v = NULL;
	size_t n = 0;
	int r = run_list(st->store, true, l->id, &v, &n, e);

	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (v[i].state != RUN_RUNNING)
			continue;
		r = sweep_end_sandbox(l, v[i].id, e);
		if (r < 0)
			break;
		r = end_run(
		    st, &v[i],
		    kept ? "the work is kept: airlock recover" : "there was no work to keep", e);
	}
	run_list_free(v, n);
	return r < 0 ? r : 0;
}

static void say(const struct run_ui *ui, const struct lease_row *l, const char *run, bool kept)
{
	char text[256];

	if (kept)
		(void)snprintf(text, sizeof(text),
			       "run %s was cut short; its work is kept: airlock recover %s", run,
			       run);
	else
		(void)snprintf(text, sizeof(text), "cleaned up after run %s, which was cut short",
			       run[0] ? run : l->id);
	if (ui && ui->note)
		ui->note(ui->arg, true, text);
}

static void say_kept(const struct run_ui *ui, const struct run_row *run)
{
	char text[256];

	(void)snprintf(
	    text, sizeof(text),
	    "run %s was cut short; its sandbox is kept: 'airlock exec %s -- true' brings back "
	    "what it did",
	    run->id, run->id);
	if (ui && ui->note)
		ui->note(ui->arg, true, text);
}

static int put_off(struct state *st, struct lease_row *l, const struct run_ui *ui,
		   const struct err *why)
{
	if (ui && ui->note)
		ui->note(ui->arg, true, why->text);
	l->state = LEASE_CLEANUP;
	l->owner = (struct proc_id){0};
	return lease_save(st->store, l, NULL);
}

static int sweep_one(struct state *st, struct lease_row *l, const struct run_ui *ui, struct err *e)
{
	const struct provider_ops *ops = provider_find(l->provider);
	_cleanup_leasespec_ struct lease_spec s = {0};
	struct err why = ERR_INIT;
	char run[ID_LEN + 1];
	bool keep;
	int r = leasespec_get(l->spec, &s, e);

	if (r < 0)
		return r;
	keep = sweep_keeps(l, &s);
	if (!keep && ops && ops->elsewhere && (sweep_lacks_key(st, &s) || sweep_away(st, l)))
		return 0;
	r = lease_claim(st->store, l, LEASE_RECOVERING, &st->self, e);
	if (r <= 0)
		return r;
	sweep_newest_run(st, l, run);
	r = sweep_end_sandbox(l, NULL, e);
	if (r == 0)
		r = end_runs(st, l, keep, e);
	if (r < 0)
		return r;
	l->monitor = (struct proc_id){0};
	if (keep) {
		l->state = LEASE_RECOVERABLE;
		l->owner = (struct proc_id){0};
		r = lease_save(st->store, l, e);
	} else {
		bool elsewhere = ops && ops->elsewhere;

		if (elsewhere)
			sweep_note_try(st, l);
		r = remove_storage(
		    st, l,
		    &(struct how){.places = true,
				  .until_ns =
				      elsewhere ? clock_mono_ns() + AWAY_MS * NS_PER_MS : 0},
		    &why);
		if (r < 0 && ops && ops->elsewhere)
			return put_off(st, l, ui, &why);
		if (r < 0)
			*e = why;
	}
	if (r == 0)
		say(ui, l, run, keep);
	return r < 0 ? r : 1;
}

int sweep_in_use(struct state *st, const struct lease_row *l, struct err *e)
{
	struct run_row *v = NULL;
	size_t n = 0;
	int r = run_list(st->store, true, l->id, &v, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++)
		if (v[i].state == RUN_RUNNING)
			r = err_set(
			    e, ERR_CONFLICT,
			    "run %s is in use: run %s of the same sandbox is going on (process %d): wait for "
			    "it, or airlock stop %s",
			    v[n - 1].id, v[i].id, (int)v[i].owner.pid, v[i].id);
	run_list_free(v, n);
	return r;
}

int sweep_claim(struct state *st, struct lease_row *l, enum lease_state to, struct err *e)
{
	int r = lease_claim(st->store, l, to, &st->self, e);

	if (r != 0)
		return r < 0 ? r : 0;
	r = l->state == LEASE_KEPT ? sweep_in_use(st, l, e) : 0;
	return r < 0 ? r : err_set(e, ERR_CONFLICT, "another process took lease %s first", l->id);
}

/* Commands in a kept sandbox whose airlock died; the sandbox stays, and what they did in it. */
static int end_dead_runs(struct state *st, const struct lease_row *l, const struct run_ui *ui,
			 struct err *e)
{
	struct lease_row none = *l;
	struct run_row *v = NULL;
	size_t n = 0;
	int r = run_list(st->store, true, l->id, &v, &n, e);

	none.monitor = (struct proc_id){0};
	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (v[i].state != RUN_RUNNING || proc_alive(&v[i].owner))
			continue;
		/* launch ended its command when the connection broke; the local provider has no launch. */
		r = sweep_end_sandbox(&none, v[i].id, e);
		if (r == 0)
			r = end_run(st, &v[i],
				    "the sandbox is kept: airlock exec, or airlock recover", e);
		if (r > 0)
			say_kept(ui, &v[i]);
	}
	run_list_free(v, n);
	return r < 0 ? r : 0;
}

/* A kept sandbox that ended by itself (reboot, kill), or whose time is over. */
static int sweep_kept(struct state *st, struct lease_row *l, const struct run_ui *ui, struct err *e)
{
	const struct provider_ops *ops = provider_find(l->provider);
	bool over = clock_real_ns() > l->expires_ns;
	int r = end_dead_runs(st, l, ui, e);

	if (r < 0)
		return r;
	/* Elsewhere nothing of ours has to live for it. */
	if (strcmp(l->provider, "local") == 0 ||
	    (!over && ((ops && ops->elsewhere) || proc_alive(&l->monitor))))
		return 0;
	r = lease_claim(st->store, l, LEASE_RECOVERING, &st->self, e);
	if (r <= 0)
		return r;
	r = sweep_end_sandbox(l, NULL, e);
	if (r < 0)
		return r;
	l->state = LEASE_RECOVERABLE;
	l->owner = (struct proc_id){0};
	l->monitor = (struct proc_id){0};
	r = lease_save(st->store, l, e);
	return r < 0 ? r : 1;
}

static void say_broken(const struct run_ui *ui, const struct lease_row *l, const struct err *why)
{
	char text[sizeof(why->text) + 80];

	(void)snprintf(text, sizeof(text),
		       "what lease %s left could not be dealt with; it is tried again: %s", l->id,
		       why->text);
	if (ui && ui->note)
		ui->note(ui->arg, true, text);
}

int sweep_run(struct state *st, const struct run_ui *ui, struct err *e)
{
	struct lease_row *v = NULL;
	size_t n = 0;
	int done = 0, r = lease_list(st->store, &v, &n, e);

	for (size_t i = 0; r >= 0 && i < n; i++) {
		struct err why = ERR_INIT;
		int k = 0;

		if (v[i].state == LEASE_KEPT)
			k = sweep_kept(st, &v[i], ui, &why);
		else if (has_owner_state(v[i].state) && !proc_alive(&v[i].owner))
			k = sweep_one(st, &v[i], ui, &why);
		/* Its own failure only: the others have waited as long. */
		if (k < 0)
			say_broken(ui, &v[i], &why);
		done += k > 0;
	}
	lease_list_free(v, n);
	return r < 0 ? r : done;
}
