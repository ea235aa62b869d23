#include "engine/prune.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/changeset.h"
#include "engine/keepsake.h"
#include "engine/leasespec.h"
#include "engine/sweep.h"
#include "provider/native/kept.h"
#include "provider/native_storage.h"
#include "store/lease.h"
#include "store/run.h"
#include "sync/store.h"

struct job {
	struct state *st;
	const struct prune_opts *o;
	struct prune_result *res;
	int trash;	  /* owned */
	struct err first; /* failure */
	int code;
};

void prune_result_done(struct prune_result *r)
{
	free(r->kept);
	*r = (struct prune_result){0};
}

/* The others are done nevertheless. */
static void note_failure(struct job *j, int r, const struct err *e)
{
	j->res->failed++;
	if (j->code == 0) {
		j->code = r;
		j->first = *e;
	}
}

static int names_of(const struct state *st, const char *kind, char ***ret, struct err *e)
{
	_cleanup_free_ char *p = path_join(st->dir, kind);
	_cleanup_dir_ DIR *d = p ? opendir(p) : NULL;
	struct dirent *de;

	if (!d)
		return err_sys(e, p ? errno : ENOMEM, "open %s/%s", st->dir, kind);
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
		    strv_add(ret, de->d_name) < 0)
			return err_set(e, ERR_NOMEM, "%s: out of memory", kind);
	return 0;
}

/* Foreign code chose modes and depth of some of it, so it is the provider's removal, which bears that. */
static int remove_from_trash(struct job *j, const char *name, struct err *e)
{
	int r;

	do {
		unsigned budget = UINT_MAX;

		r = storage_remove(j->trash, name, &budget);
	} while (r == -EAGAIN);
	return r < 0 ? err_sys(e, -r, "remove %s/trash/%s", j->st->dir, name) : 0;
}

static void prune_trash(struct job *j)
{
	_cleanup_strv_ char **names = NULL;
	struct err e = ERR_INIT;
	int r = names_of(j->st, "trash", &names, &e);

	if (r < 0)
		note_failure(j, r, &e);
	for (size_t i = 0; names && names[i]; i++) {
		_cleanup_free_ char *path = state_path(j->st, "trash", names[i], NULL);
		struct keepsake size = {0};

		if (path)
			keepsake_tree(path, &size);
		r = j->o->dry_run ? 0 : remove_from_trash(j, names[i], &e);
		if (r < 0) {
			note_failure(j, r, &e);
			continue;
		}
		j->res->trash.count++;
		j->res->trash.bytes += size.bytes;
	}
}

static void add_root(void *arg, const char *name)
{
	struct job *j = arg;
	_cleanup_free_ char *path = state_path(j->st, KEPT_DIR, name, NULL);
	struct keepsake size = {0};

	if (path)
		keepsake_tree(path, &size);
	j->res->roots.bytes += size.bytes;
}

/* No start has use for one that is older than this has patience with, whatever the caller has. */
static void prune_roots(struct job *j)
{
	_cleanup_free_ char *path = path_join(j->st->dir, KEPT_DIR);
	_cleanup_fd_ int roots =
	    path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	int64_t older_s = (clock_real_ns() - j->o->before_ns) / NS_PER_S;
	struct kept_sweep s = {.unused_s = older_s < KEPT_UNUSED_S ? older_s : KEPT_UNUSED_S,
			       .entries = UINT_MAX,
			       .until_ns = INT64_MAX,
			       .wait = true,
			       .dry_run = j->o->dry_run,
			       .each = add_root,
			       .arg = j};
	struct err e = ERR_INIT;
	int r = roots < 0 ? -errno : kept_sweep(roots, &s);

	if (r < 0)
		note_failure(
		    j, err_sys(&e, -r, "remove what nobody uses in %s/" KEPT_DIR, j->st->dir), &e);
	j->res->roots.count = s.gone;
	j->res->roots.used = s.used;
}

/* 1: a lease that is not released was started from a copy at path. Its pin says so too; a row outlives a lost pin. */
static int leased(struct job *j, const char *path, struct err *e)
{
	struct lease_row *v = NULL;
	size_t n = 0, len = strlen(path);
	int r = lease_list(j->st->store, &v, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_leasespec_ struct lease_spec s = {0};

		r = leasespec_get(v[i].spec, &s, e);
		if (r == 0 && s.manifest)
			r = strncmp(s.manifest, path, len) == 0 && s.manifest[len] == '/';
	}
	lease_list_free(v, n);
	return r;
}

static int discard_workspace(struct job *j, const char *key, int *lock, struct err *e)
{
	_cleanup_free_ char *to = NULL;
	int r = state_discard(j->st, "workspaces", key, &to, e);

	/* Whoever waits for the lock need not wait for the removal: store_open sees that the name is gone. */
	cleanup_fd(lock);
	return r == 0 && to ? remove_from_trash(j, path_base(to), e) : r;
}

static int prune_workspace(struct job *j, const char *key, struct err *e)
{
	_cleanup_free_ char *path = state_path(j->st, "workspaces", key, NULL);
	_cleanup_fd_ int lock = -1;
	struct keepsake size = {0};
	bool used = false;
	int r;

	if (!path)
		return err_set(e, ERR_NOMEM, "state directory: out of memory");
	r = store_idle(path, j->o->before_ns, &lock, &used, e);
	if (r == 1) {
		r = leased(j, path, e);
		if (r == 0) {
			keepsake_tree(path, &size);
			r = j->o->dry_run ? 0 : discard_workspace(j, key, &lock, e);
			if (r < 0)
				return r;
			j->res->workspaces.count++;
			j->res->workspaces.bytes += size.bytes;
		}
		used = r == 1;
	}
	j->res->workspaces.used += used;
	return r < 0 ? r : 0;
}

static void prune_workspaces(struct job *j)
{
	_cleanup_strv_ char **keys = NULL;
	struct err e = ERR_INIT;
	int r = names_of(j->st, "workspaces", &keys, &e);

	if (r < 0)
		note_failure(j, r, &e);
	for (size_t i = 0; keys && keys[i]; i++) {
		r = prune_workspace(j, keys[i], &e);
		if (r < 0)
			note_failure(j, r, &e);
	}
}

static int keep(struct job *j, const char *run, bool waiting, const struct keepsake *k,
		struct err *e)
{
	struct prune_kept *v = realloc(j->res->kept, (j->res->kept_n + 1) * sizeof(*v));

	if (!v)
		return err_set(e, ERR_NOMEM, "list what is kept: out of memory");
	j->res->kept = v;
	v += j->res->kept_n++;
	*v = (struct prune_kept){.waiting = waiting, .files = k->files, .bytes = k->bytes};
	memcpy(v->run, run, sizeof(v->run));
	return 1;
}

/* 1: the run's directory must stay, and the list says why. The row is moved from. */
static int must_keep(struct job *j, struct run_row *row, struct err *e)
{
	_cleanup_changeset_ struct changeset c = {0};
	struct keepsake k = {0};
	int r = changeset_of(j->st, row, &c, e);

	if (r < 0)
		return r;
	keepsake_add(j->st, c.run.id, &k);
	if (c.files || c.commits)
		return keep(j, c.run.id, true, &k, e);
	return k.files && !j->o->yes ? keep(j, c.run.id, false, &k, e) : 0;
}

/* All runs of a lease that is gone, or none of them. */
static int prune_lease_locked(struct job *j, const char *lease, struct run_row *v, size_t n,
			      struct err *e)
{
	uint64_t bytes = 0;
	bool stays = false;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < n; i++) {
		_cleanup_free_ char *dir = state_path(j->st, "runs", v[i].id, NULL);
		struct keepsake size = {0};

		if (!dir)
			return err_set(e, ERR_NOMEM, "state directory: out of memory");
		keepsake_tree(dir, &size);
		bytes += size.bytes;
		r = must_keep(j, &v[i], e);
		stays |= r > 0;
	}
	if (r < 0 || stays)
		return r < 0 ? r : 0;
	if (!j->o->dry_run) {
		r = sweep_remove_runs(j->st, lease, e);
		if (r == 0)
			r = lease_remove(j->st->store, lease, e);
	}
	if (r == 0) {
		j->res->runs.count += n;
		j->res->runs.bytes += bytes;
	}
	return r;
}

static int prune_lease(struct job *j, const char *lease, struct err *e)
{
	struct lease_row row = {0};
	struct run_row *v = NULL;
	_cleanup_run_locks_ struct run_locks l = {0};
	bool old = true;
	size_t n = 0;
	int r = lease_get(j->st->store, lease, &row, e);

	/* Another prune or rm was first, or there still is a sandbox. */
	if (r < 0 || row.state != LEASE_RELEASED) {
		lease_row_done(&row);
		return r == -ENOENT ? 0 : r;
	}
	lease_row_done(&row);
	r = run_list(j->st->store, true, lease, &v, &n, e);
	for (size_t i = 0; r == 0 && i < n; i++)
		old &= v[i].ended_ns > 0 && v[i].ended_ns <= j->o->before_ns;
	if (r == 0 && old && n) {
		/* Against an apply that has not let go yet (changeset.h). */
		r = sweep_lock_runs(j->st, lease, &l, e);
		j->res->runs.used += r == 0;
		if (r > 0)
			r = prune_lease_locked(j, lease, v, n, e);
	}
	run_list_free(v, n);
	return r;
}

static void prune_runs(struct job *j)
{
	struct run_row *v = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int r = run_list(j->st->store, true, NULL, &v, &n, &e);

	if (r < 0)
		note_failure(j, r, &e);
	for (size_t i = 0; i < n; i++) {
		size_t before = 0;

		/* Several commands share the lease of a kept sandbox. */
		while (before < i && strcmp(v[before].lease_id, v[i].lease_id) != 0)
			before++;
		if (before < i || !v[i].ended_ns || v[i].ended_ns > j->o->before_ns)
			continue;
		r = prune_lease(j, v[i].lease_id, &e);
		if (r < 0)
			note_failure(j, r, &e);
	}
	run_list_free(v, n);
}

int prune(struct state *st, const struct prune_opts *o, struct prune_result *ret, struct err *e)
{
	_cleanup_free_ char *trash = path_join(st->dir, "trash");
	struct job j = {.st = st, .o = o, .res = ret, .first = ERR_INIT};

	*ret = (struct prune_result){0};
	if (!trash)
		return err_set(e, ERR_NOMEM, "state directory: out of memory");
	j.trash = open(trash, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (j.trash < 0)
		return err_sys(e, errno, "open %s", trash);
	/* The trash first: what a killed call left there has the name that this one needs. */
	prune_trash(&j);
	prune_workspaces(&j);
	prune_roots(&j);
	prune_runs(&j);
	cleanup_fd(&j.trash);
	if (j.code < 0 && e)
		*e = j.first;
	return j.code;
}
