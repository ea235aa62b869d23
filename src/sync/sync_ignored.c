/*
 * sync_ignored(): the rules of rules.h asked about paths that come back.
 *
 * Paths are sorted first, so every host directory is entered once. A directory that is not on the
 * host has no ignore files of its own: what the sandbox put there does not count.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "sync/rules.h"
#include "sync/sync_in.h"
#include "wire/manifest.h"

struct level {
	size_t end; /* bytes of the path that name this directory */
	enum rules_mode mode;
	bool out; /* left out with all that is below */
};

struct asked {
	const char *path;
	size_t n, index;
};

struct query {
	struct rules *rules;
	int root_fd;
	struct asked *v; /* owned, sorted */
	size_t n;
	const char *at; /* path that the levels belong to */
	struct level levels[PATH_DEPTH_MAX + 2];
	size_t depth; /* levels[0] is the workspace */
	struct err *e;
};

static int by_path(const void *a, const void *b)
{
	const struct asked *x = a, *y = b;

	return manifest_path_cmp(x->path, x->n, y->path, y->n);
}

static int open_dir(const struct query *q, const char *path)
{
	struct open_how how = {
	    .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, q->root_fd, *path ? path : ".", &how, sizeof(how));
}

static void leave(struct query *q)
{
	q->depth--;
	if (!q->levels[q->depth].out)
		rules_leave(q->rules);
}

static int enter(struct query *q, const char *path, size_t n, enum rules_mode mode)
{
	_cleanup_free_ char *dir = strndup(path, n);
	_cleanup_fd_ int fd = dir ? open_dir(q, dir) : -1;
	int r = dir ? rules_enter(q->rules, fd, dir, n, true, q->e)
		    : err_sys(q->e, ENOMEM, "ignore rules");

	if (r < 0)
		return r;
	q->levels[q->depth++] = (struct level){.end = n, .mode = mode};
	return 0;
}

/* A credential that the agent made itself comes back: the rule is about what is sent. */
static bool kept_out(const struct rules_verdict *v)
{
	return !v->take && v->why != WHY_SECRET && v->why != WHY_NONE;
}

static int judge_dir(struct query *q, const char *path, size_t n)
{
	struct rules_verdict v;
	int r = rules_judge(q->rules, path, n, true, q->levels[q->depth - 1].mode, &v, q->e);

	if (r < 0)
		return r;
	if (kept_out(&v) && !v.descend) {
		q->levels[q->depth++] = (struct level){.end = n, .out = true};
		return 0;
	}
	return enter(q, path, n, v.take || v.descend ? v.below : RULES_NORMAL);
}

/* Leaves what is not above this path, enters what is. */
static int go_to(struct query *q, const struct asked *a)
{
	size_t from;

	while (q->depth > 1) {
		size_t end = q->levels[q->depth - 1].end;

		if (end < a->n && a->path[end] == '/' && memcmp(q->at, a->path, end) == 0)
			break;
		leave(q);
	}
	q->at = a->path;
	from = q->levels[q->depth - 1].end;
	for (size_t i = from + (from ? 1 : 0); i < a->n; i++) {
		int r;

		if (a->path[i] != '/')
			continue;
		if (q->levels[q->depth - 1].out)
			return 0;
		if (q->depth >= ARRAY_LEN(q->levels))
			return err_set(q->e, ERR_LIMIT, "path deeper than %d segments",
				       PATH_DEPTH_MAX);
		r = judge_dir(q, a->path, i);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Is b, which comes after a, at or behind the place of "a/"? */
static bool is_behind(const struct asked *a, const struct asked *b)
{
	int r = memcmp(a->path, b->path, a->n < b->n ? a->n : b->n);

	return r < 0 || (r == 0 && b->n > a->n && b->path[a->n] >= '/');
}

/*
 * Another asked path lies below it, so it is a directory. Between "a" and "a/x" there may be any number of names
 * such as "a-b", and of those as many that begin with each other: bisected.
 */
static bool is_parent(const struct query *q, size_t i)
{
	const struct asked *a = &q->v[i], *b;
	size_t lo = i + 1, hi = q->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (is_behind(a, &q->v[mid]))
			hi = mid;
		else
			lo = mid + 1;
	}
	b = &q->v[lo];
	return lo < q->n && b->n > a->n && memcmp(a->path, b->path, a->n) == 0 &&
	       b->path[a->n] == '/';
}

static int answer(struct query *q, size_t i, bool *ret)
{
	const struct asked *a = &q->v[i];
	struct rules_verdict v;
	int r;

	if (!path_is_member(a->path, a->n))
		return err_set(q->e, ERR_INVALID, "a path to be judged is no member path");
	r = go_to(q, a);
	if (r < 0)
		return r;
	*ret = true;
	if (q->levels[q->depth - 1].out)
		return 0;
	r = rules_judge(q->rules, a->path, a->n, is_parent(q, i), q->levels[q->depth - 1].mode, &v,
			q->e);
	*ret = kept_out(&v) && !v.descend;
	return r;
}

static int sort_paths(struct query *q, char *const *paths, size_t n)
{
	q->v = calloc(n, sizeof(*q->v));
	if (!q->v)
		return err_sys(q->e, ENOMEM, "ignore rules");
	for (size_t i = 0; i < n; i++)
		q->v[i] = (struct asked){paths[i], strlen(paths[i]), i};
	q->n = n;
	qsort(q->v, n, sizeof(*q->v), by_path);
	return 0;
}

int sync_ignored(const struct sync_in_opts *o, char *const *paths, size_t n, bool *skip,
		 struct err *e)
{
	struct query q = {.root_fd = -1, .e = e};
	int r;

	if (!n)
		return 0;
	q.root_fd = open(o->workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (q.root_fd < 0)
		return err_sys(e, errno, "workspace %s", o->workspace);
	r = rules_new(o, &q.rules, e);
	if (!r)
		r = sort_paths(&q, paths, n);
	if (!r)
		r = enter(&q, "", 0, RULES_NORMAL);
	for (size_t i = 0; i < n && !r; i++)
		r = answer(&q, i, &skip[q.v[i].index]);
	while (q.depth)
		leave(&q);
	free(q.v);
	rules_free(q.rules);
	cleanup_fd(&q.root_fd);
	return r;
}
