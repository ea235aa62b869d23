/* ps, stop: the runs that go on. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cursor.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/runwords.h"
#include "cli/ui.h"
#include "engine/changeset.h"
#include "engine/contact.h"
#include "engine/keepsake.h"
#include "engine/leasespec.h"
#include "engine/state.h"
#include "engine/sweep.h"
#include "store/run.h"
#include "wire/runlog.h"

enum { P_ALL = 1, P_JSON };

const struct opt opts_ps[] = {
    {"all", 'a', NULL, "also runs that are over", P_ALL},
    {"json", 0, NULL, "one JSON array", P_JSON},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const t_ps[] = {opts_ps, opts_help, NULL};
static const struct opt *const t_plain[] = {opts_help, NULL};

static const char *shown_state(struct state *st, const struct run_row *r, char lease[16])
{
	struct lease_row l;

	(void)snprintf(lease, 16, "-");
	if (lease_get(st->store, r->lease_id, &l, NULL) == 0)
		(void)snprintf(lease, 16, "%s", lease_state_name(l.state));
	lease_row_done(&l);
	if (r->state == RUN_RUNNING && !proc_alive(&r->owner))
		return "dead"; /* killed; the next run or recover deals with it */
	return run_state_name(r->state);
}

static json_t *remote_json(struct state *st, const char *lease_id)
{
	_cleanup_contact_ struct contact c;
	char when[32];

	contact_get(st, lease_id, &c);
	if (!c.target)
		return json_null();
	clock_rfc3339(c.tried_ns, when, sizeof(when));
	return json_pack("{s:s,s:b,s:s?,s:s?,s:o,s:i}", "target", c.target, "reached", (int)!c.away,
			 "tried", c.away ? when : NULL, "why", c.away ? c.why : NULL, "max_runs",
			 c.max_runs ? json_integer(c.max_runs) : json_null(), "reconnects",
			 (int)c.reconnects);
}

/* Below the row of its first command. */
static void ps_where(struct state *st, const char *lease_id)
{
	_cleanup_contact_ struct contact c;
	char age[32], again[48] = "";

	contact_get(st, lease_id, &c);
	if (!c.target)
		return;
	if (c.reconnects)
		(void)snprintf(again, sizeof(again), "; reconnected %u time%s", c.reconnects,
			       c.reconnects == 1 ? "" : "s");
	clock_human(clock_real_ns() - c.tried_ns, age, sizeof(age));
	if (c.away)
		(void)printf("  on %s: NOT REACHED %s ago: %s%s\n", c.target, age, c.why, again);
	else if (c.max_runs)
		(void)printf("  on %s, where at most %u go on at once%s\n", c.target, c.max_runs,
			     again);
	else
		(void)printf("  on %s%s\n", c.target, again);
}

static int ps_json(struct state *st, const struct run_row *v, size_t n)
{
	json_t *a = json_array();
	char *text;

	for (size_t i = 0; i < n; i++) {
		char lease[16], from[32];
		const char *state = shown_state(st, &v[i], lease);
		json_t *argv = json_loads(v[i].command ? v[i].command : "[]", 0, NULL);
		struct buf b = BUF_INIT(65536);

		clock_rfc3339(v[i].started_ns, from, sizeof(from));
		(void)str_printable(&b, v[i].workspace, strlen(v[i].workspace));
		(void)json_array_append_new(
		    a,
		    json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:s,s:o}", "run", v[i].id, "state",
			      state, "lease_state", lease, "phase", v[i].phase, "started", from,
			      "workspace", buf_text(&b), "exit_status",
			      v[i].exit_status < 0 ? json_null() : json_integer(v[i].exit_status),
			      "argv", argv ? argv : json_array(), "lease", v[i].lease_id, "remote",
			      remote_json(st, v[i].lease_id)));
		buf_done(&b);
	}
	text = json_dumps(a, JSON_INDENT(1));
	json_decref(a);
	if (text)
		(void)puts(text);
	free(text);
	return 0;
}

/* `under`: a further command in the sandbox of the row above, which shows how that stands. */
static void ps_line(struct state *st, const struct run_row *r, bool under)
{
	char lease[16], age[32], status[16] = "-";
	const char *state = shown_state(st, r, lease);

	clock_human((r->ended_ns ? r->ended_ns : clock_real_ns()) - r->started_ns, age,
		    sizeof(age));
	if (r->exit_status >= 0)
		(void)snprintf(status, sizeof(status), "%d", r->exit_status);
	(void)printf("%s%-*s  %-11s  %-11s  %-8s  %4s  %-12s  ", under ? "  " : "", under ? 16 : 18,
		     r->id, state, under ? "" : lease, r->phase, status, age);
	ui_print_command(r->command);
}

/* A sandbox's first command, then what ran in it after; the newest sandbox first. */
static void ps_table(struct state *st, const struct run_row *v, size_t n)
{
	(void)printf("%-18s  %-11s  %-11s  %-8s  %4s  %-12s  %s\n", "RUN", "STATE", "SANDBOX",
		     "PHASE", "EXIT", "TIME", "COMMAND");
	for (size_t i = 0; i < n; i++) {
		size_t before = 0;
		bool under = false;

		while (before < i && strcmp(v[before].lease_id, v[i].lease_id) != 0)
			before++;
		if (before < i)
			continue;
		/* They come newest first. */
		for (size_t k = n; k-- > i;) {
			if (strcmp(v[k].lease_id, v[i].lease_id) != 0)
				continue;
			ps_line(st, &v[k], under);
			if (!under)
				ps_where(st, v[k].lease_id);
			under = true;
		}
	}
}

int cmd_ps(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_runwords_ struct runwords f = {0};
	struct run_row *v = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int status = 0, r;

	if (!runwords_parse(&f, t_ps, argc, argv, NULL, &status))
		return status;
	r = state_open(&st, &e);
	if (r == 0)
		r = run_list(st.store, runwords_has(&f, P_ALL), NULL, &v, &n, &e);
	if (r < 0)
		return cli_fail(&e);
	if (runwords_has(&f, P_JSON)) {
		(void)ps_json(&st, v, n);
	} else {
		ps_table(&st, v, n);
	}
	run_list_free(v, n);
	return 0;
}

/*
 * The owner of the run is asked first, so that results come back; then made to hurry; then
 * killed, and the sweep ends what it left. Success is said only with proof that it is gone.
 */
static int stop_owner(const struct run_row *run, struct err *e)
{
	static const struct {
		int signo;
		int64_t wait_ms;
	} steps[] = {{SIGTERM, 60000}, {SIGTERM, 15000}, {SIGKILL, 5000}};

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		int r = proc_signal(&run->owner, steps[i].signo);

		if (r == -ESRCH)
			return 0;
		if (r < 0)
			return err_sys(e, -r, "stop run %s (process %d)", run->id,
				       (int)run->owner.pid);
		r = proc_wait_gone(&run->owner, clock_mono_ns() + steps[i].wait_ms * NS_PER_MS);
		if (r != -ETIMEDOUT)
			return r < 0 ? err_sys(e, -r, "wait for run %s", run->id) : 0;
		cli_say("run %s has not ended after %" PRId64 " s; asking harder", run->id,
			steps[i].wait_ms / 1000);
	}
	return err_set(
	    e, ERR_TIMEOUT,
	    "run %s (process %d) does not end, not even by KILL: its state is not confirmed",
	    run->id, (int)run->owner.pid);
}

static int end_kept(struct state *st, struct lease_row *l, const struct run_row *run, struct err *e)
{
	int r = sweep_claim(st, l, LEASE_RECOVERING, e);

	if (r == 0)
		r = sweep_end_sandbox(l, run->id, e);
	if (r < 0)
		return r;
	l->state = LEASE_RECOVERABLE;
	l->owner = (struct proc_id){0};
	l->monitor = (struct proc_id){0};
	return lease_save(st->store, l, e);
}

static void say_note(void *arg, bool warn, const char *text)
{
	(void)arg;
	(void)warn;
	cli_say("%s", text);
}

int cmd_stop(int argc, char **argv)
{
	const struct run_ui loud = {.note = say_note};
	_cleanup_state_ struct state st = {0};
	_cleanup_runwords_ struct runwords f = {0};
	struct run_row run = {0};
	struct lease_row l = {0};
	struct err e = ERR_INIT;
	int status = 0, r;

	if (!runwords_parse(&f, t_plain, argc, argv, "run", &status))
		return status;
	r = runwords_find(&f, &st, &run, &e);
	if (r == 0)
		r = lease_get(st.store, run.lease_id, &l, &e);
	if (r == 0 && run.state == RUN_RUNNING) {
		r = run_request_stop(st.store, run.id, &e);
		if (r == 0)
			r = stop_owner(&run, &e);
		if (r == 0)
			r = sweep_run(&st, &loud, &e) < 0 ? -1 : 0;
		if (r == 0)
			cli_say("run %s is stopped: 'airlock logs %s' shows how it ended", run.id,
				run.id);
	} else if (r == 0 && l.state == LEASE_KEPT) {
		(void)sweep_run(&st, &loud, NULL);
		r = end_kept(&st, &l, &run, &e);
		if (r == 0)
			cli_say(
			    "the sandbox of run %s is stopped; 'airlock recover %s' brings back what it holds, 'airlock rm "
			    "--force %s' gives it up",
			    run.id, run.id, run.id);
	} else if (r == 0) {
		cli_say("run %s is not going on (%s)", run.id, run_state_name(run.state));
	}
	lease_row_done(&l);
	run_row_done(&run);
	return r < 0 ? cli_fail(&e) : 0;
}
