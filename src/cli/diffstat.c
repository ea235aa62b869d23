/* diff --stat: a line for each file, its bar as wide as the terminal allows, and the sum. */
#include "cli/diff_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"

#define WIDTH 80      /* where there is no terminal, as git */
#define NAME_WIDTH 50 /* for names */
#define BAR_LEAST 10

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
	return diff_put(d);
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

int diff_stat(struct diff *d, struct err *e)
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
		r = diff_put(d);
	}
	if (r == 0)
		r = stat_total(d, files, added, deleted);
	for (size_t i = 0; v && i < n; i++)
		free(v[i].name);
	free(v);
	return r;
}
