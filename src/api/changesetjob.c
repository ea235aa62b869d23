/*
 * changesetjob.c: the side of results of runs that touches the host: reads and applies them, in jobs.
 *
 * Policy: writes only through changeset_apply, which is door 1, below the root that the run's own row names; that root must be the
 * directory that the daemon resolves for the run now. What is shown is made fit for a person: no control byte of a
 * sandbox is passed on.
 */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/changesets.h"
#include "api/runs.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/changes_show.h"
#include "engine/record.h"
#include "wire/jsonmember.h"

#define ANSWER_BYTES (4 << 20) /* of a list or a patch; the rest is asked for by path or offset */
#define CONTEXT 3

char *changesets_path64(const char *b64)
{
	size_t n = strlen(b64), got = 0;
	char *path = n ? malloc(n + 1) : NULL;
	const char *end = NULL;

	if (path &&
	    sodium_base642bin((unsigned char *)path, n, b64, n, NULL, &got, &end,
			      sodium_base64_VARIANT_ORIGINAL) == 0 &&
	    end == b64 + n && path_is_member(path, got)) {
		path[got] = '\0';
		return path;
	}
	free(path);
	return NULL;
}

static json_t *failed(const struct err *e)
{
	return json_pack("{s:b,s:i,s:s}", "ok", 0, "code", (int)e->code, "error", e->text);
}

/* The set of the run; place: with the workspace that it is of. */
static int open_set(struct job_ctx *x, const json_t *j, bool place, struct changeset *c,
		    struct err *e)
{
	_cleanup_free_ char *real = NULL;
	int r = changeset_find(x->st, json_member_text(j, "runId"), c, e);

	if (r < 0)
		return r;
	if (place && (runs_resolve(json_member_text(j, "root"), json_member_text(j, "path"),
				   x->st->dir, &real) < 0 ||
		      strcmp(real, c->run.workspace) != 0))
		return err_set(e, ERR_NOT_FOUND, "its workspace is not what it was");
	if (place && c->files && c->broken.code != ERR_NONE) {
		*e = c->broken;
		e->code = ERR_INVALID;
		return -EBADMSG;
	}
	return 0;
}

static bool is_below(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	return !n || (strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/'));
}

/* --- reads -------------------------------------------------------------------------------- */

static bool match_prefix(void *arg, size_t part, const char *path)
{
	(void)part;
	return is_below(arg, path);
}

static int load(struct job_ctx *x, const json_t *j, struct changeset *set, struct changes *c,
		struct err *e)
{
	_cleanup_free_ char *odd = changesets_path64(json_member_text(j, "prefix64"));
	const struct changes_filter f = {
	    match_prefix, odd ? odd : (char *)(uintptr_t)json_member_text(j, "prefix")};
	int r = open_set(x, j, true, set, e);

	return r < 0 ? r : changes_load(c, set, 0, &f, e);
}

/* Those that are asked for, as long as the answer has room. */
static int list(const struct changes_view *v, const json_t *j, json_t *to, struct err *e)
{
	json_int_t at = json_integer_value(json_object_get(j, "offset")),
		   end = at + json_integer_value(json_object_get(j, "limit"));
	size_t bytes = 0;
	int r = 0;

	for (; r == 0 && at < end && (size_t)at < v->c->n && bytes < ANSWER_BYTES; at++) {
		json_t *one;

		r = changes_json(v, (size_t)at, to, e);
		one = json_array_get(to, json_array_size(to) - 1);
		/* Of the host; the caller knows it by another name. */
		(void)json_object_del(one, "root");
		bytes += json_dumpb(one, NULL, 0, JSON_COMPACT);
	}
	return r;
}

/* With everything: a path's are not known. */
static bool is_all(const json_t *j)
{
	return !json_member_text(j, "prefix")[0] && !json_member_text(j, "prefix64")[0];
}

/* As `airlock diff` tells them, each line a text: made printable where they were written. */
static json_t *commits(const struct changeset *set, const json_t *request)
{
	_cleanup_free_ char *lines = is_all(request) ? changeset_commit_lines(set) : NULL;
	json_t *all = json_array();

	for (char *at = lines, *end; at && *at; at = end + 1) {
		end = at + strcspn(at, "\n");
		if (!*end)
			break;
		(void)json_array_append_new(all, json_stringn(at, (size_t)(end - at)));
	}
	return all;
}

json_t *job_changes(struct job_ctx *x, const json_t *request)
{
	_cleanup_changeset_ struct changeset set = {0};
	_cleanup_buf_ struct buf a = BUF_INIT(CHANGES_TEXT_BUF), b = BUF_INIT(CHANGES_TEXT_BUF);
	json_t *all = json_array(), *answer;
	struct changes c = {0};
	const struct changes_view v = {.c = &c, .a = &a, .b = &b};
	struct err e = ERR_INIT;
	int r = load(x, request, &set, &c, &e);

	if (r == 0)
		r = list(&v, request, all, &e);
	if (r < 0) {
		json_decref(all);
		answer = failed(&e);
	} else {
		answer = json_pack("{s:b,s:b,s:b,s:o,s:s?,s:I,s:o}", "ok", 1, "waiting", c.waiting,
				   "commitsWait", set.commits && !set.decided[0], "commits",
				   commits(&set, request), "decided",
				   set.decided[0] ? set.decided : NULL, "total", (json_int_t)c.n,
				   "changes", all);
	}
	changes_done(&c);
	return answer;
}

static int emit(void *arg, const char *p, size_t n)
{
	struct buf *b = arg;

	return b->len + n > ANSWER_BYTES ? -EFBIG : buf_put(b, p, n);
}

json_t *job_diff(struct job_ctx *x, const json_t *request)
{
	_cleanup_changeset_ struct changeset set = {0};
	_cleanup_buf_ struct buf a = BUF_INIT(CHANGES_TEXT_BUF), b = BUF_INIT(CHANGES_TEXT_BUF),
				 line = BUF_INIT(CHANGES_LINE_BUF),
				 out = BUF_INIT(ANSWER_BYTES + 256);
	const struct patch_style style = {
	    .eyes = true, .context = CONTEXT, .emit = emit, .arg = &out};
	struct changes c = {0};
	const struct changes_view v = {&c, &style, NULL, &a, &b, &line};
	struct err e = ERR_INIT;
	int r = load(x, request, &set, &c, &e);

	if (r == 0) {
		changeset_tell_commits(&set, "an apply", is_all(request), &line);
		r = line.err ? line.err : emit(&out, buf_text(&line), line.len);
		buf_reset(&line);
	}
	for (size_t i = 0; r == 0 && i < c.n; i++)
		r = changes_patch(&v, i, &e);
	changes_done(&c);
	if (r == -EFBIG) {
		(void)buf_puts(&out, "\n# airlock: more than is shown here: ask with path=\n");
		r = 0;
	}
	if (r < 0 && e.code == ERR_NONE)
		(void)err_sys(&e, -r, "write the difference");
	return r < 0 ? failed(&e) : json_pack("{s:b,s:s}", "ok", 1, "text", buf_text(&out));
}

/* --- apply, discard ----------------------------------------------------------------------- */

struct chosen {
	char **paths;	/* owned, as bytes: those of "paths", then those of "pathsBase64" */
	size_t n, text; /* text: how many of them came as text */
	bool *hit;	/* owned */
};

static void chosen_done(struct chosen *k)
{
	strv_free(k->paths);
	free(k->hit);
	*k = (struct chosen){0};
}
#define _cleanup_chosen_ __attribute__((cleanup(chosen_done)))

static int add_path(struct chosen *k, const char *path)
{
	int r = path ? strv_add(&k->paths, path) : -EINVAL;

	k->n += r == 0;
	return r;
}

/* The daemon has judged each of them. */
static int choose(struct chosen *k, const json_t *request, struct err *e)
{
	json_t *v;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(request, "paths"), i, v)
	{
		if (r == 0)
			r = add_path(k, json_string_value(v));
	}
	k->text = k->n;
	json_array_foreach(json_object_get(request, "pathsBase64"), i, v)
	{
		_cleanup_free_ char *path = changesets_path64(json_string_value(v));

		if (r == 0)
			r = add_path(k, path);
	}
	k->hit = calloc(k->n + 1, sizeof(*k->hit));
	return r < 0 || !k->hit ? err_set(e, ERR_NOMEM, "apply: out of memory") : 0;
}

static bool match_paths(void *arg, size_t part, const char *path)
{
	struct chosen *k = arg;
	bool any = false;

	for (size_t i = 0; i < k->n; i++) {
		bool is = part == 0 && is_below(k->paths[i], path);

		k->hit[i] |= is;
		any |= is;
	}
	return any;
}

static bool touches(void *arg, size_t part)
{
	(void)arg;
	return part == 0;
}

static int all_hit(void *arg, struct err *e)
{
	const struct chosen *k = arg;

	for (size_t i = 0; i < k->n; i++)
		if (!k->hit[i])
			return err_set(e, ERR_USAGE, "paths%s[%zu] names nothing that waits",
				       i < k->text ? "" : "Base64", i < k->text ? i : i - k->text);
	return 0;
}

static json_t *applied(const struct apply_result *a)
{
	return json_pack("{s:b,s:b,s:I,s:I,s:b,s:o,s:I,s:o}", "ok", 1, "done", a->done, "selected",
			 (json_int_t)a->selected, "left", (json_int_t)a->left, "commitsWait",
			 a->commits_wait, "counts", record_counts(&a->t.out), "bytesWritten",
			 (json_int_t)a->t.out.bytes_written, "history",
			 record_history(&a->t.history));
}

json_t *job_apply(struct job_ctx *x, const json_t *request)
{
	_cleanup_chosen_ struct chosen k = {0};
	const char *how = json_member_text(request, "onConflict");
	struct apply_opts o = {.dry_run = json_is_true(json_object_get(request, "dryRun")),
			       .on_conflict = strcmp(how, "take-sandbox") == 0
						  ? CONFLICT_TAKE_SANDBOX
					      : strcmp(how, "keep-host") == 0 ? CONFLICT_KEEP_HOST
									      : -1,
			       .arg = &k};
	_cleanup_changeset_ struct changeset set = {0};
	const struct run_ui ui = {.in = -1, .out = -1, .err = -1};
	struct apply_result a = {0};
	struct err e = ERR_INIT;
	json_t *answer;
	int r = open_set(x, request, true, &set, &e);

	if (r == 0)
		r = choose(&k, request, &e);
	if (k.n) {
		o.match = match_paths;
		o.touches = touches;
		o.check = all_hit;
	}
	if (r == 0)
		r = changeset_apply(x->st, set.run.id, &o, &ui, &a, &e);
	if (r == -EBADMSG)
		e.code = ERR_INVALID;
	answer = r < 0 ? failed(&e) : applied(&a);
	transfer_done(&a.t);
	return answer;
}

json_t *job_discard(struct job_ctx *x, const json_t *request)
{
	_cleanup_changeset_ struct changeset set = {0};
	struct err e = ERR_INIT;
	int r = open_set(x, request, false, &set, &e);

	if (r == 0 && changeset_waits(&set))
		r = changeset_discard(x->st, &set, &e);
	return r < 0 ? failed(&e) : json_pack("{s:b,s:b}", "ok", 1, "done", r > 0);
}
