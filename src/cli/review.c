/* runs, apply, discard: what became of the results of runs, and deciding about those that wait. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/pathspec.h"
#include "cli/summary.h"
#include "cli/ui.h"
#include "engine/changeset.h"
#include "engine/interrupt.h"
#include "engine/record.h"

#define EXIT_PARTLY 1
#define EXIT_REJECTED 3
#define EXIT_OTHER 4

enum { R_WAITING = 1, R_JSON, R_DRY_RUN, R_CONFLICT, R_YES };

const struct opt opts_runs[] = {
    {"waiting", 0, NULL, "only runs whose results wait for a decision", R_WAITING},
    {"json", 0, NULL, "one JSON array", R_JSON},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_apply[] = {
    {"dry-run", 'n', NULL, "say what would be done, write nothing", R_DRY_RUN},
    {"on-conflict", 0, "keep-host|take-sandbox",
     "when both sides changed a file (default: what the run said)", R_CONFLICT},
    {"json", 0, NULL, "say what was done as one JSON object", R_JSON},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_discard[] = {
    {"yes", 'y', NULL, "do not ask", R_YES},
    {NULL, 0, NULL, NULL, 0},
};

struct flags {
	bool on[R_YES + 1], help;
	int on_conflict;
};

static int set(void *arg, const struct opt *o, const char *v, struct err *e)
{
	struct flags *f = arg;

	if (o->id == 0)
		f->help = true;
	else
		f->on[o->id] = true;
	if (o->id != R_CONFLICT)
		return 0;
	f->on_conflict =
	    strcmp(v, "take-sandbox") == 0 ? CONFLICT_TAKE_SANDBOX : CONFLICT_KEEP_HOST;
	return strcmp(v, "take-sandbox") == 0 || strcmp(v, "keep-host") == 0
		   ? 0
		   : err_set(e, ERR_USAGE,
			     "--on-conflict %.40s: give one of keep-host, take-sandbox", v);
}

/* *ret_words: the words; false: *status is the verb's. */
static bool parse(struct flags *f, const struct opt *table, int argc, char **argv, size_t least,
		  size_t most, char ***ret_words, int *status)
{
	const struct opt *const tables[] = {table, opts_help, NULL};
	struct opt_parse p = {
	    .tables = tables, .verb = argv[0], .permute = true, .set = set, .arg = f};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);
	size_t n = strv_len(p.words);

	*f = (struct flags){.help = f->help,
			    .on_conflict = f->on[R_CONFLICT] ? f->on_conflict : -1,
			    .on = {false, f->on[1], f->on[2], f->on[3], f->on[4], f->on[5]}};
	*ret_words = p.words;
	if (r == 0 && f->help) {
		*status = cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
		return false;
	}
	if (r == 0 && n < least)
		r = err_set(&e, ERR_USAGE, "%s needs a run: 'airlock help %s'", argv[0], argv[0]);
	if (r == 0 && n > most)
		r = err_set(&e, ERR_USAGE, "%s takes no word %.80s", argv[0], p.words[most]);
	if (r < 0)
		*status = cli_fail(&e);
	return r == 0;
}

/* --- runs --------------------------------------------------------------------------------- */

struct line {
	const char *state;
	char results[64];
	uint64_t waiting;
	struct err broken; /* why the set cannot be read */
};

static const char *state_of(struct state *st, const struct changeset *c, char *results, size_t n)
{
	struct lease_row l = {0};
	const char *state = run_state_name(c->run.state);
	bool dead = c->run.state == RUN_RUNNING && !proc_alive(&c->run.owner);

	results[0] = '\0';
	if (lease_get(st->store, c->run.lease_id, &l, NULL) == 0 && l.state == LEASE_RECOVERABLE)
		(void)snprintf(results, n, "recoverable");
	lease_row_done(&l);
	return dead ? "dead" : state;
}

static void look(struct state *st, const struct changeset *c, struct line *ret)
{
	*ret = (struct line){.broken = ERR_INIT};
	ret->state = state_of(st, c, ret->results, sizeof(ret->results));
	if (c->run.state == RUN_RUNNING || ret->results[0])
		return;
	if (c->files)
		ret->waiting = changeset_waiting(c, &ret->broken);
	if (ret->broken.code != ERR_NONE)
		(void)snprintf(ret->results, sizeof(ret->results), "damaged");
	else if (c->files)
		(void)snprintf(ret->results, sizeof(ret->results), "%" PRIu64 " wait%s",
			       ret->waiting, c->commits ? " + commits" : "");
	else if (c->decided[0])
		(void)snprintf(ret->results, sizeof(ret->results), "%s", c->decided);
	else if (c->review || c->run.state == RUN_FAILED)
		(void)snprintf(ret->results, sizeof(ret->results), "none");
	else
		(void)snprintf(ret->results, sizeof(ret->results), "published");
}

static void put_line(const struct changeset *c, const struct line *l)
{
	char when[40], results[64];

	clock_rfc3339(c->run.started_ns, when, sizeof(when));
	(void)snprintf(results, sizeof(results), "%s", l->results[0] ? l->results : "-");
	(void)printf("%-16s  %-11s  %-18s  %4d  %.19s  ", c->run.id, l->state, results,
		     c->run.exit_status, when);
	ui_print_command(c->run.command);
}

static json_t *json_line(const struct changeset *c, const struct line *l)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	json_t *argv = json_loads(c->run.command ? c->run.command : "[]", 0, NULL);
	char from[40], to[40];

	clock_rfc3339(c->run.started_ns, from, sizeof(from));
	clock_rfc3339(c->run.ended_ns, to, sizeof(to));
	(void)str_printable(&b, c->run.workspace, strlen(c->run.workspace));
	return json_pack("{s:s,s:s,s:s,s:I,s:b,s:b,s:s,s:o,s:s,s:i,s:o}", "run", c->run.id, "state",
			 l->state, "results", l->results[0] ? l->results : "none", "waiting",
			 (json_int_t)l->waiting, "commits_wait", c->commits && c->files, "review",
			 c->review, "started", from, "ended",
			 c->run.ended_ns ? json_string(to) : json_null(), "workspace", buf_text(&b),
			 "exit_status", c->run.exit_status, "argv", argv ? argv : json_array());
}

static int list_runs(struct state *st, const struct flags *f, struct err *e)
{
	json_t *a = f->on[R_JSON] ? json_array() : NULL;
	struct run_row *v = NULL;
	size_t n = 0;
	char *text;
	int r = run_list(st->store, true, NULL, &v, &n, e);

	if (r == 0 && !a)
		(void)printf("%-16s  %-11s  %-18s  %4s  %-19s  %s\n", "RUN", "STATE", "RESULTS",
			     "EXIT", "STARTED", "COMMAND");
	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_changeset_ struct changeset c = {0};
		struct line l;

		r = changeset_of(st, &v[i], &c, e);
		if (r < 0)
			break;
		if (f->on[R_WAITING] && !c.files)
			continue;
		look(st, &c, &l);
		if (a)
			(void)json_array_append_new(a, json_line(&c, &l));
		else
			put_line(&c, &l);
	}
	run_list_free(v, n);
	text = a && r == 0 ? json_dumps(a, JSON_INDENT(1)) : NULL;
	json_decref(a);
	if (text)
		(void)puts(text);
	free(text);
	return r;
}

int cmd_runs(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_strv_ char **words = NULL;
	struct flags f = {0};
	struct err e = ERR_INIT;
	int status = 0, r;

	if (!parse(&f, opts_runs, argc, argv, 0, 0, &words, &status))
		return status;
	r = state_open(&st, &e);
	if (r == 0)
		r = list_runs(&st, &f, &e);
	return r < 0 ? cli_fail(&e) : 0;
}

/* --- apply -------------------------------------------------------------------------------- */

static bool something_open(const struct unpack_report *u)
{
	for (size_t i = 0; i < u->changes_len; i++)
		if (u->changes[i].action == UA_CONFLICT && !changeset_taken(&u->changes[i]))
			return true;
	return u->counts[UA_REFUSE] || u->counts[UA_FAIL] || u->counts[UA_NOT_TRASHED];
}

static bool partly(const struct apply_result *a)
{
	for (size_t i = 0; i < a->t.maps_len; i++)
		if (something_open(&a->t.maps[i].rep))
			return true;
	return something_open(&a->t.out) || a->t.history.outcome == HISTORY_CONFLICT ||
	       a->t.history.outcome == HISTORY_FAILED;
}

static void say_apply(const struct apply_result *a, const char *word, const char *run_dir, bool dry)
{
	if (!a->done) {
		cli_say("nothing of run %s waits", word);
		return;
	}
	summary_results(&a->t, run_dir);
	if (dry)
		cli_say("a dry run: nothing was written");
	else if (a->left || a->commits_wait)
		cli_say("still waiting: %" PRIu64 " path%s%s: airlock diff %s", a->left,
			a->left == 1 ? "" : "s", a->commits_wait ? " and the commits" : "", word);
	else
		cli_say("nothing of run %s waits any more", word);
}

static int json_apply(const struct apply_result *a)
{
	json_t *j = json_pack("{s:I,s:I,s:b,s:o,s:I}", "selected", (json_int_t)a->selected, "left",
			      (json_int_t)a->left, "commits_wait", a->commits_wait, "counts",
			      record_counts(&a->t.out), "bytes_written",
			      (json_int_t)a->t.out.bytes_written);
	char *text;

	(void)json_object_set_new(j, "maps", record_maps(&a->t));
	(void)json_object_set_new(j, "history", record_history(&a->t.history));
	text = json_dumps(j, JSON_COMPACT);
	json_decref(j);
	if (text)
		(void)puts(text);
	free(text);
	return 0;
}

static int apply(struct state *st, char *const *words, const struct flags *f, int *status,
		 struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0};
	struct apply_result a = {0};
	struct pathspec spec = {0};
	struct apply_opts o = {.dry_run = f->on[R_DRY_RUN], .on_conflict = f->on_conflict};
	struct ui ui;
	int r = changeset_find(st, words[0], &c, e);

	if (r == 0)
		r = pathspec_init(&spec, words + 1, &c, e);
	if (r < 0) {
		pathspec_done(&spec);
		return r;
	}
	if (!pathspec_all(&spec)) {
		o.match = pathspec_match;
		o.touches = pathspec_touches;
		o.check = pathspec_check;
		o.arg = &spec;
	}
	ui_init(&ui, false, f->on[R_JSON]);
	r = changeset_apply(st, c.run.id, &o, &ui.run, &a, e);
	ui_done(&ui);
	if (r == 0) {
		if (f->on[R_JSON])
			(void)json_apply(&a);
		say_apply(&a, c.run.id, c.run_dir, o.dry_run);
		*status = partly(&a) ? EXIT_PARTLY : 0;
	} else if (a.done) {
		/* A part failed after others: what is done is done. */
		say_apply(&a, c.run.id, c.run_dir, o.dry_run);
		*status = r == -EBADMSG ? EXIT_REJECTED : EXIT_OTHER;
	} else if (r == -EBADMSG) {
		*status = EXIT_REJECTED;
	} else if (e->code != ERR_USAGE) {
		*status = EXIT_OTHER;
	}
	transfer_done(&a.t);
	pathspec_done(&spec);
	return r;
}

int cmd_apply(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_strv_ char **words = NULL;
	struct flags f = {0};
	struct err e = ERR_INIT;
	int status = 0, k, r;

	if (!parse(&f, opts_apply, argc, argv, 1, SIZE_MAX, &words, &status))
		return status;
	status = EXIT_OTHER;
	r = interrupt_setup(&e);
	if (r == 0)
		r = state_open(&st, &e);
	if (r == 0)
		r = apply(&st, words, &f, &status, &e);
	if (r >= 0)
		return status;
	k = cli_fail(&e);
	return e.code == ERR_USAGE ? k : status;
}

/* --- discard ------------------------------------------------------------------------------ */

static bool agreed(const char *run)
{
	char answer[16] = "";

	(void)fprintf(stderr, "airlock: drop the results of run %s for good? [y/N] ", run);
	(void)fflush(stderr);
	return fgets(answer, sizeof(answer), stdin) &&
	       (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0 ||
		strcmp(answer, "Y\n") == 0);
}

static int discard(struct state *st, const char *word, bool yes, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0};
	struct err broken = ERR_INIT;
	uint64_t n;
	int r = changeset_find(st, word, &c, e);

	if (r < 0)
		return r;
	if (!changeset_waits(&c)) {
		cli_say("nothing of run %s waits", c.run.id);
		return 0;
	}
	n = changeset_waiting(&c, &broken);
	if (broken.code != ERR_NONE)
		cli_say("the set of run %s cannot be read (%s)", c.run.id, broken.text);
	cli_say("run %s: waiting: %" PRIu64 " changed path%s%s", c.run.id, n, n == 1 ? "" : "s",
		c.commits ? " and commits" : "");
	if (!yes && isatty(STDIN_FILENO) != 1)
		return err_set(e, ERR_USAGE, "there is nobody to ask: discard --yes %s", c.run.id);
	if (!yes && !agreed(c.run.id))
		return err_set(e, ERR_CANCELLED, "nothing was dropped");
	r = changeset_discard(st, &c, e);
	if (r >= 0)
		cli_say("%s", r > 0 ? "dropped"
				    : "nothing of it waits any more: it was applied meanwhile");
	return r < 0 ? r : 0;
}

int cmd_discard(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_strv_ char **words = NULL;
	struct flags f = {0};
	struct err e = ERR_INIT;
	int status = 0, r;

	if (!parse(&f, opts_discard, argc, argv, 1, 1, &words, &status))
		return status;
	r = state_open(&st, &e);
	if (r == 0)
		r = discard(&st, words[0], f.on[R_YES], &e);
	return r < 0 ? cli_fail(&e) : 0;
}
