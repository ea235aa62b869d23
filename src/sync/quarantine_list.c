/*
 * What git in the quarantine lists of a run's commits; see quarantine_list.h. Part of door 1.
 *
 * A few objects can say any number of paths, over and over (a tree bomb), and git holds those of one commit in memory: what
 * is listed is bounded in paths, in bytes and in git's memory, and what does not fit is refused for good.
 */
#include "sync/quarantine_list.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "sync/quarantine_inside.h"

#define MODE_NONE "000000"

int quarantine_list_bad(struct err *e, const char *what)
{
	return err_set(e, ERR_PROTOCOL, "git in the quarantine answered %s", what);
}

int quarantine_list_too_much(struct err *e, const char *what)
{
	return err_set(e, ERR_HOSTILE, "its commits bring too much to judge (%s)", what);
}

FILE *quarantine_list_scratch(const struct quarantine_list *l, const char *name, struct err *e)
{
	int fd = openat(l->q->fd, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w+");

	if (!f) {
		(void)err_sys(e, errno, "%s/%s", l->q->dir, name);
		cleanup_fd(&fd);
	}
	return f;
}

static int put_range(const struct quarantine_list *l, struct buf *b)
{
	int r = buf_putf(b, "%s\n", l->head);

	return r || !l->base[0] ? r : buf_putf(b, "^%s\n", l->base);
}

/* git with its stdin from one file and its stdout into another; both at their beginning afterwards. */
int quarantine_list_through(const struct quarantine_list *l, const char *const *words, FILE *in,
			    FILE *out, struct err *e)
{
	struct process_opts io = PROCESS_OPTS_INIT;
	int r;

	if (fflush(in) != 0 || lseek(fileno(in), 0, SEEK_SET) < 0)
		return err_sys(e, errno, "%s", l->q->dir);
	io.in_fd = fileno(in);
	io.out_fd = fileno(out);
	r = quarantine_git(l->q, words, &io, e);
	if (r == 0)
		rewind(out);
	return r;
}

static int too_many(struct err *e)
{
	return err_set(e, ERR_HOSTILE,
		       "its commits change more than %d paths, or more than git can list in %llu "
		       "bytes of memory: leave files out, or make fewer commits",
		       COMMIT_PATHS_MAX, (unsigned long long)COMMIT_LIST_MEMORY);
}

struct counted {
	FILE *to;
	uint64_t words, bytes; /* a header and a path for each entry */
};

static int on_raw(void *arg, const char *p, size_t n)
{
	struct counted *c = arg;
	const char *end = p + n, *at = p;

	while ((at = memchr(at, '\0', (size_t)(end - at)))) {
		c->words++;
		at++;
	}
	c->bytes += n;
	if (c->words / 2 > COMMIT_PATHS_MAX || c->bytes > BUNDLE_BYTES_MAX)
		return -E2BIG;
	return fwrite(p, 1, n, c->to) == n ? 0 : -EIO;
}

/* Did somebody end it, who may do otherwise the next time? */
static bool is_ended(int status)
{
	return status == 128 + SIGKILL || status == 128 + SIGTERM || status == 128 + SIGINT ||
	       status == 128 + SIGHUP;
}

/* What these commits add or change: ":mode... oid... status" and the path, each with its NUL. */
static int list_changes(struct quarantine_list *l, FILE *commits, struct err *e)
{
	static const char *const diff[] = {"diff-tree",
					   "--stdin",
					   "-c",
					   "-r",
					   "--root",
					   "-z",
					   "--raw",
					   "--no-abbrev",
					   "--no-commit-id",
					   "--no-renames",
					   "--no-ext-diff",
					   "--no-textconv",
					   "--ignore-submodules=none",
					   NULL};
	struct counted c = {.to = l->raw};
	struct process_opts io = PROCESS_OPTS_INIT;
	int status = 0, r;

	if (fflush(commits) != 0 || lseek(fileno(commits), 0, SEEK_SET) < 0)
		return err_sys(e, errno, "%s", l->q->dir);
	io.in_fd = fileno(commits);
	io.on_out = on_raw;
	io.on_out_arg = &c;
	io.mem_max = COMMIT_LIST_MEMORY;
	r = quarantine_try(l->q, diff, &io, &status, e);
	if (r == -E2BIG || (r == 0 && status && !is_ended(status)))
		return too_many(e);
	if (r == 0 && status)
		return err_set(e, ERR_IO, "git diff-tree in %s was ended by signal %d", l->q->dir,
			       status - 128);
	if (r == -EIO || (r == 0 && fflush(l->raw) != 0))
		return err_sys(e, errno ? errno : ENOSPC, "%s/raw", l->q->dir);
	return r;
}

int quarantine_list_raw(struct quarantine_list *l, struct err *e)
{
	static const char *const walk[] = {"rev-list", "--stdin", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(256);
	struct process_opts io = PROCESS_OPTS_INIT;
	FILE *commits = quarantine_list_scratch(l, "commits", e);
	int r;

	l->raw = quarantine_list_scratch(l, "raw", e);
	if (!commits || !l->raw) {
		r = -EIO;
	} else if (put_range(l, &in) < 0) {
		r = err_sys(e, ENOMEM, "%s", l->q->dir);
	} else {
		io.in = buf_text(&in);
		io.in_len = in.len;
		io.out_fd = fileno(commits);
		r = quarantine_git(l->q, walk, &io, e);
	}
	if (r == 0)
		r = list_changes(l, commits, e);
	if (commits)
		(void)fclose(commits);
	return r;
}

/* Commits of the host that are parents of new ones, but for the one that was sent. */
int quarantine_list_edges(struct quarantine_list *l, struct err *e)
{
	static const char *const walk[] = {"rev-list", "--boundary", "--stdin", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(256);
	struct process_opts io = PROCESS_OPTS_INIT;
	char line[BUNDLE_OID_MAX + 3]; /* "-oid\n" */
	FILE *f;
	int r;

	if (!l->base[0])
		return 0;
	if (put_range(l, &in) < 0)
		return err_sys(e, ENOMEM, "%s", l->q->dir);
	f = quarantine_list_scratch(l, "edges", e);
	if (!f)
		return -EIO;
	io.in = buf_text(&in);
	io.in_len = in.len;
	io.out_fd = fileno(f);
	r = quarantine_git(l->q, walk, &io, e);
	rewind(f);
	while (r == 0 && l->edges_n <= QUARANTINE_EDGES_MAX && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] != '-' || strcmp(line + 1, l->base) == 0)
			continue;
		if (strlen(line + 1) > BUNDLE_OID_MAX) {
			r = quarantine_list_bad(e, "with a list that cannot be read");
			break;
		}
		if (l->edges_n < QUARANTINE_EDGES_MAX)
			memcpy(l->edges[l->edges_n], line + 1, strlen(line));
		l->edges_n++;
	}
	if (r == 0 && ferror(f))
		r = err_set(e, ERR_IO, "%s/edges cannot be read", l->q->dir);
	(void)fclose(f);
	return r;
}

static bool word(char **at, char *ret, size_t n)
{
	size_t k = strcspn(*at, " ");

	if (k == 0 || k >= n)
		return false;
	memcpy(ret, *at, k);
	ret[k] = '\0';
	*at += k + ((*at)[k] == ' ');
	return true;
}

/* The entry that came of it: with more parents than one there are as many modes and ids before it. */
static bool parse(char *header, struct quarantine_entry *en)
{
	size_t parents = strspn(header, ":");
	char *at = header + parents;

	if (!parents)
		return false;
	for (size_t i = 0; i <= parents; i++)
		if (!word(&at, en->mode, sizeof(en->mode)))
			return false;
	for (size_t i = 0; i <= parents; i++)
		if (!word(&at, en->oid, sizeof(en->oid)))
			return false;
	return true;
}

/* 1: another entry. 0: the end. */
int quarantine_list_next(struct quarantine_list *l, struct quarantine_entry *en, struct err *e)
{
	_cleanup_free_ char *header = NULL;
	size_t cap = 0;

	while (getdelim(&header, &cap, '\0', l->raw) > 0) {
		if (!parse(header, en) || getdelim(&en->path, &en->cap, '\0', l->raw) <= 0)
			return quarantine_list_bad(e, "with a list that cannot be read");
		if (strcmp(en->mode, MODE_NONE) != 0)
			return 1;
	}
	return ferror(l->raw) ? err_set(e, ERR_IO, "%s/raw cannot be read", l->q->dir) : 0;
}

int quarantine_list_paths(const struct quarantine *q, const char *const *words,
			  int (*fn)(void *arg, const char *p, size_t n), void *arg, struct err *e)
{
	struct process_records rec = {
	    .on_record = fn, .arg = arg, .rest = BUF_INIT(2 * PATH_MEMBER_MAX)};
	struct process_opts io = PROCESS_OPTS_INIT;
	int r;

	io.on_out = process_split_nul;
	io.on_out_arg = &rec;
	r = quarantine_git(q, words, &io, e);
	buf_done(&rec.rest);
	return r;
}

int quarantine_list_tree(const struct quarantine_list *l, const char *tree,
			 int (*fn)(void *arg, const char *p, size_t n), void *arg, struct err *e)
{
	const char *const words[] = {"ls-tree", "-r", "-z", "--name-only", tree, NULL};

	return quarantine_list_paths(l->q, words, fn, arg, e);
}

void quarantine_list_done(struct quarantine_list *l)
{
	if (l->raw)
		(void)fclose(l->raw);
	l->raw = NULL;
}
