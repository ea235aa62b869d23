#include "sync/gitback.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "sync/git.h"
#include "sync/git_find.h"
#include "sync/gitindex.h"
#include "sync/gitref.h"
#include "sync/indexlock.h"
#include "sync/quarantine.h"
#include "sync/quarantine_show.h"

#define RACES_MAX 5
#define LINES_MAX (8 << 20)

struct back {
	const struct gitback_opts *o;
	struct history *h;
	struct git_repo *git;  /* owned */
	struct quarantine *q;  /* owned */
	struct bundle *bundle; /* owned */
	int fd;		       /* owned: the bundle */
	struct quarantine_seen seen;
};

static int done(struct back *k, enum history_outcome o, const char *why)
{
	k->h->outcome = o;
	(void)snprintf(k->h->why, sizeof(k->h->why), "%s", why);
	return 1;
}

/* Steps return 0 to go on, 1 when the outcome is decided, negative errno with e. */

static int read_bundle(struct back *k, struct err *e)
{
	_cleanup_free_ char *path = path_join(k->o->run_dir, GITBACK_BUNDLE), *head = NULL;
	const char *why;
	struct stat st;
	ssize_t n;
	int r;

	k->bundle = calloc(1, sizeof(*k->bundle));
	head = malloc(BUNDLE_HEADER_MAX);
	if (!path || !head || !k->bundle)
		return err_sys(e, ENOMEM, "bundle");
	k->fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (k->fd < 0 || fstat(k->fd, &st) < 0)
		return err_sys(e, errno, "%s", path);
	if ((uint64_t)st.st_size > BUNDLE_BYTES_MAX)
		return err_set(e, ERR_LIMIT, "the bundle is larger than %llu bytes",
			       (unsigned long long)BUNDLE_BYTES_MAX);
	n = pread(k->fd, head, BUNDLE_HEADER_MAX, 0);
	if (n < 0)
		return err_sys(e, errno, "%s", path);
	r = bundle_parse(head, (size_t)n, "HEAD", k->bundle, &why);
	if (r == 0)
		return err_set(e, ERR_HOSTILE,
			       "the bundle from the sandbox was refused: it is cut");
	if (r < 0)
		return err_set(e, ERR_HOSTILE, "the bundle from the sandbox was refused: %s", why);
	memcpy(k->h->head, k->bundle->head, sizeof(k->h->head));
	return 0;
}

/* rev-parse of one name: "" when it does not exist. */
static int resolve(const struct git_repo *g, const char *name, char ret[BUNDLE_OID_MAX + 1],
		   struct err *e)
{
	_cleanup_free_ char *rev = NULL;
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	struct process_opts io = PROCESS_OPTS_INIT;
	size_t n;
	int status = 0, r;

	ret[0] = '\0';
	if (asprintf(&rev, "%s^{commit}", name) < 0)
		return err_sys(e, ENOMEM, "%s", g->top);
	const char *const words[] = {"rev-parse", "--verify", "-q", "--end-of-options", rev, NULL};
	io.out = &out;
	r = git_try(g, words, NULL, &io, &status, e);
	if (r < 0 || status)
		return r;
	n = strspn(buf_text(&out), "0123456789abcdef");
	if (n != 40 && n != 64)
		return err_set(e, ERR_PROTOCOL, "git did not answer with an object id");
	memcpy(ret, out.data, n);
	ret[n] = '\0';
	return 0;
}

static void drop_imported(struct back *k)
{
	const char *const words[] = {"update-ref", "-d", k->h->ref, k->h->head, NULL};
	struct process_opts io = PROCESS_OPTS_INIT;
	int status;

	/* One that stays is no harm: the branch has its commits. */
	if (git_try(k->git, words, quarantine_identity, &io, &status, NULL) == 0 && !status)
		k->h->ref[0] = '\0';
}

static int open_host(struct back *k, struct err *e)
{
	const char *const format[] = {"rev-parse", "--show-object-format", NULL};
	_cleanup_buf_ struct buf out = BUF_INIT(256);
	struct process_opts io = PROCESS_OPTS_INIT;
	enum git_found found = GIT_FOUND_NONE;
	int r = git_open(k->o->workspace, false, k->o->cancel, &k->git, &found, e);

	if (r < 0)
		return r;
	if (found != GIT_FOUND_REPO)
		return err_set(e, ERR_NOT_FOUND, "%s %s", k->o->workspace,
			       found == GIT_FOUND_NO_GIT ? "needs git on this host"
							 : "is no git repository any more");
	indexlock_sweep(k->git);
	if (k->git->head[0])
		return 0; /* its length has told the format */
	io.out = &out;
	r = git_run(k->git, format, NULL, &io, e);
	k->git->sha256 = !r && str_starts(buf_text(&out), "sha256");
	return r;
}

static int put_lines(const char *run_dir, const struct buf *b, struct err *e)
{
	_cleanup_free_ char *to = path_join(run_dir, GITBACK_LINES), *tmp = NULL;
	_cleanup_fd_ int fd = -1;

	if (!to || asprintf(&tmp, "%s.new", to) < 0)
		return err_sys(e, ENOMEM, "%s", run_dir);
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, buf_text(b), b->len) != (ssize_t)b->len || rename(tmp, to) < 0)
		return err_sys(e, fd < 0 ? errno : ENOSPC, "%s", to);
	return 0;
}

/* For a person. Without it nothing is less safe, so no failure of it is one of the commits. */
static void show(struct back *k)
{
	_cleanup_buf_ struct buf lines = BUF_INIT(LINES_MAX), names = BUF_INIT(4096),
				 other = BUF_INIT(4096);
	struct quarantine_show s = {.has = k->o->has,
				    .arg = k->o->has_arg,
				    .lines = k->o->hold ? &lines : NULL,
				    .missing = &names,
				    .differs = &other};

	/* Where no files came back that is said, and all of them would be missing. */
	if (k->o->import_only && !k->o->hold)
		return;
	if (quarantine_show(k->q, k->h->head, k->o->head, &s, NULL) < 0)
		return;
	if (!k->o->import_only) {
		(void)snprintf(k->h->missing, sizeof(k->h->missing), "%s", buf_text(&names));
		(void)snprintf(k->h->differs, sizeof(k->h->differs), "%s", buf_text(&other));
	}
	if (k->o->hold)
		(void)put_lines(k->o->run_dir, &lines, NULL);
}

/* Objects and the imported ref: from here on nothing can be lost. */
static int import(struct back *k, struct err *e)
{
	const char *have[BUNDLE_PREREQ_MAX + 2];
	size_t n = 0;
	int r = quarantine_new(k->git, k->o->run_dir, &k->q, e);

	if (!r)
		r = quarantine_take(k->q, k->fd, k->bundle, k->o->head, &k->seen, e);
	k->h->commits = k->seen.commits;
	(void)snprintf(k->h->flagged, sizeof(k->h->flagged), "%s", k->seen.flagged);
	if (!r)
		show(k);
	if (!r && k->o->hold)
		return done(k, HISTORY_HELD, "");
	have[n++] = k->o->head;
	have[n] = NULL;
	if (!r)
		r = quarantine_give(k->q, k->h->head, have, e);
	if (r < 0)
		return r;
	(void)snprintf(k->h->ref, sizeof(k->h->ref), "refs/airlock/imported/%s", k->o->run_id);
	r = gitref_set(k->git, k->h->ref, k->h->head, NULL, "airlock: commits of a run",
		       quarantine_identity, e);
	if (r == 1)
		return 0;
	k->h->ref[0] = '\0';
	return r < 0 ? r
		     : err_set(e, ERR_IO, "git could not write the ref of the imported commits");
}

static bool exists(const char *dir, const char *name)
{
	_cleanup_free_ char *p = path_join(dir, name);
	struct stat st;

	return p && lstat(p, &st) == 0;
}

/* A merge, pick or rebase that the user has begun: its next step counts on the branch as it is. */
static bool in_progress(const struct back *k)
{
	static const char *const marks[] = {"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"};
	static const char *const rebases[] = {"rebase-merge/head-name", "rebase-apply/head-name"};

	for (size_t i = 0; i < ARRAY_LEN(rebases); i++) {
		_cleanup_free_ char *name = git_find_slurp(k->git->git_dir, rebases[i], 4096);

		if (name && strcmp(name, k->o->branch) == 0)
			return true;
	}
	for (size_t i = 0; i < ARRAY_LEN(marks); i++)
		if (str_eq(k->git->branch, k->o->branch) && exists(k->git->git_dir, marks[i]))
			return true;
	return false;
}

static int checked_out_elsewhere(const struct back *k, struct err *e)
{
	const char *const words[] = {"for-each-ref", "--format=%(worktreepath)", "--", k->o->branch,
				     NULL};
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct process_opts io = PROCESS_OPTS_INIT;
	size_t n;
	int r;

	io.out = &out;
	r = git_run(k->git, words, NULL, &io, e);
	n = r < 0 ? 0 : strcspn(buf_text(&out), "\n");
	if (!n)
		return r;
	return strlen(k->git->top) != n || memcmp(k->git->top, out.data, n) != 0;
}

/* May the branch, which is at `here` now, take the commits? 0 yes. */
static int judge(struct back *k, const char *here, struct err *e)
{
	const char *base = k->o->head, *in = k->h->head;
	int r;

	if (!here[0] && base[0])
		return done(k, HISTORY_IMPORTED, "the branch is gone here");
	r = here[0] ? quarantine_is_ancestor(k->q, in, here, e) : 0;
	if (r)
		return r < 0 ? r : done(k, HISTORY_NONE, "the branch has the commits already");
	if (!base[0] && here[0])
		return done(k, HISTORY_CONFLICT, "the branch was empty and was begun here too");
	r = quarantine_is_ancestor(k->q, base, in, e);
	if (r <= 0)
		return r < 0
			   ? r
			   : done(
				 k, HISTORY_IMPORTED,
				 "history was rewritten inside: it does not build on the commit that was sent");
	r = quarantine_is_ancestor(k->q, base, here, e);
	if (r <= 0)
		return r < 0 ? r
			     : done(k, HISTORY_CONFLICT, "the branch was rewritten here meanwhile");
	if (k->seen.outside[0]) {
		char why[sizeof(k->h->why)];

		(void)snprintf(why, sizeof(why),
			       "they have %.600s, which leads out of the workspace or may",
			       k->seen.outside);
		return done(k, HISTORY_IMPORTED, why);
	}
	if (k->o->import_only)
		return done(k, HISTORY_IMPORTED, "the files did not come back");
	if (in_progress(k))
		return done(k, HISTORY_CONFLICT, "a merge, pick or rebase is in progress here");
	r = checked_out_elsewhere(k, e);
	if (r)
		return r < 0 ? r
			     : done(k, HISTORY_CONFLICT, "it is checked out in another work tree");
	return 0;
}

/* The commit that the branch shall have: the sandbox's, or a merge of both. */
static int make_tip(struct back *k, const char *here, char tip[BUNDLE_OID_MAX + 1], struct err *e)
{
	const char *const have[] = {here, k->h->head, NULL};
	const char *why = "";
	char message[128];
	int r = quarantine_count(k->q, k->h->head, here, &k->h->commits, e);

	if (!r)
		r = quarantine_is_ancestor(k->q, here, k->h->head, e);
	if (r < 0)
		return r;
	k->h->outcome = r ? HISTORY_FORWARD : HISTORY_MERGED;
	if (r) {
		memcpy(tip, k->h->head, BUNDLE_OID_MAX + 1);
		return 0;
	}
	(void)snprintf(message, sizeof(message), "Merge commits of airlock run %s", k->o->run_id);
	r = quarantine_merge(k->q, here, k->h->head, message, tip, &why, e);
	if (r <= 0)
		return r < 0 ? r : done(k, HISTORY_CONFLICT, why);
	return quarantine_give(k->q, tip, have, e);
}

/* Is the branch the one that is checked out here? As it is now: a person may leave it at any time. */
static int is_here(const struct back *k, struct err *e)
{
	const char *const words[] = {"symbolic-ref", "-q", "HEAD", NULL};
	_cleanup_buf_ struct buf out = BUF_INIT(PATH_MEMBER_MAX + 64);
	struct process_opts io = PROCESS_OPTS_INIT;
	size_t n = strlen(k->o->branch);
	int status = 0, r;

	io.out = &out;
	r = git_try(k->git, words, NULL, &io, &status, e);
	return r < 0 ? r : !status && out.len == n + 1 && memcmp(out.data, k->o->branch, n) == 0;
}

static int move_branch(const struct back *k, const char *tip, const char *here, const char *message,
		       struct err *e)
{
	return gitref_set(k->git, k->o->branch, tip, here, message, quarantine_identity, e);
}

/* 1: moved. 0: somebody else moved it at the same time, and the index is as it was. */
static int swap_both(struct back *k, const struct indexlock *l, const char *here, const char *tip,
		     const char *message, struct err *e)
{
	struct err why = ERR_INIT;
	int r;

	/* The index first: see gitback.h on a kill in between. */
	if (gitindex_follow(k->git, l, here, tip, &why) < 0)
		return done(k, HISTORY_CONFLICT, why.text);
	r = move_branch(k, tip, here, message, e);
	if (r != 1 && indexlock_restore(l, &why) < 0)
		return done(k, HISTORY_CONFLICT, why.text);
	return r;
}

/* 1: moved or decided. 0: somebody else moved it at the same time. */
static int swap(struct back *k, const char *here, struct err *e)
{
	char tip[BUNDLE_OID_MAX + 1], message[128];
	struct err why = ERR_INIT;
	struct indexlock lock;
	int r = make_tip(k, here, tip, e);

	if (r)
		return r;
	(void)snprintf(message, sizeof(message), "airlock: run %s", k->o->run_id);
	r = is_here(k, e);
	if (r < 0)
		return r;
	if (!r)
		return move_branch(k, tip, here, message, e);
	if (indexlock_take(k->git, &lock, &why) < 0)
		return done(k, HISTORY_CONFLICT, why.text);
	/* A checkout of another branch holds the lock too. */
	r = is_here(k, e);
	if (r == 1)
		r = swap_both(k, &lock, here, tip, message, e);
	else if (r == 0)
		r = move_branch(k, tip, here, message, e);
	indexlock_release(&lock);
	return r;
}

static int move(struct back *k, struct err *e)
{
	if (!k->o->branch)
		return done(k, HISTORY_IMPORTED, "HEAD was detached when the run began");
	for (int i = 0; i < RACES_MAX; i++) {
		char here[BUNDLE_OID_MAX + 1];
		int r = resolve(k->git, k->o->branch, here, e);

		if (!r)
			r = judge(k, here, e);
		if (!r)
			r = swap(k, here, e);
		if (r)
			return r;
	}
	return done(k, HISTORY_CONFLICT, "git did not let the branch move");
}

static bool lands(enum history_outcome o)
{
	return o == HISTORY_NONE || o == HISTORY_FORWARD || o == HISTORY_MERGED;
}

void gitback_import(const struct gitback_opts *o, struct history *ret)
{
	struct back k = {.o = o, .h = ret, .fd = -1};
	struct err e = ERR_INIT;
	int r;

	ret->outcome = HISTORY_NONE;
	ret->branch = o->branch ? strdup(o->branch) : NULL;
	r = read_bundle(&k, &e);
	if (!r)
		r = open_host(&k, &e);
	if (!r)
		r = import(&k, &e);
	if (!r)
		r = move(&k, &e);
	if (r < 0 && ret->ref[0]) {
		/* The commits are safe here; only the branch could not be looked after. */
		(void)done(&k, HISTORY_CONFLICT, e.text);
	} else if (r < 0) {
		(void)done(&k, HISTORY_FAILED, e.text);
		ret->retry = e.code != ERR_HOSTILE;
	} else if (lands(ret->outcome)) {
		drop_imported(&k);
	}
	quarantine_free(k.q);
	git_free(k.git);
	free(k.bundle);
	cleanup_fd(&k.fd);
	if (ret->outcome != HISTORY_FAILED && ret->outcome != HISTORY_HELD) {
		_cleanup_free_ char *path = path_join(o->run_dir, GITBACK_BUNDLE);
		_cleanup_free_ char *lines = path_join(o->run_dir, GITBACK_LINES);

		if (path)
			(void)unlink(path);
		if (lines)
			(void)unlink(lines);
	}
}
