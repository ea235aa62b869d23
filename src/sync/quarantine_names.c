/*
 * The paths of a sandbox's commits, as git in the quarantine lists them, brought before the rules of
 * quarantine_paths.h. Part of door 1.
 *
 * Policy: whoever gets the branch will make a checkout of it some day. So one path that may not come refuses all; with a link
 * that leads out, or may, they are imported beside the branch, for a person to look and merge; host-executable data
 * (policy/hostexec.h) is taken and named in the report. Paths of every new commit count, also one that a later commit takes
 * back: it can be checked out. What is exactly so in the commit that was sent is the user's own and
 * passes (a commit that puts it back brings nothing). Of a merge only what none of its parents has counts: the
 * rest came with a parent, which is judged itself or is the host's. With what older commits of the host have, on which these
 * build, it makes a whole all the same: their trees count for layouts, and what they bring back is flagged. Bounded: paths of the last commit, symlinks and what is
 * walked for them, memory of the rules.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/quarantine_findings.h"
#include "sync/quarantine_inside.h"
#include "sync/quarantine_list.h"
#include "sync/quarantine_paths.h"

#define LINK_STEPS 8 /* what a symlink costs at least */
#define MODE_LINK "120000"

struct judge {
	struct quarantine_list l;
	struct commit_paths *rules; /* owned */
	FILE *ids, *targets;	    /* owned: of the symlinks, in the order of raw */
	uint64_t names, links;
	bool too_long;		  /* a target that no link can have */
	struct findings bad, out; /* what refuses, and links that lead out */
};

static int failed(int r, const char *limit, struct err *e)
{
	if (r >= 0)
		return r;
	return r == -E2BIG ? quarantine_list_too_much(e, limit)
			   : err_sys(e, -r, "judge the paths of commits");
}

static int on_name(struct judge *j, const struct quarantine_entry *en, struct err *e)
{
	const char *rule;
	int r = commit_paths_name(j->rules, en->path, &rule);

	j->names++;
	if (r == 0)
		r = quarantine_findings_add(&j->bad, en, rule);
	if (r == 0 && strcmp(en->mode, MODE_LINK) == 0) {
		if (++j->links > COMMIT_LINK_STEPS_MAX / LINK_STEPS)
			j->out.more = "too many links to judge";
		else if (fprintf(j->ids, "%s\n", en->oid) < 0)
			r = -EIO;
	}
	return failed(r, "directories with names of git's own layout", e);
}

/* One answer of cat-file --batch: "oid type size" and as many bytes. */
static int read_target(struct judge *j, char *target, size_t *ret_n, struct err *e)
{
	char line[256], *space;

	if (!fgets(line, sizeof(line), j->targets) || !(space = strrchr(line, ' ')))
		return quarantine_list_bad(e, "without a symlink's target");
	*ret_n = strtoul(space + 1, NULL, 10);
	if (*ret_n > LINK_TARGET_MAX || (*ret_n && fread(target, *ret_n, 1, j->targets) != 1) ||
	    fgetc(j->targets) != '\n')
		return quarantine_list_bad(e, "with a part of a symlink's target");
	return 0;
}

static int add_link(struct judge *j, const struct quarantine_entry *en, const char *rule,
		    const char *target, size_t n)
{
	_cleanup_buf_ struct buf shown = BUF_INIT(1024);
	size_t at = j->out.n;
	int r = quarantine_findings_add(&j->out, en, rule);

	if (r != 0 || j->out.n == at)
		return r;
	(void)str_printable(&shown, target, n < 200 ? n : 200);
	j->out.v[at].target = strdup(buf_text(&shown));
	return j->out.v[at].target ? 0 : -ENOMEM;
}

static int on_link(struct judge *j, const struct quarantine_entry *en, struct err *e)
{
	char target[LINK_TARGET_MAX];
	const char *rule;
	size_t n = 0;
	int r;

	if (strcmp(en->mode, MODE_LINK) != 0)
		return 0;
	r = read_target(j, target, &n, e);
	if (r < 0)
		return r;
	r = commit_paths_link(j->rules, en->path, target, n, &rule);
	if (r == -E2BIG) {
		j->out.more = "links that are too long to judge";
		return 1;
	}
	return failed(r ? r : add_link(j, en, rule, target, n), "", e);
}

/* "type size" of a link. */
static int on_size(struct judge *j, const struct quarantine_entry *en, struct err *e)
{
	static const char what[] = "(too long)";
	char line[256];

	if (strcmp(en->mode, MODE_LINK) != 0)
		return 0;
	if (!fgets(line, sizeof(line), j->targets) || !str_starts(line, "blob "))
		return quarantine_list_bad(e, "without the size of a symlink");
	if (strtoull(line + 5, NULL, 10) <= LINK_TARGET_MAX)
		return 0;
	j->too_long = true;
	return failed(add_link(j, en, "link_escape", what, strlen(what)), "", e);
}

static int on_layout(struct judge *j, const struct quarantine_entry *en, struct err *e)
{
	size_t at = j->bad.n, dir_n = 0;
	const char *rule;
	int r;

	commit_paths_layout(j->rules, en->path, &rule, &dir_n);
	r = quarantine_findings_add(&j->bad, en, rule);
	if (r == 0 && j->bad.n > at)
		j->bad.v[at].dir_n = dir_n;
	return failed(r, "", e);
}

/* 1: stopped, with as many findings as can be held. */
static int each(struct judge *j,
		int (*fn)(struct judge *j, const struct quarantine_entry *en, struct err *e),
		struct err *e)
{
	struct quarantine_entry en = {0};
	int r;

	rewind(j->l.raw);
	for (;;) {
		r = quarantine_list_next(&j->l, &en, e);
		if (r <= 0)
			break;
		r = fn(j, &en, e);
		if (r != 0)
			break;
	}
	free(en.path);
	return r;
}

/* One that is too long is known before its bytes are asked for: no size is the sandbox's to choose. */
static int judge_links(struct judge *j, struct err *e)
{
	static const char *const sizes[] = {"cat-file", "--batch-check=%(objecttype) %(objectsize)",
					    NULL};
	static const char *const words[] = {"cat-file", "--batch", NULL};
	int r;

	if (!j->links || j->out.more)
		return 0;
	j->targets = quarantine_list_scratch(&j->l, "targets", e);
	r = j->targets ? quarantine_list_through(&j->l, sizes, j->ids, j->targets, e) : -EIO;
	if (r == 0)
		r = each(j, on_size, e);
	if (r != 0 || j->too_long)
		return r;
	/* A new file: what stdio has read of this one, and where its descriptor stands, is its own affair. */
	(void)fclose(j->targets);
	j->targets = quarantine_list_scratch(&j->l, "texts", e);
	if (!j->targets)
		return -EIO;
	r = quarantine_list_through(&j->l, words, j->ids, j->targets, e);
	return r ? r : each(j, on_link, e);
}

static int on_had(void *arg, const char *p, size_t n)
{
	(void)n;
	commit_paths_had(arg, p);
	return 0;
}

struct old {
	struct commit_paths *rules;
	size_t nr;
};

static int on_came(void *arg, const char *p, size_t n)
{
	const struct old *o = arg;

	(void)n;
	return commit_paths_came(o->rules, p, o->nr);
}

static int on_differs(void *arg, const char *p, size_t n)
{
	(void)n;
	return commit_paths_flag(arg, p);
}

static int count_path(void *arg, const char *p, size_t n)
{
	uint64_t *left = arg;

	(void)p;
	(void)n;
	return (*left)-- ? 0 : -E2BIG;
}

static int refuse_layout(const char *dir, size_t n, struct err *e)
{
	_cleanup_buf_ struct buf shown = BUF_INIT(1024);

	(void)str_printable(&shown, dir, n < 200 ? n : 200);
	return err_set(
	    e, ERR_HOSTILE,
	    "its commits make %s a repository whose config or hooks git on this host would "
	    "obey: rewrite them without it",
	    n ? buf_text(&shown) : ".");
}

/* What a merge takes from an older commit is in no list of new paths. */
static int flag_old(struct judge *j, struct err *e)
{
	const char *const words[] = {"diff-tree",
				     "-r",
				     "-z",
				     "--name-only",
				     "--no-renames",
				     "--diff-filter=d",
				     "--no-ext-diff",
				     "--no-textconv",
				     "--ignore-submodules=none",
				     j->l.base,
				     j->l.head,
				     NULL};

	return j->l.edges_n ? quarantine_list_paths(j->l.q, words, on_differs, j->rules, e) : 0;
}

static int judge_layout(struct judge *j, struct err *e)
{
	struct old o = {.rules = j->rules};
	const char *dir;
	size_t n = 0;
	int r = 0;

	if (!commit_paths_ask(j->rules) && !j->l.edges_n)
		return 0;
	if (j->l.edges_n > QUARANTINE_EDGES_MAX)
		return quarantine_list_too_much(e, "old commits that they build on");
	while (r == 0 && o.nr < j->l.edges_n) {
		const char *tree = j->l.edges[o.nr++];

		r = quarantine_list_tree(&j->l, tree, on_came, &o, e);
	}
	if (r == -E2BIG)
		return quarantine_list_too_much(e, "directories with names of git's own layout");
	if (r == 0 && j->l.base[0])
		r = quarantine_list_tree(&j->l, j->l.base, on_had, j->rules, e);
	if (r == 0)
		r = each(j, on_layout, e);
	if (r != 0)
		return r;
	dir = commit_paths_united(j->rules, &n);
	return dir ? refuse_layout(dir, n, e) : 0;
}

/* A few objects can name each other to a tree of any number of paths (a tree bomb), for a checkout to write. */
static int check_size(const struct judge *j, struct err *e)
{
	uint64_t left = MEMBERS_MAX;
	int r = quarantine_list_tree(&j->l, j->l.head, count_path, &left, e);

	return r == -E2BIG ? err_set(e, ERR_HOSTILE, "its files are more than %d: leave some out",
				     MEMBERS_MAX)
			   : r;
}

static int refuse(const struct finding *f, struct err *e)
{
	_cleanup_buf_ struct buf shown = BUF_INIT(1024);
	size_t n = strlen(f->path);

	if (strcmp(f->rule, "git_layout") == 0)
		return refuse_layout(f->path, f->dir_n, e);
	(void)str_printable(&shown, f->path, n < 200 ? n : 200);
	return err_set(e, ERR_HOSTILE, "its commits have %s, %s: rewrite them without it",
		       buf_text(&shown),
		       strcmp(f->rule, "path_limit") == 0
			   ? "a name longer or deeper than Airlock takes"
		       : strcmp(f->rule, "git_metadata") == 0 ? "a name of git's own"
							      : "a name that only Airlock may use");
}

static int refuse_bad(struct judge *j, struct err *e)
{
	const struct finding *f;
	int r = quarantine_findings_first(&j->l, &j->bad, &f, e);

	if (r < 0)
		return r;
	if (f)
		return refuse(f, e);
	return j->bad.more ? quarantine_list_too_much(e, j->bad.more) : 0;
}

static int decide(struct judge *j, struct quarantine_seen *ret, struct err *e)
{
	_cleanup_buf_ struct buf shown = BUF_INIT(1024);
	const struct finding *f;
	const char *names;
	size_t n;
	int r = quarantine_findings_first(&j->l, &j->out, &f, e);

	if (r < 0)
		return r;
	if (f) {
		n = strlen(f->path);
		(void)str_printable(&shown, f->path, n < 200 ? n : 200);
		(void)snprintf(ret->outside, sizeof(ret->outside), "the link %.400s -> %.400s",
			       buf_text(&shown), f->target ? f->target : "");
	} else if (j->out.more) {
		(void)snprintf(ret->outside, sizeof(ret->outside), "%s", j->out.more);
	}
	n = commit_paths_flagged(j->rules, &names);
	(void)snprintf(ret->flagged, sizeof(ret->flagged), "%s%s", names,
		       n > commit_paths_shown(j->rules) ? ", ..." : "");
	return 0;
}

static int judge_all(struct judge *j, struct quarantine_seen *ret, struct err *e)
{
	int r = quarantine_list_raw(&j->l, e);

	if (r == 0) {
		j->ids = quarantine_list_scratch(&j->l, "ids", e);
		r = j->ids ? each(j, on_name, e) : -EIO;
	}
	/* In many commits they may be the same ones. */
	if (r == 0 && j->names > MEMBERS_MAX)
		r = check_size(j, e);
	if (r == 0)
		r = quarantine_list_edges(&j->l, e);
	if (r == 0)
		r = flag_old(j, e);
	if (r == 0)
		r = judge_layout(j, e);
	/* What is refused anyway has no links to follow: their paths may be of any length. */
	if (r >= 0)
		r = refuse_bad(j, e);
	if (r == 0)
		r = judge_links(j, e);
	return r < 0 ? r : decide(j, ret, e);
}

int quarantine_names(const struct quarantine *q, const char *head, const char *base,
		     struct quarantine_seen *ret, struct err *e)
{
	_cleanup_fd_ int host = open(q->host->top, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct judge *j = calloc(1, sizeof(*j));
	int r = !j ? -ENOMEM : host < 0 ? -errno : commit_paths_new(host, &j->rules);

	if (r < 0) {
		free(j);
		return err_sys(e, -r, "%s", q->host->top);
	}
	j->l.q = q;
	j->l.head = head;
	j->l.base = base;
	r = judge_all(j, ret, e);
	quarantine_findings_done(&j->bad);
	quarantine_findings_done(&j->out);
	quarantine_list_done(&j->l);
	if (j->ids)
		(void)fclose(j->ids);
	if (j->targets)
		(void)fclose(j->targets);
	commit_paths_free(j->rules);
	free(j);
	return r;
}
