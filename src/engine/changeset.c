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

int changeset_begin(struct state *st, const char *run_id, const struct lease_spec *s, struct err *e)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL), *text = NULL;
	_cleanup_free_ char *old = state_path(st, "runs", run_id, PENDING_DIR);
	int r = leasespec_put(s, &text, e);

	if (r < 0)
		return r;
	if (!dir || !old)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	r = state_remove_tree(old, e);
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

/* The set is decided. Its directory goes first, so that a pin is never missing where a set is. */
static int end_set(struct state *st, const char *run_id, const char *decided, struct err *e)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL);
	_cleanup_free_ char *from = state_path(st, "runs", run_id, PENDING_DIR);
	_cleanup_free_ char *bundle = state_path(st, "runs", run_id, GITBACK_BUNDLE);
	_cleanup_free_ char *to = NULL;
	int r = 0;

	if (!dir || !from || !bundle || asprintf(&to, "%s/trash/pending-%s", st->dir, run_id) < 0)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	if (decided)
		r = put_file(dir, DECIDED, decided, e);
	if (r < 0)
		return r;
	if (rename(from, to) < 0 && errno != ENOENT) {
		r = state_remove_tree(to, e); /* of an attempt that was cut */
		if (r == 0 && rename(from, to) < 0 && errno != ENOENT)
			r = err_sys(e, errno, "move %s into the trash", from);
	}
	if (r < 0)
		return r;
	if (unlink(bundle) < 0 && errno != ENOENT)
		return err_sys(e, errno, "remove %s", bundle);
	changeset_forget(st, run_id);
	return state_remove_tree(to, e);
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
	ret->files = exists(ret->run_dir, PENDING_LIST);
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

	if (r == 0)
		r = changeset_of(st, &row, ret, e);
	run_row_done(&row);
	return r;
}

int changeset_open(const struct changeset *c, bool bare, struct review **ret, struct err *e)
{
	const struct review_place p = {.run_dir = c->run_dir,
				       .root = c->run.workspace,
				       .manifest_path = c->spec.manifest,
				       .layers = c->spec.layers};

	return bare ? review_open_bare(&p, ret, e) : review_open(&p, ret, e);
}

uint64_t changeset_waiting(const struct changeset *c, struct err *e)
{
	struct review *r = NULL;
	uint64_t n;

	if (c->broken.code != ERR_NONE && e)
		*e = c->broken;
	if (!c->files || c->broken.code != ERR_NONE || changeset_open(c, false, &r, e) < 0)
		return 0;
	n = review_count(r, NULL);
	review_free(r);
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

/* Paths that an apply could not settle, sorted as the report is. */
struct open_paths {
	const struct apply_opts *o;
	char **v; /* borrowed strings */
	size_t n;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool still_open(void *arg, const char *path)
{
	const struct open_paths *p = arg;

	return (p->o->match && !p->o->match(p->o->arg, path)) ||
	       bsearch(&path, p->v, p->n, sizeof(*p->v), by_text) != NULL;
}

bool changeset_taken(const struct unpack_change *c)
{
	return c->detail && strncmp(c->detail, "conflicts/host/", 15) == 0;
}

static int keep_rest(struct review *rv, const struct apply_opts *o, const struct unpack_report *u,
		     uint64_t *ret_left, struct err *e)
{
	struct open_paths p = {.o = o};
	int r;

	p.v = calloc(u->changes_len + 1, sizeof(*p.v));
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

static int publish(const struct state *st, const struct changeset *c, const struct apply_opts *o,
		   const struct run_ui *ui, struct transfer *t, struct err *e)
{
	struct unpack_opts u = {
	    .root = c->run.workspace,
	    .root_dev = transfer_device(&c->spec),
	    .root_ino = c->spec.root_ino,
	    .run_dir = c->run_dir,
	    .state_dir = st->dir,
	    .manifest_path = c->spec.manifest,
	    .layers = c->spec.layers,
	    .on_conflict =
		o->on_conflict < 0 ? c->spec.on_conflict : (enum on_conflict)o->on_conflict,
	    .apply = true,
	    .without_landlock = c->spec.without & WITHOUT_LANDLOCK,
	    .dry_run = o->dry_run,
	    .progress = ui->progress,
	    .progress_arg = ui->arg,
	    .cancel = interrupt_first(),
	};
	int r = unpack_run(&u, &t->out, e);

	t->out_done = r == 0;
	t->applied = true;
	if (r < 0) {
		unpack_report_done(&t->out);
		t->out = (struct unpack_report){0};
	}
	if (ui->progress_end)
		ui->progress_end(ui->arg);
	return r < 0 && e && (e->code == ERR_INVALID || e->code == ERR_CONFLICT) ? -EBADMSG : r;
}

static void import(const struct changeset *c, struct transfer *t)
{
	const struct gitback_opts g = {.workspace = c->run.workspace,
				       .run_dir = c->run_dir,
				       .run_id = c->run.id,
				       .head = c->spec.head ? c->spec.head : "",
				       .branch = c->spec.branch,
				       .cancel = interrupt_second()};

	t->history.asked = true;
	gitback_import(&g, &t->history);
	history_refuse(c->run_dir, &t->history);
}

static int apply_locked(struct state *st, struct changeset *c, const struct apply_opts *o,
			const struct run_ui *ui, struct apply_result *ret, struct err *e)
{
	struct review *rv = NULL;
	int r = changeset_open(c, false, &rv, e);

	if (r == -ENOENT)
		return 0; /* ended by another process while we waited */
	if (r < 0)
		return e->code == ERR_INVALID ? -EBADMSG : r;
	r = review_select(rv, o->match, o->arg, &ret->selected, e);
	if (r == 0 && o->check)
		r = o->check(o->arg, e);
	if (r == 0 && (ret->selected || !o->match))
		r = publish(st, c, o, ui, &ret->t, e);
	ret->left = review_count(rv, NULL);
	ret->commits_wait = c->commits;
	if (r == 0 && !o->dry_run && ret->t.out_done) {
		/* What is left is known before anything is ended: a path list, then the commits, then the list's end. */
		r = keep_rest(rv, o, &ret->t.out, &ret->left, e);
		if (r == 0 && c->commits && (!o->match || !ret->left)) {
			import(c, &ret->t);
			ret->commits_wait = exists(c->run_dir, GITBACK_BUNDLE);
		}
		if (r == 0 && !ret->left && !ret->commits_wait)
			r = end_set(st, c->run.id, "applied", e);
	}
	review_free(rv);
	return r;
}

int changeset_apply(struct state *st, const char *word, const struct apply_opts *o,
		    const struct run_ui *ui, struct apply_result *ret, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0};
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
	if (!c.files)
		return 0;
	lock = lock_set(&c, ui, e);
	return lock < 0 ? lock : apply_locked(st, &c, o, ui, ret, e);
}

int changeset_discard(struct state *st, const char *word, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0};
	_cleanup_fd_ int lock = -1;
	int r = changeset_find(st, word, &c, e);

	if (r < 0)
		return r;
	lock = lock_set(&c, NULL, e);
	return lock < 0 ? lock : end_set(st, c.run.id, "discarded", e);
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

static void drop_copies(const struct state *st, const char *run, const char *name)
{
	_cleanup_free_ char *from = state_path(st, "runs", run, name), *to = NULL;

	if (!from || asprintf(&to, "%s/trash/%s-%s", st->dir, name, run) < 0)
		return;
	if (rename(from, to) == 0)
		(void)state_remove_tree(to, NULL);
}

void changeset_expire(struct state *st)
{
	int64_t end = clock_mono_ns() + CHANGESET_EXPIRE_NS;
	int64_t before = clock_real_ns() - CHANGESET_KEEP_NS;
	_cleanup_strv_ char **ids = NULL;

	if (!is_time(st) || run_ids_ended(st->store, before, &ids, NULL) < 0)
		return;
	for (size_t i = 0; ids && ids[i] && clock_mono_ns() < end; i++) {
		drop_copies(st, ids[i], "conflicts");
		drop_copies(st, ids[i], "trash");
	}
}
