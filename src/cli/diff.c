/* diff: what a run changed, the way git diff shows it. */
#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/pager.h"
#include "cli/pathspec.h"
#include "cli/summary.h"
#include "engine/changes_show.h"

#define WIDTH 80      /* of --stat where there is no terminal, as git */
#define NAME_WIDTH 50 /* of it, for names */
#define BAR_LEAST 10

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

struct diff {
	enum { PATCH, STAT, NAMES, STATUS, JSON } form;
	int color; /* -1 auto */
	bool no_pager, paged, exit_code, help;
	uint64_t context;
	struct pager pager;
	struct changes c;      /* of the part that is shown */
	struct buf a, b, line; /* one file's sides; a line that is being made */
	bool eyes, any;	       /* any: something was shown */
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

static int put(struct diff *d)
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
	return put(d);
}

/* --- --stat ------------------------------------------------------------------------------- */

struct stat_row {
	char *name; /* owned, quoted */
	struct patch_count n;
	uint64_t old_size, new_size;
	const struct shown *s;
};

static unsigned terminal_width(void)
{
	struct winsize w;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40 ? w.ws_col : WIDTH;
}

static unsigned digits(uint64_t n)
{
	unsigned k = 1;

	while (n >= 10)
		n /= 10, k++;
	return k;
}

static void bar(struct diff *d, char c, uint64_t n)
{
	if (n && d->color)
		(void)buf_puts(&d->line, c == '+' ? "\033[32m" : "\033[31m");
	for (uint64_t i = 0; i < n; i++)
		(void)buf_putc(&d->line, c);
	if (n && d->color)
		(void)buf_puts(&d->line, "\033[m");
}

/* At least one sign for a side that changed, as git draws it. */
static uint64_t scaled(uint64_t n, uint64_t width, uint64_t most)
{
	return !n || most <= width ? n : 1 + n * (width - 1) / most;
}

static void stat_row_out(struct diff *d, const struct stat_row *r, size_t name_w, unsigned num_w,
			 uint64_t graph_w, uint64_t most)
{
	size_t n = strlen(r->name), skip = n > name_w ? n - name_w + 3 : 0;

	(void)buf_putf(&d->line, " %s%-*s | ", skip ? "..." : "", (int)(name_w - (skip ? 3 : 0)),
		       r->name + skip);
	if (r->s->flags & CHANGE_REFUSED) {
		(void)buf_puts(&d->line, "refused");
	} else if (r->n.binary) {
		(void)buf_putf(&d->line, "%*s %llu -> %llu bytes", (int)num_w, "Bin",
			       (unsigned long long)r->old_size, (unsigned long long)r->new_size);
	} else {
		uint64_t add = r->n.added, del = r->n.deleted;

		(void)buf_putf(&d->line, "%*llu%s", (int)num_w,
			       (unsigned long long)add + (unsigned long long)del,
			       add + del ? " " : "");
		bar(d, '+', scaled(add, graph_w, most));
		bar(d, '-', scaled(del, graph_w, most));
	}
	if (r->s->flags & (CHANGE_CONFLICT | CHANGE_FAILED))
		(void)buf_puts(&d->line, " (conflict)");
	if (r->s->flags & CHANGE_HOST_EXEC)
		(void)buf_puts(&d->line, " (the host runs it)");
	(void)buf_putc(&d->line, '\n');
}

static int stat_total(struct diff *d, uint64_t files, uint64_t added, uint64_t deleted)
{
	if (!files)
		return 0;
	(void)buf_putf(&d->line, " %llu file%s changed", (unsigned long long)files,
		       files == 1 ? "" : "s");
	if (added || !deleted)
		(void)buf_putf(&d->line, ", %llu insertion%s(+)", (unsigned long long)added,
			       added == 1 ? "" : "s");
	if (deleted || !added)
		(void)buf_putf(&d->line, ", %llu deletion%s(-)", (unsigned long long)deleted,
			       deleted == 1 ? "" : "s");
	(void)buf_putc(&d->line, '\n');
	return put(d);
}

static int stat_fill(struct diff *d, struct stat_row *r, const struct shown *s, struct err *e)
{
	struct patch_file f;
	int k = 0;

	r->s = s;
	if (s->from) {
		(void)patch_quote(&d->line, d->c.prefix, s->from);
		(void)buf_puts(&d->line, " => ");
	}
	(void)patch_quote(&d->line, d->c.prefix, s->path);
	r->name = buf_take(&d->line);
	d->line = BUF_INIT(CHANGES_LINE_BUF);
	if (!r->name)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (!(s->flags & CHANGE_REFUSED))
		k = changes_sides(&d->c, s, &d->a, &d->b, &f, e);
	if (k == 0 && !(s->flags & CHANGE_REFUSED)) {
		k = patch_count(&f, &r->n);
		r->old_size = f.a.size;
		r->new_size = f.b.size;
	}
	return k;
}

static int stat_all(struct diff *d, struct err *e)
{
	struct stat_row *v = calloc(d->c.n + 1, sizeof(*v));
	uint64_t most = 0, added = 0, deleted = 0, files = 0, graph_w;
	size_t n = 0, name_w = 0;
	unsigned num_w = 1, width = terminal_width();
	int r = v ? 0 : err_set(e, ERR_NOMEM, "out of memory");

	for (size_t i = 0; i < d->c.n && r == 0; i++) {
		if (d->c.v[i].flags & CHANGE_NOTE)
			continue;
		r = stat_fill(d, &v[n], &d->c.v[i], e);
		if (v[n].n.added + v[n].n.deleted > most)
			most = v[n].n.added + v[n].n.deleted;
		if (v[n].n.binary && num_w < 3)
			num_w = 3;
		added += v[n].n.added;
		deleted += v[n].n.deleted;
		files += !(v[n].s->flags & CHANGE_REFUSED);
		if (v[n].name && strlen(v[n].name) > name_w)
			name_w = strlen(v[n].name);
		n++;
	}
	num_w = digits(most) > num_w ? digits(most) : num_w;
	name_w = name_w > NAME_WIDTH ? NAME_WIDTH : name_w;
	/* On a narrow terminal the names give way: without room for a bar it would be as long as the change. */
	if (name_w + num_w + 6 + BAR_LEAST > width)
		name_w = width - num_w - 6 - BAR_LEAST;
	graph_w = width - 6 - num_w - name_w;
	for (size_t i = 0; i < n && r == 0; i++) {
		stat_row_out(d, &v[i], name_w, num_w, graph_w, most);
		r = put(d);
	}
	if (r == 0)
		r = stat_total(d, files, added, deleted);
	for (size_t i = 0; v && i < n; i++)
		free(v[i].name);
	free(v);
	return r;
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
	if (set->commits && set->files)
		(void)buf_puts(
		    &d->line, "# airlock: commits wait with this set; 'airlock apply' of all of it "
			      "brings them too\n");
	return put(d);
}

/* Paths of a mapping are absolute: no `git apply` takes them for the workspace's. */
static int name_part(struct diff *d, size_t part)
{
	if (!part || !d->c.n || (d->form != PATCH && d->form != STAT))
		return 0;
	(void)buf_puts(&d->line, "# airlock: mapping ");
	(void)patch_quote(&d->line, "", d->c.part->src);
	(void)buf_putc(&d->line, '\n');
	return put(d);
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
		r = stat_all(d, e);
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
