#include "sync/gitindex.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"

#define RECORD_MAX (2 * PATH_MEMBER_MAX + 256)
#define SIDE_MAX 80 /* "<mode> <id>" */

struct side {
	char text[SIDE_MAX]; /* "" absent */
};

struct touched {
	size_t path; /* offset in names */
	struct side from, to;
	bool entry; /* the index has something under this name */
	bool keep;  /* the user's */
	bool skip;  /* skip-worktree */
};

struct follow {
	const struct git_repo *g;
	const struct indexlock *l;
	char *file; /* owned: GIT_INDEX_FILE= and the copy */
	int top_fd;
	struct buf names;
	struct touched *v; /* owned; in the order of paths */
	size_t n, cap;
	struct side next_from, next_to;
	bool have_meta;
};

static const char *name_of(const struct follow *f, size_t i)
{
	return f->names.data + f->v[i].path;
}

static int run(const struct follow *f, const char *const *words, struct process_records *rec,
	       const struct buf *in, struct err *e)
{
	const char *const extra[] = {f->file, NULL};
	struct process_opts io = PROCESS_OPTS_INIT;
	int r = indexlock_quiet(f->l, e);

	if (r < 0)
		return r;
	io.cwd_fd = f->top_fd;
	if (rec) {
		io.on_out = process_split_nul;
		io.on_out_arg = rec;
	}
	if (in) {
		io.in = in->data;
		io.in_len = in->len;
	}
	return git_run(f->g, words, extra, &io, e);
}

static void put_side(struct side *s, const char *mode, const char *id)
{
	if (strspn(mode, "0") >= 6 && mode[strspn(mode, "0")] == ' ')
		s->text[0] = '\0';
	else
		(void)snprintf(s->text, sizeof(s->text), "%.6s %.*s", mode, (int)strcspn(id, " "),
			       id);
}

/* ":<mode> <mode> <id> <id> <status>", then the path. */
static int on_diff(void *arg, const char *p, size_t n)
{
	struct follow *f = arg;
	struct touched *t;

	if (!f->have_meta) {
		size_t id = f->g->sha256 ? 64 : 40;

		if (n < 1 + 7 + 7 + 2 * (id + 1) + 1 || p[0] != ':')
			return -EPROTO;
		put_side(&f->next_from, p + 1, p + 15);
		put_side(&f->next_to, p + 8, p + 15 + id + 1);
		f->have_meta = true;
		return 0;
	}
	if (f->n == MEMBERS_MAX)
		return -E2BIG;
	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 64;

		t = reallocarray(f->v, cap, sizeof(*t));
		if (!t)
			return -ENOMEM;
		f->v = t;
		f->cap = cap;
	}
	t = &f->v[f->n++];
	*t = (struct touched){.path = f->names.len, .from = f->next_from, .to = f->next_to};
	f->have_meta = false;
	return buf_put(&f->names, p, n + 1);
}

/* First touched path that is not below key (n bytes) in byte order. */
static size_t lower(const struct follow *f, const char *key, size_t n)
{
	size_t lo = 0, hi = f->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strncmp(name_of(f, mid), key, n) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct touched *find(const struct follow *f, const char *key, size_t n)
{
	size_t i = lower(f, key, n);

	if (i < f->n && strncmp(name_of(f, i), key, n) == 0 && !name_of(f, i)[n])
		return &f->v[i];
	return NULL;
}

/*
 * An entry that stays keeps what would need its name: git would drop a staged file `a` when `a/b`
 * is added, and `a/b` when `a` is.
 */
static void guard(const struct follow *f, const char *path, size_t n)
{
	char key[2 * PATH_MEMBER_MAX + 2];
	struct touched *t;

	for (size_t i = 0; i < n; i++)
		if (path[i] == '/' && (t = find(f, path, i)))
			t->keep = true;
	if (n > 2 * PATH_MEMBER_MAX)
		return;
	memcpy(key, path, n);
	key[n] = '/';
	for (size_t i = lower(f, key, n + 1); i < f->n && strncmp(name_of(f, i), key, n + 1) == 0;
	     i++)
		f->v[i].keep = true;
}

/* "<tag> <mode> <id> <stage>\t<path>" */
static int on_entry(void *arg, const char *p, size_t n)
{
	const struct follow *f = arg;
	const char *tab = memchr(p, '\t', n);
	struct side now;
	struct touched *t;
	size_t len;

	if (!tab || n < 12 || tab - p < 12)
		return -EPROTO;
	len = n - (size_t)(tab + 1 - p);
	t = find(f, tab + 1, len);
	if (!t) {
		guard(f, tab + 1, len);
		return 0;
	}
	put_side(&now, p + 2, p + 9);
	t->entry = true;
	t->skip = p[0] == 'S' || p[0] == 's';
	if (tab[-1] != '0' || strcmp(now.text, t->from.text) != 0) {
		t->keep = true;
		guard(f, tab + 1, len);
	}
	return 0;
}

static int list(struct follow *f, const char *from, const char *to, struct err *e)
{
	const char *empty = git_empty_tree(f->g);
	const char *const diff[] = {"diff-tree",
				    "-r",
				    "-z",
				    "--raw",
				    "--no-abbrev",
				    "--no-renames",
				    "--ignore-submodules=none",
				    from[0] ? from : empty,
				    to[0] ? to : empty,
				    NULL};
	const char *const entries[] = {"ls-files", "-z", "-s", "-t", NULL};
	struct process_records rec = {.on_record = on_diff, .arg = f, .rest = BUF_INIT(RECORD_MAX)};
	int r = run(f, diff, &rec, NULL, e);

	if (r == -E2BIG)
		r = err_set(e, ERR_LIMIT,
			    "more than %d paths, or %d bytes of them, changed in history",
			    MEMBERS_MAX, GITBACK_PATHS_BYTES_MAX);
	buf_reset(&rec.rest);
	rec.on_record = on_entry;
	if (!r && f->n)
		r = run(f, entries, &rec, NULL, e);
	buf_done(&rec.rest);
	return r;
}

static bool moves(const struct touched *t)
{
	/* Absent in the index and in the old commit: the new file is added. */
	return !t->keep && (t->entry || !t->from.text[0]);
}

static int apply(struct follow *f, bool *ret_changed, struct err *e)
{
	static const char zeros[] =
	    "0000000000000000000000000000000000000000000000000000000000000000";
	const char *const info[] = {"update-index", "-z", "--index-info", NULL};
	const char *const mark[] = {"update-index", "-z", "--skip-worktree", "--stdin", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(GITBACK_PATHS_BYTES_MAX),
				 skip = BUF_INIT(GITBACK_PATHS_BYTES_MAX);
	int r = 0;

	/* What goes first makes room: a file for a directory of the same name, and the reverse. */
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < f->n; i++) {
			const struct touched *t = &f->v[i];

			if (!moves(t) || (t->to.text[0] != '\0') != (pass == 1))
				continue;
			if (pass == 0)
				(void)buf_putf(&in, "0 %.*s\t", f->g->sha256 ? 64 : 40, zeros);
			else
				(void)buf_putf(&in, "%s\t", t->to.text);
			(void)buf_put(&in, name_of(f, i), strlen(name_of(f, i)) + 1);
			if (pass == 1 && t->skip)
				(void)buf_put(&skip, name_of(f, i), strlen(name_of(f, i)) + 1);
		}
	}
	if (in.err || skip.err)
		return err_set(e, ERR_LIMIT, "more than %d bytes of names changed in history",
			       GITBACK_PATHS_BYTES_MAX);
	*ret_changed = in.len > 0;
	if (in.len)
		r = run(f, info, NULL, &in, e);
	/* F20: what a sparse checkout leaves out must not look deleted. */
	if (!r && skip.len)
		r = run(f, mark, NULL, &skip, e);
	return r;
}

int gitindex_follow(const struct git_repo *g, const struct indexlock *l, const char *from,
		    const char *to, struct err *e)
{
	struct follow f = {.g = g, .l = l, .names = BUF_INIT(GITBACK_PATHS_BYTES_MAX)};
	bool changed = false;
	int r;

	f.top_fd = open(g->top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (f.top_fd < 0)
		return err_sys(e, errno, "%s", g->top);
	if (asprintf(&f.file, "GIT_INDEX_FILE=%s", l->copy) < 0) {
		f.file = NULL;
		r = err_sys(e, ENOMEM, "%s", g->top);
	} else {
		r = indexlock_copy(l, e);
	}
	if (!r)
		r = list(&f, from, to, e);
	if (!r)
		r = apply(&f, &changed, e);
	if (!r && changed)
		r = indexlock_put(l, e);
	(void)close(f.top_fd);
	buf_done(&f.names);
	free(f.file);
	free(f.v);
	return r;
}
