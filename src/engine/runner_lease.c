#include "engine/runner_internal.h"

#include <jansson.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "engine/sweep.h"

int runner_save_lease(struct runner *r, struct err *e)
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

/* In the transaction that adds the run: from then on nobody can claim the lease. */
static int still_kept(const struct runner *r, struct err *e)
{
	struct lease_row now;
	int k = lease_get(r->st->store, r->lease.id, &now, e);

	if (k == 0 && now.state != LEASE_KEPT)
		k = err_set(e, ERR_CONFLICT,
			    "the sandbox is kept no more (lease %s is %s): see 'airlock ps -a'",
			    r->lease.id, lease_state_name(now.state));
	lease_row_done(&now);
	return k;
}

int runner_add_rows(struct runner *r, struct err *e)
{
	int k = 0;

	if (r->q->run_id[0])
		memcpy(r->run.id, r->q->run_id, sizeof(r->run.id));
	else
		k = id_new(r->run.id);

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
		k = runner_begin_with_room(r, e);
	if (k < 0)
		return k;
	k = r->attached ? still_kept(r, e) : lease_add(r->st->store, &r->lease, e);
	if (k == 0)
		k = run_add(r->st->store, &r->run, e);
	k = db_end(r->st->store, k, e);
	r->rows = k == 0;
	return k;
}

int runner_share_lease(struct runner *r, struct err *e)
{
	int k = 0;

	r->lease.state = LEASE_KEPT;
	r->lease.owner = (struct proc_id){0};
	r->lease.expires_ns = clock_real_ns() + KEPT_EXPIRY_NS;
	if (!r->shared)
		k = runner_save_lease(r, e);
	if (k == 0)
		k = lease_use(r->st->store, r->lease.id, r->lease.expires_ns, e);
	r->shared |= k > 0;
	return k < 0 ? k : 0;
}

static void note(void *arg, const char *text)
{
	runner_note(arg, true, text);
}

void runner_listen(struct runner *r)
{
	r->sb->note = note;
	r->sb->note_arg = r;
}

void runner_count(struct runner *r)
{
	r->o->reconnects += r->sb->reconnects;
	r->sb->reconnects = 0;
}

void runner_renew(void *arg)
{
	struct runner *r = arg;
	int64_t now = clock_mono_ns();

	if (now - r->renewed < LEASE_RENEW_NS)
		return;
	r->renewed = now;
	if (r->shared) {
		(void)lease_use(r->st->store, r->lease.id, clock_real_ns() + KEPT_EXPIRY_NS, NULL);
		return;
	}
	r->lease.expires_ns = clock_real_ns() + LEASE_EXPIRY_NS;
	(void)lease_save(r->st->store, &r->lease, NULL);
}

/* A lease of this run alone: nothing to bring back, or recoverable. */
static enum lease_state lease_goal(const struct runner *r, bool settled)
{
	return settled || ops(r)->in_place || !r->spec.executed ? LEASE_CLEANUP : LEASE_RECOVERABLE;
}

/*
 * The sandbox stays for whoever uses it next, also when this run's results did not come back: they are in it, and
 * the next command brings them. Only one that has ended, or answers nobody, is given up; elsewhere a lost session is
 * this command's alone, and what is kept is the directory there.
 */
static int release_shared(struct runner *r, bool settled, struct err *e)
{
	bool over = r->lost || (!ops(r)->elsewhere && r->o->command_ran &&
				(r->o->cmd.end == END_LOST || r->o->cmd.deaf));
	int k = 0;

	if (r->sb && over)
		k = r->sb->ops->release(r->sb, e);
	else if (r->sb)
		r->sb->ops->detach(r->sb);
	r->sb = NULL;
	if (!r->rows)
		return k;
	r->o->lease_state = LEASE_KEPT;
	r->o->pending = !settled && r->o->command_ran && !ops(r)->in_place;
	if (k < 0)
		return k;
	if (over) {
		k = lease_lost(r->st->store, r->lease.id, e);
		r->o->lease_state = LEASE_RECOVERABLE;
	} else if (settled) {
		k = lease_settled(r->st->store, r->lease.id, r->run.id, r->turn_ns, e);
	}
	return k < 0 ? k : 0;
}

int runner_release(struct runner *r, bool settled, struct err *e)
{
	enum lease_state goal = lease_goal(r, settled);
	int k = 0;

	if (r->sb)
		runner_count(r);
	if (r->shared)
		return release_shared(r, settled, e);
	if (r->sb)
		k = r->sb->ops->release(r->sb, e);
	r->sb = NULL;
	if (!r->rows)
		return k;
	if (k < 0) {
		/* Without proof that it ended, the row keeps its owner: the next sweep looks again. */
		r->o->lease_state = r->lease.state;
		return k;
	}
	r->lease.state = goal;
	r->lease.owner = r->lease.monitor = (struct proc_id){0};
	r->lease.expires_ns = clock_real_ns() + KEPT_EXPIRY_NS;
	k = runner_save_lease(r, e);
	if (k == 0 && goal == LEASE_CLEANUP)
		k = sweep_remove_storage(r->st, &r->lease, false, e);
	if (k < 0 && goal == LEASE_CLEANUP && ops(r)->elsewhere) {
		/* All work is here; what is left there is tried again by the sweeps. */
		runner_note(r, true, e->text);
		k = 0;
	}
	r->o->lease_state = r->lease.state;
	return k;
}
