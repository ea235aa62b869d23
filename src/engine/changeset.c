#include "engine/changeset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "engine/history.h"
#include "engine/interrupt.h"
#include "engine/unpacks.h"
#include "sync/pending.h"

#define SPEC "review.json"
#define DECIDED "decided"
#define SPEC_MAX (4 << 20)

void changeset_done(struct changeset *c)
{
	run_row_done(&c->run);
	leasespec_done(&c->spec);
	free(c->run_dir);
	*c = (struct changeset){0};
}

static bool exists(const char *dir, const char *name)
{
	_cleanup_free_ char *p = path_join(dir, name);
	struct stat st;

	return p && lstat(p, &st) == 0;
}

/* Written beside and renamed into place. */
static int put_file(const char *dir, const char *name, const char *text, struct err *e)
{
	_cleanup_free_ char *p = path_join(dir, name), *tmp = NULL;
	_cleanup_fd_ int fd = -1;
	size_t n = strlen(text);

	if (!p || asprintf(&tmp, "%s.new", p) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || write(fd, text, n) != (ssize_t)n || fsync(fd) < 0 || rename(tmp, p) < 0)
		return err_sys(e, errno ? errno : ENOSPC, "write %s", p);
	return 0;
}

static char *get_file(const char *dir, const char *name, size_t max)
{
	_cleanup_free_ char *p = path_join(dir, name);
	_cleanup_fd_ int fd = p ? open(p, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	struct buf b = BUF_INIT(max);
	ssize_t n = 1;

	while (fd >= 0 && n > 0) {
		char *room = buf_room(&b, 4096);

		n = room ? read(fd, room, 4096) : -1;
		if (n > 0)
			buf_add(&b, (size_t)n);
	}
	if (fd < 0 || n < 0) {
		buf_done(&b);
		return NULL;
	}
	(void)buf_puts(&b, "");
	return buf_take(&b);
}

/* runs/<id>/pending, or of a mapping; whether it is there or not. Heap or NULL. */
static char *pending_of(struct state *st, const char *run_id, size_t part)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL), *map = NULL;

	if (part && dir)
		map = maps_run_dir(dir, part - 1);
	return !dir || (part && !map) ? NULL : path_join(map ? map : dir, PENDING_DIR);
}

int changeset_begin(struct state *st, const char *run_id, const struct lease_spec *s, struct err *e)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL), *text = NULL;
	int r = leasespec_put(s, &text, e);

	if (r < 0)
		return r;
	if (!dir)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	for (size_t i = 0; r == 0 && i <= maps_count(s->maps); i++) {
		_cleanup_free_ char *old = pending_of(st, run_id, i);

		r = old ? state_remove_tree(old, e)
			: err_set(e, ERR_NOMEM, "review: out of memory");
	}
	if (r == 0)
		r = sync_pin(s->manifest, run_id, e);
	return r == 0 ? put_file(dir, SPEC, text, e) : r;
}

void changeset_forget(struct state *st, const char *run_id)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL), *text = NULL;
	_cleanup_leasespec_ struct lease_spec s = {0};
	struct err e = ERR_INIT;

	text = dir ? get_file(dir, SPEC, SPEC_MAX) : NULL;
	if (text && leasespec_get(text, &s, &e) == 0 && s.manifest)
		(void)sync_unpin(s.manifest, run_id, &e);
}

static int drop_pending(struct state *st, const char *run_id, size_t part, struct err *e)
{
	_cleanup_free_ char *from = pending_of(st, run_id, part), *to = NULL;

	if (!from || asprintf(&to, "%s/trash/pending-%s-%zu", st->dir, run_id, part) < 0)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	if (rename(from, to) < 0 && errno != ENOENT && errno != ENOTDIR) {
		int r = state_remove_tree(to, e); /* of an attempt that was cut */

		if (r < 0)
			return r;
		if (rename(from, to) < 0 && errno != ENOENT)
			return err_sys(e, errno, "move %s into the trash", from);
	}
	return 0;
}

/* The set is decided. Its directories go first, so that a pin is never missing where a set is. */
static int end_set(struct state *st, const char *run_id, const char *decided, struct err *e)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL);
	_cleanup_free_ char *bundle = state_path(st, "runs", run_id, GITBACK_BUNDLE);
	int r = 0;

	if (!dir || !bundle)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	if (decided)
		r = put_file(dir, DECIDED, decided, e);
	/* Also of a set whose description is damaged. */
	for (size_t i = 0; r == 0 && i < CHANGESET_PARTS_MAX; i++)
		r = drop_pending(st, run_id, i, e);
	if (r < 0)
		return r;
	if (unlink(bundle) < 0 && errno != ENOENT)
		return err_sys(e, errno, "remove %s", bundle);
	changeset_forget(st, run_id);
	for (size_t i = 0; r == 0 && i < CHANGESET_PARTS_MAX; i++) {
		_cleanup_free_ char *to = NULL;

		if (asprintf(&to, "%s/trash/pending-%s-%zu", st->dir, run_id, i) < 0)
			return err_set(e, ERR_NOMEM, "review: out of memory");
		r = state_remove_tree(to, e);
	}
	return r;
}

static int read_spec(struct state *st, struct changeset *c, struct err *e)
{
	_cleanup_free_ char *text = get_file(c->run_dir, SPEC, SPEC_MAX);
	struct lease_row l = {0};
	int r;

	c->review = text != NULL;
	if (text) {
		r = leasespec_get(text, &c->spec, e);
		/* A set is always measured against something. */
		return r < 0 || c->spec.manifest
			   ? r
			   : err_set(e, ERR_INVALID, "review.json of the run is damaged");
	}
	r = lease_get(st->store, c->run.lease_id, &l, e);
	if (r == 0)
		r = leasespec_get(l.spec, &c->spec, e);
	lease_row_done(&l);
	return r;
}

int changeset_of(struct state *st, struct run_row *row, struct changeset *ret, struct err *e)
{
	_cleanup_free_ char *word = NULL;
	int r = 0;

	*ret = (struct changeset){.run = *row, .broken = ERR_INIT};
	*row = (struct run_row){0};
	ret->run_dir = state_path(st, "runs", ret->run.id, NULL);
	if (!ret->run_dir) {
		changeset_done(ret);
		return err_set(e, ERR_NOMEM, "review: out of memory");
	}
	r = read_spec(st, ret, &ret->broken);
	if (r < 0 && ret->broken.code == ERR_NONE)
		(void)err_set(&ret->broken, ERR_INVALID, "review.json of the run is damaged");
	for (size_t i = 0; !ret->files && i < CHANGESET_PARTS_MAX; i++) {
		_cleanup_free_ char *p = pending_of(st, ret->run.id, i);

		ret->files = p && exists(p, path_base(PENDING_LIST));
	}
	ret->commits =
	    ret->review && ret->run.state != RUN_RUNNING && exists(ret->run_dir, GITBACK_BUNDLE);
	word = get_file(ret->run_dir, DECIDED, 8192);
	(void)snprintf(ret->decided, sizeof(ret->decided), "%s", word ? word : "");
	return 0;
}

int changeset_find(struct state *st, const char *word, struct changeset *ret, struct err *e)
{
	struct run_row row = {0};
	int r = run_find(st->store, word, &row, e);

	if (r >= 0)
		r = changeset_of(st, &row, ret, e);
	run_row_done(&row);
	return r;
}

size_t changeset_parts(const struct changeset *c)
{
	return 1 + maps_count(c->spec.maps);
}

void changeset_part(const struct changeset *c, size_t part, struct changeset_part *ret)
{
	ret->root = ret->src = c->run.workspace;
	(void)snprintf(ret->dir, sizeof(ret->dir), "%s", c->run_dir);
	if (!part)
		return;
	ret->map = maps_at(&c->spec, part - 1);
	ret->root = ret->map.root;
	ret->src = ret->map.src;
	(void)snprintf(ret->dir, sizeof(ret->dir), "%s/maps/%zu", c->run_dir, part - 1);
}

int changeset_open(const struct changeset *c, size_t part, bool bare, struct review **ret,
		   struct err *e)
{
	_cleanup_free_ struct changeset_part *at = calloc(1, sizeof(*at));
	_cleanup_free_ char *manifest = NULL;
	struct review_place p = {.manifest_path = c->spec.manifest, .layers = c->spec.layers};

	*ret = NULL;
	if (!at)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	changeset_part(c, part, at);
	p.run_dir = at->dir;
	p.root = at->root;
	if (part) {
		manifest = path_join(at->dir, MAP_MANIFEST);
		p.manifest_path = manifest;
		p.layers = NULL;
		/* A place that was never asked for its results has no directory either. */
		if (access(at->dir, F_OK) < 0)
			return -ENOENT;
	}
	return bare ? review_open_bare(&p, ret, e) : review_open(&p, ret, e);
}

uint64_t changeset_waiting(const struct changeset *c, struct err *e)
{
	uint64_t n = 0;

	if (c->broken.code != ERR_NONE && e)
		*e = c->broken;
	if (!c->files || c->broken.code != ERR_NONE)
		return 0;
	for (size_t i = 0; i < changeset_parts(c); i++) {
		struct review *r = NULL;
		int k = changeset_open(c, i, false, &r, e);

		if (k < 0 && k != -ENOENT)
			return 0;
		if (k == 0)
			n += review_count(r, NULL);
		review_free(r);
	}
	return n;
}

void changeset_settle(struct state *st, const char *run_id)
{
	_cleanup_changeset_ struct changeset c = {0};
	struct err e = ERR_INIT;

	if (changeset_find(st, run_id, &c, &e) < 0)
		return;
	if (exists(c.run_dir, GITBACK_BUNDLE))
		return;
	if (c.files && (changeset_waiting(&c, &e) > 0 || e.code != ERR_NONE))
		return;
	(void)end_set(st, run_id, NULL, &e);
}

/* --- one apply ---------------------------------------------------------------------------- */

/* The directory's own lock: two applies of one run are served one after the other. Descriptor or errno. */
static int lock_set(const struct changeset *c, const struct run_ui *ui, struct err *e)
{
	_cleanup_fd_ int fd = open(c->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, errno, "open %s", c->run_dir);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return err_sys(e, errno, "lock %s", c->run_dir);
		if (ui && ui->note)
			ui->note(ui->arg, true,
				 "another process decides about this run: waiting for it");
		if (flock(fd, LOCK_EX) < 0)
			return errno == EINTR
				   ? err_set(e, ERR_CANCELLED, "stopped; nothing was applied")
				   : err_sys(e, errno, "lock %s", c->run_dir);
	}
	return TAKE_FD(fd);
}

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
	/* None: ended by another process while we waited. */
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
			ret->commits_wait = exists(c->run_dir, GITBACK_BUNDLE);
		}
	}
	ret->left += a->unread;
	if (r == 0 && ret->done && !a->o->dry_run && !ret->left && !ret->commits_wait)
		r = end_set(a->st, c->run.id, "applied", e);
	return r;
}

/*
 * Only commits wait: the files were rejected, or there were none. As without --review they come beside the branch, which must not
 * claim files that are not there.
 */
static int apply_commits(struct applying *a, struct err *e)
{
	_cleanup_changeset_ struct changeset now = {0};
	struct apply_result *ret = a->ret;
	int r = changeset_find(a->st, a->c->run.id, &now, e);

	/* Ended by another process while we waited. */
	if (r < 0 || now.files || !changeset_waits(&now))
		return r;
	if (a->o->check && (r = a->o->check(a->o->arg, e)) < 0)
		return r;
	ret->done = ret->t.applied = ret->t.out_done = true;
	if (!a->o->match && !a->o->dry_run)
		import(&now, true, &ret->t);
	ret->commits_wait = exists(now.run_dir, GITBACK_BUNDLE);
	return ret->commits_wait ? 0 : end_set(a->st, now.run.id, "applied", e);
}

int changeset_apply(struct state *st, const char *word, const struct apply_opts *o,
		    const struct run_ui *ui, struct apply_result *ret, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0};
	struct applying a = {.st = st, .c = &c, .o = o, .ui = ui, .ret = ret};
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
	lock = lock_set(&c, ui, e);
	if (lock < 0)
		return lock;
	r = c.files ? apply_locked(&a, e) : apply_commits(&a, e);
	for (size_t i = 0; i < ARRAY_LEN(a.rv); i++)
		review_free(a.rv[i]);
	return r;
}

int changeset_discard(struct state *st, const char *word, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0}, now = {0};
	_cleanup_fd_ int lock = -1;
	int r = changeset_find(st, word, &c, e);

	if (r < 0)
		return r;
	lock = lock_set(&c, NULL, e);
	if (lock < 0)
		return lock;
	/* An apply may have ended it while we waited: then it is not dropped, and must not be told to be. */
	r = changeset_find(st, word, &now, e);
	if (r < 0)
		return r;
	if (!changeset_waits(&now))
		return 0;
	r = end_set(st, now.run.id, "discarded", e);
	return r < 0 ? r : 1;
}

bool changeset_waits(const struct changeset *c)
{
	return c->files || (c->commits && !c->decided[0]);
}

/* --- retention ---------------------------------------------------------------------------- */

/* Once a day: the time of an empty file. */
static bool is_time(const struct state *st)
{
	_cleanup_free_ char *p = path_join(st->dir, "expired");
	_cleanup_fd_ int fd = p ? open(p, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
	struct stat sb;

	if (fd < 0 || fstat(fd, &sb) < 0)
		return false;
	if (sb.st_size && clock_real_ns() / NS_PER_S - sb.st_mtim.tv_sec < CHANGESET_EXPIRE_EACH_S)
		return false;
	return pwrite(fd, "1", 1, 0) == 1 && futimens(fd, NULL) == 0;
}

static void drop_copies(const struct state *st, const char *run, const char *dir, const char *name)
{
	_cleanup_free_ char *from = path_join(dir, name), *to = NULL;

	if (!from || asprintf(&to, "%s/trash/%s-%s", st->dir, name, run) < 0)
		return;
	if (rename(from, to) == 0)
		(void)state_remove_tree(to, NULL);
}

/* Of a run, or of a mapping of it. */
static void drop_place(const struct state *st, const char *run, const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int64_t last = fd < 0 ? 0 : unpacks_last_put(fd);

	if (!last || last > (clock_real_ns() - CHANGESET_KEEP_NS) / NS_PER_S)
		return;
	drop_copies(st, run, dir, "conflicts");
	drop_copies(st, run, dir, "trash");
}

/* Not while an apply, or a recovery (sync/unpack_place.h), holds the run. */
static void drop_all_copies(const struct state *st, const char *run)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run, NULL);
	_cleanup_fd_ int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

	if (fd < 0 || (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK))
		return;
	drop_place(st, run, dir);
	for (size_t i = 1; i < CHANGESET_PARTS_MAX; i++) {
		_cleanup_free_ char *map = maps_run_dir(dir, i - 1);

		if (!map || access(map, F_OK) < 0)
			return;
		drop_place(st, run, map);
	}
}

void changeset_expire(struct state *st)
{
	int64_t end = clock_mono_ns() + CHANGESET_EXPIRE_NS;
	int64_t before = clock_real_ns() - CHANGESET_KEEP_NS;
	_cleanup_strv_ char **ids = NULL;

	if (!is_time(st) || run_ids_ended(st->store, before, &ids, NULL) < 0)
		return;
	for (size_t i = 0; ids && ids[i] && clock_mono_ns() < end; i++)
		drop_all_copies(st, ids[i]);
}
