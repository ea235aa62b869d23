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
#include "engine/runlock.h"
#include "engine/unpacks.h"
#include "sync/indexlock.h"
#include "sync/pending.h"

#define SPEC "review.json"
#define DECIDED "decided"
#define SPEC_MAX (4 << 20)
#define LINES_MAX (16 << 20)

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

/* runs/<id>/pending or its successor, or of a mapping; whether it is there or not. Heap or NULL. */
static char *pending_of(struct state *st, const char *run_id, size_t part, const char *name)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL), *map = NULL;

	if (part && dir)
		map = maps_run_dir(dir, part - 1);
	return !dir || (part && !map) ? NULL : path_join(map ? map : dir, name);
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
		_cleanup_free_ char *cut = pending_of(st, run_id, i, PENDING_NEW);

		r = cut ? state_remove_tree(cut, e)
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

/* By another name first: half of a set must not look like one that waits. */
static int drop_here(struct state *st, const char *run_id, size_t part, const char *from,
		     struct err *e)
{
	_cleanup_free_ char *to = pending_of(st, run_id, part, PENDING_NEW);
	int r = to ? state_remove_tree(to, e) : err_set(e, ERR_NOMEM, "review: out of memory");

	if (r < 0)
		return r;
	if (rename(from, to) < 0)
		return err_sys(e, errno, "move %s out of the way", from);
	return state_remove_tree(to, e);
}

static int drop_pending(struct state *st, const char *run_id, size_t part, struct err *e)
{
	_cleanup_free_ char *from = pending_of(st, run_id, part, PENDING_DIR), *to = NULL;

	if (!from || asprintf(&to, "%s/trash/pending-%s-%zu", st->dir, run_id, part) < 0)
		return err_set(e, ERR_NOMEM, "review: out of memory");
	if (rename(from, to) < 0 && errno != ENOENT && errno != ENOTDIR) {
		int r;

		/* A user may have put runs/ on another disk. */
		if (errno == EXDEV)
			return drop_here(st, run_id, part, from, e);
		r = state_remove_tree(to, e); /* of an attempt that was cut */

		if (r < 0)
			return r;
		if (rename(from, to) < 0 && errno != ENOENT)
			return err_sys(e, errno, "move %s into the trash", from);
	}
	return 0;
}

/* The set is decided. Its directories go first, so that a pin is never missing where a set is. */
int changeset_end(struct state *st, const char *run_id, const char *decided, struct err *e)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL);
	_cleanup_free_ char *bundle = state_path(st, "runs", run_id, GITBACK_BUNDLE);
	_cleanup_free_ char *lines = state_path(st, "runs", run_id, GITBACK_LINES);
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
	if (lines)
		(void)unlink(lines);
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

/* Whether the file is there, and which one, into the stamp. */
static bool mark(const char *path, uint64_t *stamp)
{
	struct stat st = {0};
	bool there = lstat(path, &st) == 0;
	const uint64_t v[] = {there, st.st_ino, (uint64_t)st.st_ctim.tv_sec,
			      (uint64_t)st.st_ctim.tv_nsec};

	for (size_t i = 0; i < ARRAY_LEN(v); i++)
		*stamp = (*stamp ^ v[i]) * UINT64_C(0x100000001b3);
	return there;
}

int changeset_of(struct state *st, struct run_row *row, struct changeset *ret, struct err *e)
{
	_cleanup_free_ char *word = NULL, *bundle = NULL;
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
	for (size_t i = 0; i < CHANGESET_PARTS_MAX; i++) {
		_cleanup_free_ char *p = pending_of(st, ret->run.id, i, PENDING_LIST);

		ret->files |= p && mark(p, &ret->stamp);
	}
	bundle = path_join(ret->run_dir, GITBACK_BUNDLE);
	ret->commits =
	    bundle && mark(bundle, &ret->stamp) && ret->review && ret->run.state != RUN_RUNNING;
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

char *changeset_commit_lines(const struct changeset *c)
{
	return c->commits && !c->decided[0] ? get_file(c->run_dir, GITBACK_LINES, LINES_MAX) : NULL;
}

void changeset_tell_commits(const struct changeset *c, const char *apply, bool lines,
			    struct buf *to)
{
	_cleanup_free_ char *text = lines ? changeset_commit_lines(c) : NULL;

	if (!c->commits || c->decided[0])
		return;
	(void)buf_putf(to,
		       c->files ? "# airlock: commits wait with this set; %s of all of it brings "
				  "them too\n"
				: "# airlock: commits wait; %s brings them\n",
		       apply);
	for (char *at = text, *end; at && *at; at = end + 1) {
		end = at + strcspn(at, "\n");
		if (!*end)
			break;
		(void)buf_puts(to, "# airlock: ");
		(void)buf_put(to, at, (size_t)(end - at) + 1);
	}
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
	(void)changeset_end(st, run_id, NULL, &e);
}

/* The directory's own lock: two applies of one run are served one after the other. Descriptor or errno. */
int changeset_lock(const char *run_dir, const struct run_ui *ui, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	int r = runlock_try(run_dir, &fd);

	if (r < 0)
		return err_sys(e, -r, "lock %s", run_dir);
	if (r == 0 && ui && ui->note)
		ui->note(ui->arg, true,
			 "another process is at the results of this run: waiting for it");
	if (r == 0 && flock(fd, LOCK_EX) < 0)
		return errno == EINTR
			   ? err_set(
				 e, ERR_CANCELLED,
				 "stopped while another process was at the results of this run; nothing was done")
			   : err_sys(e, errno, "lock %s", run_dir);
	return TAKE_FD(fd);
}

/*
 * An apply that was killed left in the workspace what it had staged: that goes, or, where it had promised to publish, is
 * finished, for half done is the one state we never leave. A workspace where that is not possible now (it is gone,
 * read-only) keeps nobody from dropping: whoever comes to it next tries again. True: something was finished.
 */
static bool finish_cut(struct state *st, const struct changeset *c)
{
	_cleanup_free_ struct changeset_part *at = calloc(1, sizeof(*at));
	bool any = false;

	for (size_t i = 0; at && i < changeset_parts(c); i++) {
		changeset_part(c, i, at);
		any |= unpack_recover(at->root, st->dir, NULL, NULL) > 0;
	}
	return any;
}

int changeset_discard(struct state *st, const struct changeset *asked, struct err *e)
{
	_cleanup_changeset_ struct changeset now = {0};
	_cleanup_fd_ int lock = -1;
	int r;

	/* Before the lock, for a repair of this run takes that itself. */
	if (finish_cut(st, asked))
		return err_set(
		    e, ERR_CONFLICT,
		    "an apply that was killed had begun to publish, and was finished first: nothing "
		    "was dropped; look at the workspace and at what waits: airlock diff %s",
		    asked->run.id);
	lock = changeset_lock(asked->run_dir, NULL, e);
	if (lock < 0)
		return lock;
	/* An apply may have ended it while we waited: then it is not dropped, and must not be told to be. */
	r = changeset_find(st, asked->run.id, &now, e);
	if (r < 0)
		return r;
	if (now.run.state == RUN_RUNNING)
		return err_set(e, ERR_CONFLICT, "run %s is going on", now.run.id);
	indexlock_sweep_at(now.run.workspace);
	if (!changeset_waits(&now))
		return 0;
	/* A part was applied, or a recovery brought more: nobody was asked about that. */
	if (now.stamp != asked->stamp)
		return err_set(
		    e, ERR_CONFLICT,
		    "what waits of run %s is not what it was when you were asked: nothing "
		    "was dropped; look at it again: airlock diff %s",
		    now.run.id, now.run.id);
	r = changeset_end(st, now.run.id, "discarded", e);
	return r < 0 ? r : 1;
}

bool changeset_waits(const struct changeset *c)
{
	return c->files || (c->commits && !c->decided[0]);
}
