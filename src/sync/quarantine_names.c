/*
 * What a sandbox's commits bring, by name. Part of door 1.
 *
 * Policy: a checkout writes what a commit holds, and whoever gets the branch will make one some day. So what
 * airlock-unpack refuses as a file does not become the user's branch by way of a commit either:
 *   - Airlock's own staging place, in any spelling: refused (.git is fsck's to refuse);
 *   - what makes a directory a repository by its layout with config, hooks or commondir in it, counting what the
 *     commits bring and what the commit that was sent has (unpack_gitdir.c has the attack): refused;
 *   - a link whose target is absolute, climbs above the root, has ".." after a name or goes through .git
 *     (member_link.c): the commits are imported beside the branch, for a person to look and merge;
 *   - host-executable data (policy/hostexec.h): taken and named in the report.
 * Names of every new commit count, also of one that a later commit takes back: it can be checked out.
 *
 * Not done: what the host's history has by itself is not the sandbox's doing. Where a link leads through other links
 * is not followed: a target that climbs first and names afterwards stays inside whatever they become, unless the user's
 * own links lead out.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "policy/hostexec.h"
#include "policy/member.h"
#include "sync/quarantine_inside.h"

#define STAGING_NAME ".airlock-staging" /* as in unpack_proto.h */
#define KEY 16				/* of a directory's name: nobody makes two equal */
#define DIRS_MAX (1 << 19) /* directories that could be repositories: 18 bytes each, twice */
#define LINKS_MAX 100000   /* links that are looked at; with more no branch moves */
#define OID_MAX 64

/* What makes a layout, and what gives orders. Folded. */
enum { HEAD = 1, COMMONDIR = 2, OBJECTS = 4, REFS = 8, CONFIG = 16, HOOKS = 32 };
static const char *const parts[] = {"head",   "commondir",	 "objects", "refs",
				    "config", "config.worktree", "hooks",   NULL};
static const uint8_t part_bits[] = {HEAD, COMMONDIR, OBJECTS, REFS, CONFIG, CONFIG, HOOKS};

struct dir {
	uint8_t key[KEY], added, base;
};

struct names {
	const struct quarantine *q;
	struct quarantine_seen *ret;
	struct dir *dirs; /* owned */
	size_t dirs_n, dirs_cap;
	FILE *links, *where; /* object ids of links; their names */
	uint64_t names, links_n;
	const struct dir *wanted; /* the name of which is looked for */
	char **shown;		  /* where that goes, heap */
	struct err *e;
};

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, KEY);
}

/* Sorted, each directory once. */
static void settle(struct names *n)
{
	size_t k = 0;

	if (n->dirs_n)
		qsort(n->dirs, n->dirs_n, sizeof(*n->dirs), by_key);
	for (size_t i = 0; i < n->dirs_n; i++) {
		if (k && by_key(&n->dirs[k - 1], &n->dirs[i]) == 0)
			n->dirs[k - 1].added |= n->dirs[i].added;
		else
			n->dirs[k++] = n->dirs[i];
	}
	n->dirs_n = k;
}

static int add_dir(struct names *n, const struct dir *d)
{
	if (n->dirs_n == n->dirs_cap && n->dirs_cap == 2 * (size_t)DIRS_MAX) {
		settle(n);
		if (n->dirs_n > DIRS_MAX)
			return err_set(n->e, ERR_HOSTILE,
				       "its commits have more than %d directories with names of "
				       "git's own in them: leave some out",
				       DIRS_MAX);
	}
	if (n->dirs_n == n->dirs_cap) {
		size_t cap = n->dirs_cap ? 2 * n->dirs_cap : 64;
		struct dir *v = reallocarray(n->dirs, cap, sizeof(*v));

		if (!v)
			return err_set(n->e, ERR_NOMEM, "out of memory");
		n->dirs = v;
		n->dirs_cap = cap;
	}
	n->dirs[n->dirs_n++] = *d;
	return 0;
}

/* Calls for each segment of the path that is a part: the directory that it is in. */
static int each_part(struct names *n, const char *path, size_t len,
		     int (*f)(struct names *n, struct dir *d, const char *path, size_t dir_len))
{
	int r = 0;

	for (size_t i = 0, start = 0; i <= len && r == 0; i++) {
		struct dir d = {.base = 0};
		int which;

		if (i < len && path[i] != '/')
			continue;
		which = member_is_folded_of(path + start, i - start, parts);
		if (which >= 0) {
			(void)crypto_generichash(d.key, KEY, (const uint8_t *)path, start, NULL, 0);
			d.added = part_bits[which];
			r = f(n, &d, path, start);
		}
		start = i + 1;
	}
	return r;
}

static int part_added(struct names *n, struct dir *d, const char *path, size_t dir_len)
{
	(void)path;
	(void)dir_len;
	return add_dir(n, d);
}

static int part_of_base(struct names *n, struct dir *d, const char *path, size_t dir_len)
{
	struct dir *at = bsearch(d, n->dirs, n->dirs_n, sizeof(*n->dirs), by_key);

	(void)path;
	(void)dir_len;
	if (at)
		at->base |= d->added;
	return 0;
}

static int part_wanted(struct names *n, struct dir *d, const char *path, size_t dir_len)
{
	if (*n->shown || by_key(d, n->wanted) != 0)
		return 0;
	*n->shown = strndup(path, dir_len ? dir_len - 1 : 0);
	return *n->shown ? 0 : err_set(n->e, ERR_NOMEM, "out of memory");
}

static bool is_layout(unsigned has)
{
	return has & HEAD && (has & COMMONDIR || (has & OBJECTS && has & REFS));
}

static bool gives_orders(const struct dir *d)
{
	const unsigned orders = CONFIG | HOOKS | COMMONDIR, all = d->added | d->base;

	return is_layout(all) && (d->added & orders || (!is_layout(d->base) && all & orders));
}

/* True if a segment of the name is that of the staging place, in any spelling. */
static bool is_staging(const char *name)
{
	for (const char *p = name; *p;) {
		size_t n = strcspn(p, "/\\");

		if (member_is_folded(p, n, STAGING_NAME))
			return true;
		p += n;
		p += *p != '\0';
	}
	return false;
}

static void show(char *out, size_t size, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2048);
	size_t n = strlen(text);

	(void)str_printable(&b, text, n < 200 ? n : 200);
	(void)snprintf(out, size, "%s", buf_text(&b));
}

/* The first of them, each once. */
static void flag(struct quarantine_seen *ret, const char *name)
{
	char shown[256];
	size_t at = strlen(ret->flagged);
	const char *before;

	show(shown, sizeof(shown), name);
	before = strstr(ret->flagged, shown);
	if (before && (before[strlen(shown)] == ',' || !before[strlen(shown)]))
		return;
	if (at + strlen(shown) + 8 < sizeof(ret->flagged))
		(void)snprintf(ret->flagged + at, sizeof(ret->flagged) - at, "%s%s", at ? ", " : "",
			       shown);
	else if (strcmp(ret->flagged + (at > 5 ? at - 5 : 0), ", ...") != 0)
		(void)snprintf(ret->flagged + at, sizeof(ret->flagged) - at, ", ...");
}

static int judge_name(struct names *n, const char *name)
{
	char shown[256];

	n->names++;
	if (is_staging(name)) {
		show(shown, sizeof(shown), name);
		return err_set(
		    n->e, ERR_HOSTILE,
		    "its commits have %s, a name that only Airlock may use (" STAGING_NAME
		    "): rewrite them without it",
		    shown);
	}
	if (hostexec_flags(name, strlen(name)))
		flag(n->ret, name);
	return each_part(n, name, strlen(name), part_added);
}

/* ":old-mode new-mode old-id new-id letter" of a name. */
static int note_link(struct names *n, const char *meta, const char *name)
{
	char id[OID_MAX + 1];

	if (sscanf(meta, ":%*6s 120000 %*64s %64s", id) != 1 || n->ret->outside[0])
		return 0;
	if (++n->links_n > LINKS_MAX) {
		(void)snprintf(n->ret->outside, sizeof(n->ret->outside), "more than %d links",
			       LINKS_MAX);
		return 0;
	}
	return fprintf(n->links, "%s\n", id) < 0 || fwrite(name, strlen(name) + 1, 1, n->where) != 1
		   ? err_sys(n->e, errno, "%s", n->q->dir)
		   : 0;
}

static int scratch(const struct quarantine *q, const char *name, struct err *e)
{
	int fd = openat(q->fd, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? err_sys(e, errno, "%s/%s", q->dir, name) : fd;
}

static int rewind_fd(const struct quarantine *q, int fd, struct err *e)
{
	return lseek(fd, 0, SEEK_SET) < 0 ? err_sys(e, errno, "%s", q->dir) : 0;
}

/* What these commits add or change, as diff-tree says it raw: what it is and its name, each with its NUL, into fd. */
static int list_names(const struct quarantine *q, const char *head, const char *base, int fd,
		      struct err *e)
{
	static const char *const walk[] = {"rev-list", "--stdin", NULL};
	static const char *const diff[] = {"diff-tree",
					   "--stdin",
					   "-m",
					   "-r",
					   "--root",
					   "-z",
					   "--raw",
					   "--no-abbrev",
					   "--no-commit-id",
					   "--no-renames",
					   "--no-ext-diff",
					   "--no-textconv",
					   "--diff-filter=d",
					   "--ignore-submodules=none",
					   NULL};
	_cleanup_fd_ int commits = scratch(q, "commits", e);
	struct process_opts io = PROCESS_OPTS_INIT, of = PROCESS_OPTS_INIT;
	_cleanup_buf_ struct buf in = BUF_INIT(256);
	int r;

	if (commits < 0)
		return commits;
	(void)buf_putf(&in, "%s\n", head);
	if (base[0])
		(void)buf_putf(&in, "^%s\n", base);
	io.in = buf_text(&in);
	io.in_len = in.len;
	io.out_fd = commits;
	r = quarantine_git(q, walk, &io, e);
	if (r == 0)
		r = rewind_fd(q, commits, e);
	if (r < 0)
		return r;
	of.in_fd = commits;
	of.out_fd = fd;
	return quarantine_git(q, diff, &of, e);
}

/* Every record of the list; the second time only to find a name. */
static int each_name(struct names *n, FILE *f)
{
	_cleanup_free_ char *meta = NULL, *name = NULL;
	size_t meta_cap = 0, name_cap = 0;
	int r = 0;

	rewind(f);
	while (r == 0 && getdelim(&meta, &meta_cap, '\0', f) > 0) {
		if (meta[0] != ':' || getdelim(&name, &name_cap, '\0', f) <= 0)
			return err_set(n->e, ERR_PROTOCOL, "git did not list the names");
		if (n->wanted) {
			r = each_part(n, name, strlen(name), part_wanted);
			continue;
		}
		r = judge_name(n, name);
		if (r == 0)
			r = note_link(n, meta, name);
	}
	return r == 0 && ferror(f) ? err_set(n->e, ERR_IO, "%s/names cannot be read", n->q->dir)
				   : r;
}

static int on_base(void *arg, const char *p, size_t n)
{
	return each_part(arg, p, n, part_of_base);
}

static int judge_layouts(struct names *n, const char *base, FILE *f)
{
	const char *const words[] = {"ls-tree", "-r", "-z", "--name-only", base, NULL};
	struct process_opts io = PROCESS_OPTS_INIT;
	struct process_records rec = {
	    .on_record = on_base, .arg = n, .rest = BUF_INIT(2 * PATH_MEMBER_MAX)};
	_cleanup_free_ char *name = NULL;
	char shown[256];
	int r = 0;

	settle(n);
	io.on_out = process_split_nul;
	io.on_out_arg = &rec;
	if (n->dirs_n && base[0])
		r = quarantine_git(n->q, words, &io, n->e);
	buf_done(&rec.rest);
	for (size_t i = 0; r == 0 && i < n->dirs_n && !n->wanted; i++)
		if (gives_orders(&n->dirs[i]))
			n->wanted = &n->dirs[i];
	if (r < 0 || !n->wanted)
		return r;
	n->shown = &name;
	r = each_name(n, f);
	if (r < 0)
		return r;
	show(shown, sizeof(shown), name && name[0] ? name : ".");
	return err_set(
	    n->e, ERR_HOSTILE,
	    "its commits make %s a repository whose config or hooks git on this host would "
	    "obey: rewrite them without it",
	    shown);
}

static bool leads_out(const char *path, const char *target, size_t n)
{
	size_t depth = 0, up = 0;
	bool named = false;

	if (!n || target[0] == '/' || memchr(target, '\0', n))
		return true;
	for (const char *p = path; *p; p++)
		depth += *p == '/';
	for (size_t i = 0, start = 0; i <= n; i++) {
		const char *s = target + start;
		size_t len = i - start;

		if (i < n && target[i] != '/')
			continue;
		start = i + 1;
		if (!len || (len == 1 && s[0] == '.'))
			continue;
		if (len == 2 && s[0] == '.' && s[1] == '.') {
			if (named || ++up > depth)
				return true;
			continue;
		}
		named = true;
		if (member_is_dot_git(s, len))
			return true;
	}
	return false;
}

static void tell_outside(struct names *n, const char *path, const char *target)
{
	char from[256], to[256];

	show(from, sizeof(from), path);
	show(to, sizeof(to), target);
	(void)snprintf(n->ret->outside, sizeof(n->ret->outside), "the link %s -> %s", from, to);
}

/* The answer of cat-file --batch-check, then that of --batch, link by link. */
static int judge_links(struct names *n, FILE *sizes, FILE *texts)
{
	_cleanup_free_ char *path = NULL, *line = NULL;
	char target[LINK_TARGET_MAX + 2];
	size_t path_cap = 0, line_cap = 0;

	while (!n->ret->outside[0] && getdelim(&path, &path_cap, '\0', n->where) > 0) {
		unsigned long size;

		if (getline(&line, &line_cap, sizes ? sizes : texts) <= 0 ||
		    sscanf(line, "%*64s blob %lu", &size) != 1)
			return err_set(n->e, ERR_PROTOCOL, "git did not give the links");
		if (size > LINK_TARGET_MAX)
			tell_outside(n, path, "(too long)");
		if (sizes || n->ret->outside[0])
			continue;
		if (fread(target, 1, size + 1, texts) != size + 1)
			return err_set(n->e, ERR_PROTOCOL, "git did not give the links");
		target[size] = '\0';
		if (leads_out(path, target, size))
			tell_outside(n, path, target);
	}
	return 0;
}

static int ask_links(struct names *n, bool whole)
{
	const char *const words[] = {"cat-file", whole ? "--batch" : "--batch-check", NULL};
	_cleanup_fd_ int fd = scratch(n->q, "targets", n->e);
	struct process_opts io = PROCESS_OPTS_INIT;
	FILE *f;
	int r = fd < 0 ? fd : rewind_fd(n->q, fileno(n->links), n->e);

	if (r < 0)
		return r;
	rewind(n->where);
	io.in_fd = fileno(n->links);
	io.out_fd = fd;
	r = quarantine_git(n->q, words, &io, n->e);
	if (r == 0)
		r = rewind_fd(n->q, fd, n->e);
	if (r < 0)
		return r;
	f = fdopen(fd, "r");
	if (!f)
		return err_sys(n->e, errno, "%s/targets", n->q->dir);
	fd = -1;
	r = judge_links(n, whole ? NULL : f, whole ? f : NULL);
	(void)fclose(f);
	return r;
}

/* One that is too long is known before its text is asked for: no size is the sandbox's to choose. */
static int look_at_links(struct names *n)
{
	int r = 0;

	if (!n->links_n || n->ret->outside[0])
		return 0;
	if (fflush(n->links) || fflush(n->where))
		return err_sys(n->e, errno, "%s", n->q->dir);
	r = ask_links(n, false);
	return r == 0 && !n->ret->outside[0] ? ask_links(n, true) : r;
}

static int count_path(void *arg, const char *p, size_t n)
{
	uint64_t *left = arg;

	(void)p;
	(void)n;
	return (*left)-- ? 0 : -E2BIG;
}

/* A few objects can name each other to a tree of any number of paths (a tree bomb), for a checkout to write. */
static int check_size(const struct quarantine *q, const char *head, struct err *e)
{
	const char *const words[] = {"ls-tree", "-r", "-z", "--name-only", head, NULL};
	struct process_opts io = PROCESS_OPTS_INIT;
	uint64_t left = MEMBERS_MAX;
	struct process_records rec = {
	    .on_record = count_path, .arg = &left, .rest = BUF_INIT(2 * PATH_MEMBER_MAX)};
	int r;

	io.on_out = process_split_nul;
	io.on_out_arg = &rec;
	r = quarantine_git(q, words, &io, e);
	buf_done(&rec.rest);
	return r == -E2BIG ? err_set(e, ERR_HOSTILE, "its files are more than %d: leave some out",
				     MEMBERS_MAX)
			   : r;
}

static FILE *open_scratch(const struct quarantine *q, const char *name, struct err *e)
{
	int fd = scratch(q, name, e);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r+");

	if (fd >= 0 && !f) {
		(void)err_sys(e, errno, "%s/%s", q->dir, name);
		(void)close(fd);
	}
	return f;
}

int quarantine_names(const struct quarantine *q, const char *head, const char *base,
		     struct quarantine_seen *ret, struct err *e)
{
	struct names n = {.q = q, .ret = ret, .e = e};
	FILE *f = open_scratch(q, "names", e);
	int r = f ? list_names(q, head, base, fileno(f), e) : -EIO;

	n.links = r < 0 ? NULL : open_scratch(q, "links", e);
	n.where = n.links ? open_scratch(q, "where", e) : NULL;
	if (r == 0)
		r = n.where ? each_name(&n, f) : -EIO;
	if (r == 0)
		r = judge_layouts(&n, base, f);
	if (r == 0)
		r = look_at_links(&n);
	if (f)
		(void)fclose(f);
	if (n.links)
		(void)fclose(n.links);
	if (n.where)
		(void)fclose(n.where);
	free(n.dirs);
	/* In many commits they may be the same ones. */
	return r == 0 && n.names > MEMBERS_MAX ? check_size(q, head, e) : r;
}
