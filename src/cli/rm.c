/* rm: what runs have left goes away, with proof that nothing of them goes on. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/runwords.h"
#include "engine/changeset.h"
#include "engine/keepsake.h"
#include "engine/sweep.h"

enum { P_ALL = 1, P_FORCE, P_YES };

const struct opt opts_rm[] = {
    {"all", 0, NULL, "every kept sandbox and every run that is over", P_ALL},
    {"force", 0, NULL, "also work that was not brought back", P_FORCE},
    {"yes", 0, NULL, "with --all: do not ask about copies that may be the only ones", P_YES},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const t_rm[] = {opts_rm, opts_help, NULL};

/* Runs of the lease whose results nobody has decided about. */
static int check_waiting(struct state *st, const struct lease_row *l, struct err *e)
{
	struct run_row *v = NULL;
	size_t n = 0;
	int r = run_list(st->store, true, l->id, &v, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_changeset_ struct changeset c = {0};

		r = changeset_of(st, &v[i], &c, e);
		if (r == 0 && c.files)
			r = err_set(
			    e, ERR_CONFLICT,
			    "results of it wait: 'airlock apply %s' or 'airlock discard %s' first, or "
			    "rm --force",
			    c.run.id, c.run.id);
	}
	run_list_free(v, n);
	return r;
}

static int remove_lease(struct state *st, struct lease_row *l, bool force, struct err *e)
{
	_cleanup_run_locks_ struct run_locks locks = {0};
	int r = l->state == LEASE_KEPT ? sweep_in_use(st, l, e) : 0;

	if (r < 0)
		return r;
	if ((l->state == LEASE_ACTIVE || l->state == LEASE_ACQUIRING ||
	     l->state == LEASE_RECOVERING) &&
	    proc_alive(&l->owner))
		return err_set(e, ERR_CONFLICT, "it is in use by process %d: airlock stop first",
			       (int)l->owner.pid);
	if ((l->state == LEASE_RECOVERABLE || l->state == LEASE_RECOVERING ||
	     l->state == LEASE_ACTIVE || (l->state == LEASE_KEPT && l->pending)) &&
	    !force && strcmp(l->provider, "local") != 0)
		return err_set(
		    e, ERR_CONFLICT,
		    "it holds work that was not brought back: 'airlock recover' first, or rm --force");
	r = sweep_lock_runs(st, l->id, &locks, e);
	if (r == 0)
		r = err_set(e, ERR_CONFLICT,
			    "another process is at the results of run %s: wait for it", locks.busy);
	if (r < 0)
		return r;
	if (!force && (r = check_waiting(st, l, e)) < 0)
		return r;
	if (l->state != LEASE_RELEASED) {
		r = sweep_claim(st, l, LEASE_CLEANUP, e);
		if (r == 0)
			r = sweep_end_sandbox(l, NULL, e);
		if (r < 0)
			return r; /* another's, or alive: nothing of it may go, --force or not */
		r = sweep_remove_storage(st, l, true, e);
		if (r < 0 && force && sweep_give_up(st, l, NULL) == 0) {
			cli_say("%s; it stays there", e->text);
			r = sweep_remove_storage(st, l, true, e);
		}
		if (r < 0)
			return r;
	}
	r = sweep_remove_runs(st, l->id, e);
	return r < 0 ? r : lease_remove(st->store, l->id, e);
}

/* What the runs keep that may be nowhere else: yes to drop it, asked once for all. */
static bool may_drop(struct state *st, const struct run_row *v, size_t n)
{
	struct keepsake all = {0};
	char size[16], answer[16] = "";

	for (size_t i = 0; i < n; i++)
		keepsake_add(st, v[i].id, &all);
	if (!all.files)
		return true;
	str_human_size(all.bytes, size, sizeof(size));
	cli_say(
	    "the runs keep %llu files (%s) that may be nowhere else: losing versions of conflicts, deleted "
	    "files, rejected or waiting results",
	    (unsigned long long)all.files, size);
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		cli_say("they stay; look at them in %s/runs, or say --yes to drop them", st->dir);
		return false;
	}
	(void)fputs("airlock: drop them? [y/N] ", stderr);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int remove_all(struct state *st, bool force, bool yes)
{
	struct run_row *v = NULL;
	struct err e = ERR_INIT;
	size_t n = 0, gone = 0;
	int status = 0, r = run_list(st->store, true, NULL, &v, &n, &e);

	if (r < 0)
		return cli_fail(&e);
	yes = yes || force || may_drop(st, v, n);
	for (size_t i = 0; i < n; i++) {
		struct keepsake kept = {0};
		struct lease_row l;

		/* Several runs may share a lease that is gone by now. */
		if (lease_get(st->store, v[i].lease_id, &l, NULL) < 0)
			continue;
		if (!yes)
			keepsake_of_lease(st, l.id, &kept);
		if (kept.files) {
			cli_say("run %s is not removed", v[i].id);
			status = 125;
		} else if (remove_lease(st, &l, force, &e) < 0) {
			cli_say("run %s is not removed: %s", v[i].id, e.text);
			status = 125;
		} else {
			gone++;
		}
		lease_row_done(&l);
	}
	run_list_free(v, n);
	cli_say("removed %zu", gone);
	return status;
}

int cmd_rm(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_runwords_ struct runwords f = {0};
	struct run_row run = {0};
	struct lease_row l = {0};
	struct err e = ERR_INIT;
	bool all = false;
	int status = 0, r;

	for (int i = 1; i < argc; i++)
		all |= strcmp(argv[i], "--all") == 0;
	if (!runwords_parse(&f, t_rm, argc, argv, all ? NULL : "run (or --all)", &status))
		return status;
	r = state_open(&st, &e);
	/* Rows of commands whose airlock is dead would keep their sandbox from being claimed. */
	if (r == 0)
		(void)sweep_run(&st, NULL, NULL);
	if (r == 0 && all)
		return remove_all(&st, runwords_has(&f, P_FORCE), runwords_has(&f, P_YES));
	if (r == 0)
		r = run_find(st.store, f.words[0], &run, &e);
	if (r == 0)
		r = lease_get(st.store, run.lease_id, &l, &e);
	if (r == 0)
		r = err_wrap(&e, remove_lease(&st, &l, runwords_has(&f, P_FORCE), &e),
			     "run %s is not removed", run.id);
	lease_row_done(&l);
	run_row_done(&run);
	return r < 0 ? cli_fail(&e) : 0;
}
