#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "engine/changeset.h"
#include "engine/history.h"
#include "engine/interrupt.h"
#include "sync/indexlock.h"

/* What of one part is meant. */
struct part_match {
	const struct apply_opts *o;
	size_t part;
};

static bool in_part(void *arg, const char *path)
{
	const struct part_match *m = arg;

	return m->o->match(m->o->arg, m->part, path);
}

/* Paths that an apply could not settle, sorted as the report is. */
struct open_paths {
	struct part_match m;
	struct review *rv;
	struct review_entry *en; /* scratch */
	char **v;		 /* borrowed strings */
	size_t n;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_open(const struct open_paths *p, const char *path)
{
	return bsearch(&path, p->v, p->n, sizeof(*p->v), by_text) != NULL;
}

/* Does something that could not take a directory's place lie above it? Then the directory stays as a whole. */
static bool stays_above(const struct open_paths *p, const char *path)
{
	char up[PATH_MEMBER_MAX + 1];

	for (size_t n = strlen(path); p->n && n-- > 1;) {
		if (path[n] != '/')
			continue;
		(void)snprintf(up, sizeof(up), "%.*s", (int)n, path);
		if (is_open(p, up) && review_find(p->rv, up, p->en) == 0 &&
		    (p->en->s.kind == MK_FILE || p->en->s.kind == MK_LINK))
			return true;
	}
	return false;
}

static bool still_open(void *arg, const char *path)
{
	struct open_paths *p = arg;

	return (p->m.o->match && !in_part(&p->m, path)) || is_open(p, path) || stays_above(p, path);
}

bool changeset_taken(const struct unpack_change *c)
{
	return c->detail && strncmp(c->detail, "conflicts/host/", 15) == 0;
}

static int keep_rest(struct review *rv, const struct part_match *m, const struct unpack_report *u,
		     uint64_t *ret_left, struct err *e)
{
	_cleanup_free_ struct review_entry *en = malloc(sizeof(*en));
	struct open_paths p = {.m = *m, .rv = rv, .en = en};
	int r;

	p.v = en ? calloc(u->changes_len + 1, sizeof(*p.v)) : NULL;
	if (!p.v)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	for (size_t i = 0; i < u->changes_len; i++)
		if (u->changes[i].action == UA_FAIL ||
		    (u->changes[i].action == UA_CONFLICT && !changeset_taken(&u->changes[i])))
			p.v[p.n++] = u->changes[i].path;
	qsort(p.v, p.n, sizeof(*p.v), by_text);
	r = review_keep(rv, still_open, &p, ret_left, e);
	free(p.v);
	return r;
}

/* One apply of a set, from part to part. */
struct applying {
	struct state *st;
	struct changeset *c;
	const struct apply_opts *o;
	const struct run_ui *ui;
	struct apply_result *ret;
	struct review *rv[CHANGESET_PARTS_MAX]; /* owned; NULL: nothing of the part waits */
	uint64_t n[CHANGESET_PARTS_MAX];	/* paths that are meant */
	uint64_t left;				/* of the part that was dealt with last */
	bool unread; /* a part that is not meant could not be read: it goes on waiting */
};

static int publish(const struct applying *a, size_t part, struct unpack_report *rep, struct err *e)
{
	_cleanup_free_ struct changeset_part *at = calloc(1, sizeof(*at));
	_cleanup_free_ char *manifest = NULL;
	const struct lease_spec *s = &a->c->spec;
	struct unpack_opts u = {
	    .root_dev = transfer_device(s, s->root_dev),
	    .root_ino = s->root_ino,
	    .state_dir = a->st->dir,
	    .manifest_path = s->manifest,
	    .layers = s->layers,
	    .on_conflict =
		a->o->on_conflict < 0 ? s->on_conflict : (enum on_conflict)a->o->on_conflict,
	    .apply = true,
	    .tell_left = true,
	    .without_landlock = s->without & WITHOUT_LANDLOCK,
	    .dry_run = a->o->dry_run,
	    .progress = a->ui->progress,
	    .progress_arg = a->ui->arg,
	    .cancel = interrupt_first(),
	};
	int r;

	if (!at)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	changeset_part(a->c, part, at);
	u.root = at->root;
	u.run_dir = at->dir;
	if (part) {
		manifest = path_join(at->dir, MAP_MANIFEST);
		if (!manifest)
			return err_set(e, ERR_NOMEM, "review: out of memory");
		u.root_dev = transfer_device(s, at->map.dev);
		u.root_ino = at->map.ino;
		u.manifest_path = manifest;
		u.layers = NULL;
		u.only = at->map.file ? path_base(at->map.src) : NULL;
		u.keep_trash = true;
	}
	r = unpack_run(&u, rep, e);
	if (r < 0) {
		unpack_report_done(rep);
		*rep = (struct unpack_report){0};
	}
	if (a->ui->progress_end)
		a->ui->progress_end(a->ui->arg);
	return r < 0 && e && (e->code == ERR_INVALID || e->code == ERR_CONFLICT) ? -EBADMSG : r;
}

static void import(const struct changeset *c, bool beside, struct transfer *t)
{
	const struct gitback_opts g = {.workspace = c->run.workspace,
				       .run_dir = c->run_dir,
				       .run_id = c->run.id,
				       .head = c->spec.head ? c->spec.head : "",
				       .branch = c->spec.branch,
				       .import_only = beside,
				       .cancel = interrupt_second()};

	t->history.asked = true;
	gitback_import(&g, &t->history);
	history_refuse(c->run_dir, &t->history);
}

/* All parts are looked through, and what nothing matched is said, before anything is done. */
static int choose(struct applying *a, struct err *e)
{
	bool any = false;
	int r = 0;

	for (size_t i = 0; r == 0 && i < changeset_parts(a->c); i++) {
		struct part_match m = {a->o, i};

		bool asked = !a->o->match || a->o->touches(a->o->arg, i);

		r = changeset_open(a->c, i, false, &a->rv[i], e);
		/* What nobody asks for does not hold up the rest when it is damaged. */
		if (r < 0 && r != -ENOENT && !asked) {
			a->unread = true;
			r = 0;
			continue;
		}
		if (r == 0)
			r = review_select(a->rv[i], a->o->match ? in_part : NULL, &m, &a->n[i], e);
		else if (r == -ENOENT)
			r = 0;
		else if (e->code == ERR_INVALID)
			r = -EBADMSG;
		any = any || a->rv[i];
		a->ret->selected += a->n[i];
	}
	if (r == 0 && any && a->o->check)
		r = a->o->check(a->o->arg, e);
	return r < 0 ? r : any;
}

static int apply_part(struct applying *a, size_t part, struct err *e)
{
	struct part_match m = {a->o, part};
	struct map_result *map = part ? &a->ret->t.maps[part - 1] : NULL;
	struct unpack_report *rep = part ? &map->rep : &a->ret->t.out;
	bool *done = part ? &map->done : &a->ret->t.out_done;
	int r = 0;

	a->left = review_count(a->rv[part], NULL);
	if (a->n[part] || !a->o->match) {
		r = publish(a, part, rep, e);
		*done = r == 0;
		a->ret->done |= r == 0;
		/* What is left is known before anything is ended: a path list, then the commits, then the list's end. */
		if (r == 0 && !a->o->dry_run)
			r = keep_rest(a->rv[part], &m, rep, &a->left, e);
	}
	a->ret->left += a->left;
	return r;
}

static bool commits_left(const struct changeset *c)
{
	_cleanup_free_ char *p = path_join(c->run_dir, GITBACK_BUNDLE);

	return p && access(p, F_OK) == 0;
}

static int apply_locked(struct applying *a, struct err *e)
{
	struct apply_result *ret = a->ret;
	struct changeset *c = a->c;
	int r = choose(a, e);

	if (r <= 0)
		return r;
	ret->t.applied = true;
	ret->commits_wait = c->commits;
	r = maps_results(&c->spec, c->run_dir, &ret->t, e);
	for (size_t i = 0; i < changeset_parts(c); i++) {
		if (a->rv[i] && r == 0)
			r = apply_part(a, i, e);
		else if (a->rv[i])
			ret->left += review_count(a->rv[i], NULL);
		if (i == 0 && r == 0 && ret->t.out_done && !a->o->dry_run && c->commits &&
		    (!a->o->match || !ret->left)) {
			import(c, false, &ret->t);
			ret->commits_wait = commits_left(c);
		}
	}
	ret->left += a->unread;
	if (r == 0 && ret->done && !a->o->dry_run && !ret->left && !ret->commits_wait)
		r = changeset_end(a->st, c->run.id, "applied", e);
	return r;
}

/*
 * Only commits wait: the files were rejected, or there were none. As without --review they come beside the branch, which must not
 * claim files that are not there.
 */
static int apply_commits(struct applying *a, struct err *e)
{
	struct apply_result *ret = a->ret;
	const struct changeset *c = a->c;
	int r;

	if (a->o->check && (r = a->o->check(a->o->arg, e)) < 0)
		return r;
	ret->done = ret->t.applied = ret->t.out_done = true;
	if (!a->o->match && !a->o->dry_run)
		import(c, true, &ret->t);
	ret->commits_wait = commits_left(c);
	return ret->commits_wait ? 0 : changeset_end(a->st, c->run.id, "applied", e);
}

int changeset_apply(struct state *st, const char *word, const struct apply_opts *o,
		    const struct run_ui *ui, struct apply_result *ret, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0}, now = {0};
	struct applying a = {.st = st, .c = &now, .o = o, .ui = ui, .ret = ret};
	_cleanup_fd_ int lock = -1;
	int r = changeset_find(st, word, &c, e);

	*ret = (struct apply_result){0};
	if (r < 0)
		return r;
	if (c.run.state == RUN_RUNNING)
		return err_set(e, ERR_CONFLICT, "run %s is going on", c.run.id);
	if (c.files && c.broken.code != ERR_NONE) {
		*e = c.broken;
		return -EBADMSG;
	}
	if (!changeset_waits(&c))
		return 0;
	lock = changeset_lock(c.run_dir, ui, e);
	if (lock < 0)
		return lock;
	indexlock_sweep_at(c.run.workspace);
	/* It may have been decided about, or fetched anew, while we waited. */
	r = changeset_find(st, c.run.id, &now, e);
	if (r < 0 || !changeset_waits(&now))
		return r;
	if (now.files && now.broken.code != ERR_NONE) {
		*e = now.broken;
		return -EBADMSG;
	}
	r = now.files ? apply_locked(&a, e) : apply_commits(&a, e);
	for (size_t i = 0; i < ARRAY_LEN(a.rv); i++)
		review_free(a.rv[i]);
	return r;
}
