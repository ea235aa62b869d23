#include "sync/quarantine_show.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "os/beneath.h"
#include "sync/quarantine_inside.h"

#define SUBJECT_MAX 200 /* bytes */
#define PATH_SHOWN 200
#define NAMES_SHOWN 8 /* in the list for one line */
#define NAMES_TEXT 480

/* "<id> <subject>" of each commit, of which only the beginning is kept, however long it is. */
struct subjects {
	struct buf *lines;
	char text[BUNDLE_OID_MAX + 1 + SUBJECT_MAX];
	size_t n, commits;
};

static void put_subject(struct subjects *s)
{
	size_t id = strspn(s->text, "0123456789abcdef"), at = id + (s->text[id] == ' ');

	if (s->commits++ >= COMMIT_LINES_MAX)
		return;
	(void)buf_putf(s->lines, "commit %.*s ", (int)(id < 10 ? id : 10), s->text);
	(void)str_printable(s->lines, s->text + at, s->n - at);
	(void)buf_putc(s->lines, '\n');
}

static int on_log(void *arg, const char *p, size_t n)
{
	struct subjects *s = arg;

	for (size_t i = 0; i < n; i++) {
		if (p[i]) {
			if (s->n < sizeof(s->text) - 1)
				s->text[s->n++] = p[i];
			continue;
		}
		s->text[s->n] = '\0';
		put_subject(s);
		s->n = 0;
	}
	return s->lines->err;
}

static int list_commits(const struct quarantine *q, const char *head, const char *base,
			struct buf *lines, struct err *e)
{
	static const char *const words[] = {"log",	  "-z",		  "--format=%H %s",
					    "--no-color", "--no-mailmap", "--no-decorate",
					    "--no-notes", "--stdin",	  NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(256);
	struct subjects s = {.lines = lines};
	struct process_opts io = PROCESS_OPTS_INIT;
	int r;

	(void)buf_putf(&in, "%s\n", head);
	if (base[0])
		(void)buf_putf(&in, "^%s\n", base);
	io.in = buf_text(&in);
	io.in_len = in.len;
	io.on_out = on_log;
	io.on_out_arg = &s;
	r = quarantine_git(q, words, &io, e);
	if (s.n) {
		s.text[s.n] = '\0';
		put_subject(&s);
	}
	if (r == 0 && s.commits > COMMIT_LINES_MAX)
		(void)buf_putf(lines, "... and %zu more commits\n", s.commits - COMMIT_LINES_MAX);
	return r;
}

struct absent {
	struct quarantine_show *s;
	struct beneath host;
	bool more; /* than are named in the one line */
};

static bool is_absent(struct absent *a, const char *path)
{
	struct stat st;
	int r = a->s->has ? a->s->has(a->s->arg, path) : -ENOENT;

	if (r >= 0)
		return r == 0;
	r = beneath_stat(&a->host, path, &st);
	return r == 0 ? S_ISDIR(st.st_mode) : r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

static int on_path(void *arg, const char *p, size_t n)
{
	struct absent *a = arg;
	struct quarantine_show *s = a->s;
	size_t shown = n < PATH_SHOWN ? n : PATH_SHOWN;

	if (!is_absent(a, p))
		return 0;
	a->more |= s->missing_n == NAMES_SHOWN || s->missing->len + 4 * shown + 7 > NAMES_TEXT;
	if (!a->more) {
		if (s->missing_n)
			(void)buf_puts(s->missing, ", ");
		(void)str_printable(s->missing, p, shown);
	}
	if (s->missing_n++ >= COMMIT_LINES_MAX || !s->lines)
		return 0;
	(void)buf_puts(s->lines, "missing ");
	(void)str_printable(s->lines, p, n);
	return buf_putc(s->lines, '\n');
}

/* Submodules are directories of their own, which no commit fills. */
static int list_missing(const struct quarantine *q, const char *head, const char *base,
			struct absent *a, struct err *e)
{
	const char *const words[] = {"diff-tree",
				     "-r",
				     "-z",
				     "--name-only",
				     "--no-renames",
				     "--diff-filter=d",
				     "--no-ext-diff",
				     "--no-textconv",
				     "--ignore-submodules=all",
				     base[0] ? base : git_empty_tree(q->host),
				     head,
				     NULL};
	struct process_records rec = {
	    .on_record = on_path, .arg = a, .rest = BUF_INIT(2 * PATH_MEMBER_MAX)};
	struct process_opts io = PROCESS_OPTS_INIT;
	int r;

	io.on_out = process_split_nul;
	io.on_out_arg = &rec;
	r = quarantine_git(q, words, &io, e);
	buf_done(&rec.rest);
	if (r == 0 && a->s->lines && a->s->missing_n > COMMIT_LINES_MAX)
		(void)buf_putf(a->s->lines, "... and %llu more files\n",
			       (unsigned long long)a->s->missing_n - COMMIT_LINES_MAX);
	return r;
}

int quarantine_show(const struct quarantine *q, const char *head, const char *base,
		    struct quarantine_show *s, struct err *e)
{
	_cleanup_fd_ int top = open(q->host->top, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct absent a = {.s = s, .host = {.root = top}};
	int r = top < 0 ? err_sys(e, errno, "%s", q->host->top) : 0;

	if (r == 0 && s->lines)
		r = list_commits(q, head, base, s->lines, e);
	if (r == 0)
		r = list_missing(q, head, base, &a, e);
	if (r == 0 && a.more)
		(void)buf_puts(s->missing, s->missing->len ? ", ..." : "...");
	return r;
}
