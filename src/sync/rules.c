#include "sync/rules.h"

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
#include "policy/pattern.h"
#include "policy/secret.h"
#include "sync/git_find.h"

#define FULL_MAX (2 * PATH_MEMBER_MAX + 2)

/* One repository on the way from the top down to the current directory. */
struct repo_ctx {
	struct git_repo *git;	  /* owned if nested; NULL: only its ignore files count */
	struct git_index *index;  /* owned */
	struct pattern_list info; /* info/exclude */
	size_t base;		  /* where its top begins in the full path */
	bool nested;
};

struct frame {
	struct pattern_list git, own; /* .gitignore, .airlockignore */
	size_t base;		      /* where paths relative to this directory begin */
	struct repo_ctx *ctx;	      /* owned if this frame began it */
	bool began;
};

struct rules {
	const struct sync_in_opts *o;
	struct pattern_list include, exclude, global;
	size_t prefix_len;
	char full[FULL_MAX];  /* prefix + path of the entry in question */
	struct frame *frames; /* owned */
	size_t depth, cap;
	struct repo_ctx *root_ctx;
	struct git_repo *git; /* owned */
	struct git_config config;
	const char *note;
};

static int add_options(struct pattern_list *l, char *const *v, struct err *e)
{
	for (size_t i = 0; v && v[i]; i++) {
		int r = pattern_list_add(l, v[i], strlen(v[i]), e);

		if (r < 0)
			return r;
	}
	return 0;
}

static int read_list(int fd, struct pattern_list *l, const char *name, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct stat st;
	ssize_t n, done = 0;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_size)
		return 0;
	if (st.st_size > IGNORE_FILE_MAX)
		return err_set(e, ERR_LIMIT, "%s has more than %d bytes; shorten it", name,
			       IGNORE_FILE_MAX);
	text = malloc((size_t)st.st_size);
	if (!text)
		return err_sys(e, ENOMEM, "%s", name);
	while (done < st.st_size && (n = read(fd, text + done, (size_t)(st.st_size - done))) > 0)
		done += n;
	return err_wrap(e, pattern_list_parse(l, text, (size_t)done, e), "%s", name);
}

/* O_NOFOLLOW: as in git, an ignore file that is a link is not read. */
static int load(int dir_fd, const char *name, struct pattern_list *l, struct err *e)
{
	_cleanup_fd_ int fd =
	    openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd < 0 ? 0 : read_list(fd, l, name, e);
}

static int load_path(const char *path, struct pattern_list *l, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd < 0 ? 0 : read_list(fd, l, path, e);
}

/* core.excludesFile, or its default; the user's own list, below all others. */
static int load_global(struct rules *r, const struct git_repo *g, struct err *e)
{
	const char *home = getenv("HOME"), *xdg = getenv("XDG_CONFIG_HOME"), *set;
	_cleanup_free_ char *path = NULL;
	int q = git_config_read(g, &r->config, e);

	if (q < 0)
		return q;
	set = git_config_get(&r->config, "core.excludesfile");
	if (set && str_starts(set, "~/") && home)
		path = path_join(home, set + 2);
	else if (set)
		path = set[0] == '/' ? strdup(set) : path_join(g->top, set);
	else if (xdg && *xdg)
		path = path_join(xdg, "git/ignore");
	else if (home)
		path = path_join(home, ".config/git/ignore");
	return path ? load_path(path, &r->global, e) : 0;
}

static void ctx_free(struct repo_ctx *c)
{
	if (!c)
		return;
	git_index_free(c->index);
	if (c->nested)
		git_free(c->git);
	pattern_list_done(&c->info);
	free(c);
}

static int ctx_new(struct git_repo *git, bool nested, size_t base, struct repo_ctx **ret,
		   struct err *e)
{
	struct repo_ctx *c = calloc(1, sizeof(*c));
	_cleanup_free_ char *info = NULL;
	int r = 0;

	if (!c) {
		if (nested)
			git_free(git);
		return err_sys(e, ENOMEM, "ignore rules");
	}
	c->git = git;
	c->nested = nested;
	c->base = base;
	if (git) {
		info = path_join(git->common_dir, "info/exclude");
		r = info ? load_path(info, &c->info, e) : err_sys(e, ENOMEM, "ignore rules");
		if (!r)
			r = git_index_start(git, &c->index, e);
	}
	if (r < 0) {
		ctx_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

static int push(struct rules *r, size_t base, struct repo_ctx *ctx, bool began, struct err *e)
{
	if (r->depth == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 16;
		struct frame *f = realloc(r->frames, cap * sizeof(*f));

		if (!f)
			return err_sys(e, ENOMEM, "ignore rules");
		r->frames = f;
		r->cap = cap;
	}
	r->frames[r->depth++] = (struct frame){.base = base, .ctx = ctx, .began = began};
	return 0;
}

/* H1: directories of the repository above the workspace still say what is ignored in it. */
static int load_parents(struct rules *r, const struct git_repo *g, struct err *e)
{
	size_t at = 0;
	int q = 0;

	while (!q && at < r->prefix_len) {
		_cleanup_free_ char *rel = strndup(g->prefix, at);
		_cleanup_free_ char *dir = rel ? path_join(g->top, rel) : NULL;
		_cleanup_fd_ int fd = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

		q = push(r, at, r->root_ctx, false, e);
		if (!q && fd >= 0)
			q = load(fd, ".gitignore", &r->frames[r->depth - 1].git, e);
		at += strcspn(g->prefix + at, "/") + 1;
	}
	return q;
}

static int begin(struct rules *r, struct err *e)
{
	const struct sync_in_opts *o = r->o;
	struct git_repo *git = NULL;
	enum git_found found;
	int q = git_open(o->workspace, true, o->cancel, &git, &found, e);

	if (q < 0)
		return q;
	r->git = git;
	r->note = found == GIT_FOUND_FORGED   ? "git_pointer"
		  : found == GIT_FOUND_NO_GIT ? "git_missing"
					      : NULL;
	q = add_options(&r->include, o->include, e);
	if (!q)
		q = add_options(&r->exclude, o->exclude, e);
	if (q < 0 || !git)
		return q;
	r->prefix_len = strlen(git->prefix);
	if (r->prefix_len > PATH_MEMBER_MAX)
		return err_set(e, ERR_LIMIT, "%s lies too deep in its repository", o->workspace);
	memcpy(r->full, git->prefix, r->prefix_len);
	q = ctx_new(git, false, 0, &r->root_ctx, e);
	if (!q)
		q = load_global(r, git, e);
	return q ? q : load_parents(r, git, e);
}

int rules_new(const struct sync_in_opts *o, struct rules **ret, struct err *e)
{
	struct rules *r = calloc(1, sizeof(*r));
	int q;

	if (!r)
		return err_sys(e, ENOMEM, "ignore rules");
	r->o = o;
	q = begin(r, e);
	if (q < 0) {
		rules_free(r);
		return q;
	}
	*ret = r;
	return 0;
}

struct git_repo *rules_git(const struct rules *r)
{
	return r->git;
}

const struct git_config *rules_config(const struct rules *r)
{
	return &r->config;
}

const char *rules_note(const struct rules *r)
{
	return r->note;
}

void rules_leave(struct rules *r)
{
	struct frame *f = &r->frames[--r->depth];

	pattern_list_done(&f->git);
	pattern_list_done(&f->own);
	if (f->began)
		ctx_free(f->ctx);
}

void rules_free(struct rules *r)
{
	if (!r)
		return;
	while (r->depth)
		rules_leave(r);
	ctx_free(r->root_ctx);
	git_free(r->git);
	git_config_done(&r->config);
	pattern_list_done(&r->include);
	pattern_list_done(&r->exclude);
	pattern_list_done(&r->global);
	free(r->frames);
	free(r);
}

static bool has_entry(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A .git that does not prove itself still ends the outer repository's rules here. */
static int nested_ctx(struct rules *r, const char *path, size_t base, struct repo_ctx **ret,
		      struct err *e)
{
	_cleanup_free_ char *dir = path_join(r->o->workspace, path);
	enum git_found found = GIT_FOUND_NONE;
	struct git_repo *g = NULL;
	int q = dir ? git_open(dir, false, r->o->cancel, &g, &found, e)
		    : err_sys(e, ENOMEM, "ignore rules");

	if (q < 0)
		return q;
	if (found == GIT_FOUND_NONE)
		return 0;
	return ctx_new(g, true, base, ret, e);
}

int rules_enter(struct rules *r, int dir_fd, const char *path, size_t n, bool has_git,
		struct err *e)
{
	size_t base = r->prefix_len + n + (n ? 1 : 0);
	struct repo_ctx *ctx = r->depth ? r->frames[r->depth - 1].ctx : r->root_ctx;
	struct repo_ctx *nested = NULL;
	struct frame *f;
	int q = 0;

	if (n && has_git && dir_fd >= 0 && has_entry(dir_fd, ".git"))
		q = nested_ctx(r, path, base, &nested, e);
	if (!q)
		q = push(r, base, nested ? nested : ctx, nested != NULL, e);
	if (q < 0) {
		ctx_free(nested);
		return q;
	}
	f = &r->frames[r->depth - 1];
	if (dir_fd >= 0 && (f->ctx || r->note))
		q = load(dir_fd, ".gitignore", &f->git, e);
	if (!q && dir_fd >= 0)
		q = load(dir_fd, ".airlockignore", &f->own, e);
	if (q < 0)
		rules_leave(r);
	return q < 0 ? err_wrap(e, q, "%s/%s", r->o->workspace, path) : 0;
}

static bool own_ignored(struct rules *r, size_t len, bool is_dir)
{
	for (size_t i = r->depth; i-- > 0;) {
		struct frame *f = &r->frames[i];
		enum pattern_verdict v =
		    pattern_list_match(&f->own, r->full + f->base, len - f->base, is_dir);

		if (v != PATTERN_NONE)
			return v == PATTERN_MATCH;
	}
	return false;
}

static bool git_ignored(struct rules *r, size_t len, bool is_dir)
{
	struct repo_ctx *ctx = r->depth ? r->frames[r->depth - 1].ctx : NULL;
	enum pattern_verdict v;

	for (size_t i = r->depth; i-- > 0 && r->frames[i].ctx == ctx;) {
		struct frame *f = &r->frames[i];

		v = pattern_list_match(&f->git, r->full + f->base, len - f->base, is_dir);
		if (v != PATTERN_NONE)
			return v == PATTERN_MATCH;
	}
	if (!ctx)
		return false;
	v = pattern_list_match(&ctx->info, r->full + ctx->base, len - ctx->base, is_dir);
	if (v == PATTERN_NONE)
		v = pattern_list_match(&r->global, r->full + ctx->base, len - ctx->base, is_dir);
	return v == PATTERN_MATCH;
}

static int tracked(struct rules *r, size_t len, bool is_dir, struct err *e)
{
	struct repo_ctx *ctx = r->depth ? r->frames[r->depth - 1].ctx : NULL;
	int has;

	if (!ctx || !ctx->index)
		return 0;
	if (!is_dir)
		return git_index_has(ctx->index, r->full + ctx->base, len - ctx->base, e);
	has = git_index_below(ctx->index, r->full + ctx->base, len - ctx->base, e);
	/* A gitlink: the directory itself is in the index. */
	return has ? has : git_index_has(ctx->index, r->full + ctx->base, len - ctx->base, e);
}

static enum rules_why left_out(struct rules *r, size_t len, const char *name, size_t name_n,
			       bool is_dir, bool secret)
{
	if (git_ignored(r, len, is_dir))
		return WHY_IGNORED;
	if (secret)
		return WHY_SECRET;
	if (is_dir && secret_heavy_dir(name, name_n))
		return WHY_HEAVY;
	return WHY_NONE;
}

static void take(struct rules_verdict *v, bool is_dir, enum rules_mode below)
{
	*v = (struct rules_verdict){.take = true, .descend = is_dir, .below = below};
}

/* Up to the point where git's index must be asked: 1 decided, 0 ask. */
static int judge(struct rules *r, const char *path, size_t n, bool is_dir, enum rules_mode mode,
		 struct rules_verdict *ret)
{
	const char *slash = memrchr(path, '/', n);
	const char *name = slash ? slash + 1 : path;
	size_t name_n = n - (size_t)(name - path), len = r->prefix_len + n;
	bool secret;

	*ret = (struct rules_verdict){.below = mode};
	if (n > PATH_MEMBER_MAX)
		return 1;
	memcpy(r->full + r->prefix_len, path, n);
	r->full[len] = '\0';
	if (pattern_list_match(&r->exclude, path, n, is_dir) == PATTERN_MATCH) {
		ret->why = WHY_EXCLUDED;
		return 1;
	}
	secret = secret_looking(name, name_n, is_dir);
	if (pattern_list_match(&r->include, path, n, is_dir) == PATTERN_MATCH) {
		take(ret, is_dir, secret ? RULES_RELEASED : RULES_ALL);
		return 1;
	}
	if (own_ignored(r, len, is_dir)) {
		ret->why = WHY_EXCLUDED;
		return 1;
	}
	if (mode == RULES_RELEASED || (mode == RULES_ALL && !secret)) {
		take(ret, is_dir, mode);
		return 1;
	}
	ret->why = mode == RULES_REST  ? WHY_IGNORED
		   : mode == RULES_ALL ? WHY_SECRET
				       : left_out(r, len, name, name_n, is_dir, secret);
	if (ret->why == WHY_NONE) {
		take(ret, is_dir, RULES_NORMAL);
		return 1;
	}
	return 0;
}

int rules_judge(struct rules *r, const char *path, size_t n, bool is_dir, enum rules_mode mode,
		struct rules_verdict *ret, struct err *e)
{
	int has;

	if (judge(r, path, n, is_dir, mode, ret))
		return 0;
	has = tracked(r, r->prefix_len + n, is_dir, e);
	if (has < 0)
		return has;
	if (has) {
		take(ret, is_dir, RULES_REST);
	} else if (is_dir && pattern_list_reaches_below(&r->include, path, n)) {
		ret->descend = ret->only_if_below = true;
		ret->below = RULES_REST;
	}
	return 0;
}

size_t rules_level(const struct rules *r)
{
	return r->depth;
}

bool rules_surely_takes(struct rules *r, size_t level, const char *dir, size_t n,
			enum rules_mode mode, enum rules_mode *ret_below)
{
	struct rules_verdict v;
	size_t depth = r->depth;
	int done;

	r->depth = level;
	done = judge(r, dir, n, true, mode, &v);
	r->depth = depth;
	*ret_below = v.below;
	return done && v.take;
}

void rules_unused(const struct rules *r, void (*fn)(void *arg, const char *pattern), void *arg)
{
	const struct pattern_list *lists[] = {&r->include, &r->exclude};

	for (size_t k = 0; k < ARRAY_LEN(lists); k++)
		for (size_t i = 0; i < lists[k]->n; i++)
			if (!lists[k]->v[i].hits)
				fn(arg, lists[k]->v[i].text);
}

struct git_index *rules_index(struct rules *r)
{
	return r->root_ctx ? r->root_ctx->index : NULL;
}
