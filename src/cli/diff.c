/* diff: what a run changed, the way git diff shows it. */
#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/diff_internal.h"
#include "cli/pathspec.h"
#include "cli/summary.h"
#include "engine/changes_show.h"

enum id {
	O_STAT = 1,
	O_NAMES,
	O_STATUS,
	O_JSON,
	O_COLOR,
	O_NO_COLOR,
	O_NO_PAGER,
	O_UNIFIED,
	O_EXIT,
	O_HELP0 = 0
};

const struct opt opts_diff[] = {
    {"stat", 0, NULL, "changed lines of each file", O_STAT},
    {"name-only", 0, NULL, "names", O_NAMES},
    {"name-status", 0, NULL, "names with a letter: A M D T R, U conflict, ! refused", O_STATUS},
    {"json", 0, NULL, "one JSON array", O_JSON},
    {"unified", 'U', "N", "lines of context (default 3)", O_UNIFIED},
    {"color", 0, "=always|never|auto", "colour (default auto: on a terminal)", O_COLOR},
    {"no-color", 0, NULL, "as --color=never", O_NO_COLOR},
    {"no-pager", 0, NULL, "straight to the terminal", O_NO_PAGER},
    {"exit-code", 0, NULL, "exit status 1 if there is a difference", O_EXIT},
    {NULL, 0, NULL, NULL, 0},
};

static int set(void *arg, const struct opt *o, const char *v, struct err *e)
{
	struct diff *d = arg;

	switch (o->id) {
	case O_STAT:
		d->form = STAT;
		return 0;
	case O_NAMES:
		d->form = NAMES;
		return 0;
	case O_STATUS:
		d->form = STATUS;
		return 0;
	case O_JSON:
		d->form = JSON;
		return 0;
	case O_COLOR:
		d->color = !v || strcmp(v, "always") == 0 ? 1 : strcmp(v, "never") == 0 ? 0 : -1;
		return !v || d->color >= 0 || strcmp(v, "auto") == 0
			   ? 0
			   : err_set(e, ERR_USAGE, "--color=%.40s: give always, never or auto", v);
	case O_NO_COLOR:
		d->color = 0;
		return 0;
	case O_NO_PAGER:
		d->no_pager = true;
		return 0;
	case O_EXIT:
		d->exit_code = true;
		return 0;
	case O_UNIFIED:
		return str_to_u64(v, 1000000, &d->context) < 0
			   ? err_set(e, ERR_USAGE, "--unified %.40s: give a number of lines", v)
			   : 0;
	default:
		d->help = true;
		return 0;
	}
}

static int emit(void *arg, const char *p, size_t n)
{
	return pager_write(&((struct diff *)arg)->pager, p, n);
}

int diff_put(struct diff *d)
{
	int r = d->line.err ? d->line.err : emit(d, buf_text(&d->line), d->line.len);

	buf_reset(&d->line);
	return r;
}

/* --- forms -------------------------------------------------------------------------------- */

static int name_one(struct diff *d, size_t i)
{
	const struct shown *s = &d->c.v[i];

	if (s->flags & CHANGE_NOTE)
		return 0;
	if (d->form == STATUS) {
		(void)buf_putc(&d->line, changes_letter(s));
		if (s->from)
			(void)buf_putf(&d->line, "%03u\t", s->similarity);
		if (s->from)
			(void)patch_quote(&d->line, d->c.prefix, s->from);
		(void)buf_putc(&d->line, '\t');
	}
	(void)patch_quote(&d->line, d->c.prefix, s->path);
	if (d->form == STATUS && s->flags & CHANGE_HOST_EXEC)
		(void)buf_puts(&d->line, "\thost-executable");
	(void)buf_putc(&d->line, '\n');
	return diff_put(d);
}

/* --- the verb ----------------------------------------------------------------------------- */

/* What a reader must know before the first line; a comment to git apply. */
static int preface(struct diff *d, const struct changeset *set)
{
	char when[40];

	if (d->form == JSON || d->form == NAMES || d->form == STATUS)
		return 0;
	if (!set->files && set->run.ended_ns) {
		clock_rfc3339(set->run.ended_ns, when, sizeof(when));
		(void)buf_putf(
		    &d->line,
		    "# airlock: run %s is over (%s): this is what was sent in, as far as it is kept, "
		    "against the workspace as it is now\n",
		    set->run.id, when);
	}
	/* As git log --oneline, newest first; and what a status after an apply would call deleted. */
	changeset_tell_commits(set, "'airlock apply'", d->all, &d->line);
	return diff_put(d);
}

/* Paths of a mapping are absolute: no `git apply` takes them for the workspace's. */
static int name_part(struct diff *d, size_t part)
{
	if (!part || !d->c.n || (d->form != PATCH && d->form != STAT))
		return 0;
	(void)buf_puts(&d->line, "# airlock: mapping ");
	(void)patch_quote(&d->line, "", d->c.part->src);
	(void)buf_putc(&d->line, '\n');
	return diff_put(d);
}

static int show_part(struct diff *d, size_t part, json_t *array, struct err *e)
{
	const struct patch_style st = {.color = d->color,
				       .eyes = d->eyes,
				       .context = (unsigned)d->context,
				       .emit = emit,
				       .arg = d};
	const struct changes_view v = {&d->c, &st, summary_rule, &d->a, &d->b, &d->line};
	int r = name_part(d, part);

	d->any |= d->c.n > 0;
	if (r == 0 && d->form == STAT)
		r = diff_stat(d, e);
	for (size_t i = 0; d->form != STAT && i < d->c.n && r == 0; i++)
		r = d->form == PATCH  ? changes_patch(&v, i, e)
		    : d->form == JSON ? changes_json(&v, i, array, e)
				      : name_one(d, i);
	return r;
}

static int emit_json(struct diff *d, json_t *array)
{
	char *text = json_dumps(array, JSON_INDENT(1));
	int r = text ? emit(d, text, strlen(text)) : -ENOMEM;

	free(text);
	return r == 0 ? emit(d, "\n", 1) : r;
}

/*
 * Once for what is asked, then again to show it: nothing goes out where a word matched nothing. A part that is not asked
 * for is not looked at: it may be damaged.
 */
static int each_part(struct diff *d, const struct changeset *set, struct pathspec *spec,
		     json_t *array, struct err *e)
{
	const struct changes_filter f = {pathspec_match, spec};
	size_t n = changeset_parts(set);
	bool begun = false;
	int r = 0;

	for (size_t i = 0; r == 0 && n > 1 && i < n; i++) {
		if (!pathspec_touches(spec, i))
			continue;
		r = changes_load(&d->c, set, i, &f, e);
		changes_done(&d->c);
	}
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (!pathspec_touches(spec, i))
			continue;
		r = changes_load(&d->c, set, i, &f, e);
		if (r == 0 && !begun)
			r = pathspec_check(spec, e);
		if (r == 0 && !begun) {
			begun = true;
			pager_start(&d->pager, d->paged);
			r = preface(d, set);
		}
		if (r == 0)
			r = show_part(d, i, array, e);
		changes_done(&d->c);
	}
	return r;
}

/* A reader that left early is no failure. */
static int finish(struct diff *d, int r, struct err *e)
{
	pager_end(&d->pager);
	changes_done(&d->c);
	buf_done(&d->a);
	buf_done(&d->b);
	buf_done(&d->line);
	if (r < 0 && r != -EPIPE)
		return cli_fail(e->code == ERR_NONE ? (err_sys(e, -r, "write the difference"), e)
						    : e);
	return d->exit_code && d->any;
}

static int diff_run(struct diff *d, char *const *words, struct err *e)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_changeset_ struct changeset set = {0};
	json_t *array = d->form == JSON ? json_array() : NULL;
	struct pathspec spec = {0};
	bool tty = isatty(STDOUT_FILENO) == 1;
	int r = state_open(&st, e);

	if (d->color < 0)
		d->color = tty && !getenv("NO_COLOR");
	d->eyes = tty || d->color;
	d->paged = tty && !d->no_pager && d->form != JSON;
	if (r == 0)
		r = changeset_find(&st, words[0], &set, e);
	if (r == 0 && set.files && set.broken.code != ERR_NONE) {
		*e = set.broken;
		r = -EBADMSG;
	}
	d->all = !words[1];
	d->any = d->all && set.commits && !set.decided[0];
	if (r == 0)
		r = pathspec_init(&spec, words + 1, &set, e);
	if (r == 0)
		r = each_part(d, &set, &spec, array, e);
	if (r == 0 && array)
		r = emit_json(d, array);
	json_decref(array);
	pathspec_done(&spec);
	return r;
}

int cmd_diff(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_diff, opts_help, NULL};
	struct diff d = {.color = -1,
			 .context = 3,
			 .pager = {.fd = STDOUT_FILENO},
			 .a = BUF_INIT(CHANGES_TEXT_BUF),
			 .b = BUF_INIT(CHANGES_TEXT_BUF),
			 .line = BUF_INIT(CHANGES_LINE_BUF)};
	struct opt_parse p = {
	    .tables = tables, .verb = argv[0], .permute = true, .set = set, .arg = &d};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && d.help) {
		strv_free(p.words);
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	}
	if (r == 0 && !strv_len(p.words))
		r = err_set(&e, ERR_USAGE, "diff needs a run: airlock diff RUN [PATH...]");
	if (r == 0)
		r = diff_run(&d, p.words, &e);
	strv_free(p.words);
	return finish(&d, r, &e);
}
