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
#include "sync/quarantine_differ.h"
#include "sync/quarantine_inside.h"
#include "sync/quarantine_list.h"

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

/* Names of one kind: in the lines, and the first of them in one. */
struct names {
	const char *word;
	struct buf *lines, *one; /* lines may be NULL */
	uint64_t n;
	bool more; /* than are named in the one line */
};

/* word: of its line. note: what stands behind it in the one. */
static int put_as(struct names *v, const char *word, const char *note, const char *p)
{
	size_t n = strlen(p), shown = n < PATH_SHOWN ? n : PATH_SHOWN;

	v->more |= v->n == NAMES_SHOWN || v->one->len + 4 * shown + strlen(note) + 7 > NAMES_TEXT;
	if (!v->more) {
		if (v->n)
			(void)buf_puts(v->one, ", ");
		(void)str_printable(v->one, p, shown);
		(void)buf_puts(v->one, note);
	}
	if (v->n++ >= COMMIT_LINES_MAX || !v->lines)
		return 0;
	(void)buf_putf(v->lines, "%s ", word);
	(void)str_printable(v->lines, p, n);
	return buf_putc(v->lines, '\n');
}

static int put_name(struct names *v, const char *p)
{
	return put_as(v, v->word, "", p);
}

static void end_names(const struct names *v, struct buf *lines)
{
	if (v->more)
		(void)buf_puts(v->one, v->one->len ? ", ..." : "...");
	if (!lines)
		return;
	if (v->lines != lines)
		(void)buf_put(lines, buf_text(v->lines), v->lines->len);
	if (v->n > COMMIT_LINES_MAX)
		(void)buf_putf(lines, "... and %llu more files%s\n",
			       (unsigned long long)v->n - COMMIT_LINES_MAX,
			       v->lines != lines ? " that differ" : "");
}

struct compare {
	struct quarantine_show *s;
	struct beneath host;
	struct names missing, differs;
	struct quarantine_differ *d;
	struct err *e;
	/* Of the record before the path: ":<mode> <mode> <oid> <oid> <status>". */
	char oid[BUNDLE_OID_MAX + 1];
	bool link, exec, path_next;
};

/* 1 filled, 0 absent; negative: it is there, and nobody knows what. */
static int here(struct compare *c, const char *path, struct quarantine_file *ret)
{
	struct stat st;
	int r = c->s->has ? c->s->has(c->s->arg, path, ret) : -ENOENT;

	if (r >= 0)
		return r;
	r = beneath_stat(&c->host, path, &st);
	if (r == 0 ? S_ISDIR(st.st_mode) : r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
		return 0;
	r = r == 0 ? quarantine_file_at(&c->host, path, ret) : r;
	return r < 0 ? r : 1;
}

static int on_differs(void *arg, const char *path, enum quarantine_difference how)
{
	static const char *const words[][2] = {
	    [DIFFERS_BYTES] = {"differs", ""},
	    [DIFFERS_MODE] = {"mode", " (mode)"},
	    [DIFFERS_CONVERTED] = {"converted", " (converted by git, not compared)"}};

	return put_as(&((struct compare *)arg)->differs, words[how][0], words[how][1], path);
}

static int on_meta(struct compare *c, const char *p)
{
	char mode[8];

	if (sscanf(p, ":%*7s %7s %*64s %64s", mode, c->oid) != 2)
		return -EPROTO;
	c->link = strcmp(mode, "120000") == 0;
	c->exec = strcmp(mode, "100755") == 0;
	c->path_next = true;
	return 0;
}

static int on_record(void *arg, const char *p, size_t n)
{
	struct compare *c = arg;
	struct quarantine_file f = {0};
	int r;

	(void)n;
	if (!c->path_next)
		return on_meta(c, p);
	c->path_next = false;
	r = here(c, p, &f);
	if (r == 0)
		return put_name(&c->missing, p);
	/* What cannot be looked at is not called the same. */
	if (r < 0 || f.link != c->link)
		return put_name(&c->differs, p);
	return quarantine_differ_add(c->d, c->oid, c->exec, p, &f, c->e);
}

/* Submodules are directories of their own, which no commit fills. */
static int list_files(const struct quarantine *q, const char *head, const char *base,
		      struct compare *c, struct err *e)
{
	const char *const words[] = {"diff-tree",
				     "-r",
				     "-z",
				     "--raw",
				     "--no-abbrev",
				     "--no-renames",
				     "--diff-filter=d",
				     "--no-ext-diff",
				     "--no-textconv",
				     "--ignore-submodules=all",
				     base[0] ? base : git_empty_tree(q->host),
				     head,
				     NULL};
	int r = quarantine_list_paths(q, words, on_record, c, e);

	return r < 0 ? r : quarantine_differ_end(c->d, e);
}

int quarantine_show(const struct quarantine *q, const char *head, const char *base,
		    struct quarantine_show *s, struct err *e)
{
	_cleanup_fd_ int top = open(q->host->top, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_buf_ struct buf other = BUF_INIT(COMMIT_LINES_MAX * (4 * PATH_MEMBER_MAX + 16));
	struct compare c = {.s = s,
			    .host = {.root = top},
			    .missing = {"missing", s->lines, s->missing, 0, false},
			    .differs = {"differs", s->lines ? &other : NULL, s->differs, 0, false}};
	struct err why = ERR_INIT;
	int r = top < 0 ? err_sys(e, errno, "%s", q->host->top) : 0;

	if (r == 0 && s->lines)
		r = list_commits(q, head, base, s->lines, e);
	if (r < 0)
		return r;
	c.e = &why;
	c.d = quarantine_differ_new(q, top, on_differs, &c);
	r = c.d ? list_files(q, head, base, &c, &why) : -ENOMEM;
	quarantine_differ_free(c.d);
	end_names(&c.missing, s->lines);
	end_names(&c.differs, s->lines);
	/* Silence would say that they are the same. */
	if (r < 0) {
		(void)buf_puts(s->differs, s->differs->len ? ", and more: not all could be compared"
							   : "not all could be compared");
		if (s->lines)
			(void)buf_puts(s->lines, "... and more files that could not be compared\n");
	}
	s->missing_n = c.missing.n;
	s->differs_n = c.differs.n;
	return 0;
}
