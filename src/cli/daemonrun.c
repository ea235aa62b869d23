#include "cli/daemonrun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/daemonrun_internal.h"
#include "engine/interrupt.h"
#include "engine/runner.h"
#include "store/env.h"

static void say_counts(const json_t *record)
{
	static const struct {
		const char *key, *word;
	} words[] = {{"add", "added"},	    {"change", "changed"},  {"mode", "mode changed"},
		     {"delete", "deleted"}, {"merge", "merged"},    {"conflict", "CONFLICTS"},
		     {"refuse", "refused"}, {"fail", "NOT WRITTEN"}};
	const json_t *out = json_object_get(record, "sync_out"),
		     *counts = json_object_get(out, "counts");
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		json_int_t n = json_integer_value(json_object_get(counts, words[i].key));

		if (n)
			(void)buf_putf(&b, "%s%lld %s", b.len ? ", " : "", (long long)n,
				       words[i].word);
	}
	cli_say("results: %s", b.len ? buf_text(&b) : "nothing changed");
}

static void say_end(const struct watch *w, const json_t *run, const json_t *record)
{
	const char *status = daemonrun_member(run, "status"),
		   *reason = daemonrun_member(run, "reason");

	if (strcmp(status, "succeeded") != 0 && strcmp(status, "failed") != 0)
		cli_say("run %s is %s%s%s", w->id, status, reason[0] ? ": " : "", reason);
	else if (reason[0])
		cli_say("run %s failed: %s", w->id, reason);
	if (record && daemonrun_member(record, "error")[0])
		cli_say("%s", daemonrun_member(record, "error"));
	if (w->o->quiet)
		return;
	if (record)
		say_counts(record);
	if (json_is_true(json_object_get(run, "workKept")))
		cli_say("its work is kept: airlock recover %s", w->id);
	else if (json_is_true(json_object_get(run, "review")))
		cli_say("results wait: airlock diff %s, airlock apply %s", w->id, w->id);
}

static int exit_of(const struct watch *w, const json_t *run)
{
	const json_t *j = json_object_get(run, "exitStatus");

	/* The signal was ours; the daemon ended the command with one of its own. */
	if (w->cancelled && strcmp(daemonrun_member(run, "status"), "cancelled") == 0)
		return 128 + interrupt_signo();
	return json_is_integer(j) ? (int)json_integer_value(j) : EXIT_AIRLOCK;
}

static int finish(struct watch *w, const json_t *run, int *ret_status, char **ret_record,
		  struct err *e)
{
	char path[64];
	json_t *record = NULL;
	int status = 0, r;

	(void)snprintf(path, sizeof(path), "/api/runs/%s/report", w->id);
	r = daemon_ask(w->d, "GET", path, NULL, &status, &record, e);
	if (r == 0 && status != 200) {
		/* One that never began has no record. */
		json_decref(record);
		record = NULL;
	}
	if (r == 0) {
		say_end(w, run, record);
		*ret_status = exit_of(w, run);
		*ret_record = record ? json_dumps(record, JSON_COMPACT) : NULL;
	}
	json_decref(record);
	return r;
}

static int watch_run(struct watch *w, const char *env, int *ret_status, char **ret_record,
		     struct err *e)
{
	json_t *run = NULL;
	int r = daemonrun_start(w, env, e);

	if (r < 0)
		return r;
	if (!w->o->quiet)
		cli_say("run %s in environment %s of the daemon at %s; it gets no standard input",
			w->id, w->o->env_name, w->d->at.text);
	r = daemonrun_follow(w, &run, e);
	if (r == 2) {
		cli_say(
		    "run %s goes on without us: 'airlock logs %s' on the daemon's side shows it",
		    w->id, w->id);
		*ret_status = 128 + interrupt_signo();
		r = 1;
	} else if (r == 1) {
		r = finish(w, run, ret_status, ret_record, e);
		r = r < 0 ? r : 1;
	}
	json_decref(run);
	if (w->open)
		daemon_stream_done(&w->s);
	return r;
}

/* What only the command line knows is run here; that name with the daemon, too, is the daemon's. */
static bool known_here(struct state *st, const char *name)
{
	struct env_row row = {0};
	int r = env_get(st->store, name, &row, NULL);

	env_row_done(&row);
	return r == 0;
}

int daemonrun(struct state *st, struct runopts *o, int *ret_status, char **ret_record,
	      struct err *e)
{
	_cleanup_daemon_ struct daemon d = {0};
	_cleanup_free_ struct watch *w = calloc(1, sizeof(*w));
	char env[UUID_LEN + 1];
	int r;

	/* Providers, not environments. */
	if (strcmp(o->env_name, "native") == 0 || strcmp(o->env_name, "local") == 0)
		return 0;
	r = w ? daemon_find(st->dir, &d, e) : err_set(e, ERR_NOMEM, "daemon: out of memory");
	if (r == 0 && !o->quiet && !getenv("AIRLOCK_DAEMON"))
		cli_say("no daemon runs here: environment %s is this command's own", o->env_name);
	if (r <= 0)
		return r;
	r = daemonrun_find_env(&d, o->env_name, env, e);
	if (r == 0 && known_here(st, o->env_name)) {
		if (!o->quiet)
			cli_say("the daemon at %s has no environment %s: run here, without it",
				d.at.text, o->env_name);
		return 0;
	}
	if (r == 0)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "neither the daemon at %s nor 'airlock env list' has an environment %s",
		    d.at.text, o->env_name);
	if (r > 0 && daemonrun_beyond(o))
		r = err_set(
		    e, ERR_UNAVAILABLE,
		    "environment %s is the daemon's, and a run there has no --%s: leave it out, or run "
		    "without the daemon: AIRLOCK_DAEMON=none",
		    o->env_name, daemonrun_beyond(o));
	if (r > 0 && runopts_workspace(o, e) < 0)
		r = -1;
	if (r < 0)
		return r;
	*w = (struct watch){.d = &d,
			    .o = o,
			    .s = {.fd = -1},
			    .line = BUF_INIT(DAEMONRUN_LINE_MAX),
			    .data = BUF_INIT(DAEMONRUN_LINE_MAX)};
	r = watch_run(w, env, ret_status, ret_record, e);
	buf_done(&w->line);
	buf_done(&w->data);
	return r;
}
