#include "sync/sync_in.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "sync/diff.h"
#include "sync/git.h"
#include "sync/gitseed.h"
#include "sync/layer.h"
#include "sync/rules.h"
#include "sync/select.h"
#include "sync/store.h"

#define NOTES_MAX 10000 /* the rest is counted by nobody: a summary shows a few */
#define SCAN_REPORT_NS (50 * NS_PER_MS)

struct job {
	const struct sync_in_opts *o;
	struct sync_in_result *res;
	struct store store;
	struct store_stack old, now;
	struct manifest *manifest; /* owned; of `old`, NULL if it is not used */
	struct diff diff;
	struct rules *rules;  /* owned */
	struct git_repo *git; /* of rules */
	crypto_generichash_state held;
	uint8_t held_hash[MANIFEST_HASH];
	int root_fd;
	uint64_t seen;
	int64_t last_report_ns;
};

static int add_note(struct sync_in_result *res, const char *path, size_t n, const char *reason)
{
	size_t cap = res->notes_len;
	struct sync_note *v = res->notes;

	if (res->notes_len >= NOTES_MAX)
		return 0;
	/* Grown at powers of two: the length tells the capacity. */
	if ((cap & (cap - 1)) == 0) {
		v = realloc(v, (cap ? cap * 2 : 1) * sizeof(*v));
		if (!v)
			return -ENOMEM;
		res->notes = v;
	}
	v[res->notes_len] = (struct sync_note){.path = strndup(path, n), .reason = reason};
	if (!v[res->notes_len].path)
		return -ENOMEM;
	res->notes_len++;
	return 0;
}

static int on_note(void *arg, const char *path, size_t n, const char *reason)
{
	struct job *j = arg;

	/* What is noted did not travel; a tracked path among them must not look deleted inside. */
	(void)crypto_generichash_update(&j->held, (const unsigned char *)path, n + 1);
	return add_note(j->res, path, n, reason);
}

static void on_held(void *arg, const char *path, size_t n)
{
	struct job *j = arg;

	(void)crypto_generichash_update(&j->held, (const unsigned char *)path, n + 1);
}

static void on_unused(void *arg, const char *pattern)
{
	struct job *j = arg;

	(void)add_note(j->res, pattern, strlen(pattern), "no_match");
}

static int on_entry(void *arg, const struct select_entry *s, struct err *e)
{
	struct job *j = arg;
	int64_t now;

	j->seen++;
	if (j->o->progress && (j->seen & 255) == 0) {
		now = clock_mono_ns();
		if (now - j->last_report_ns > SCAN_REPORT_NS) {
			j->last_report_ns = now;
			j->o->progress(j->o->progress_arg, "scan", j->seen, 0, 0);
		}
	}
	return diff_add(&j->diff, s, e);
}

static bool has(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_workspace(const struct sync_in_opts *o, int *ret_fd, struct err *e)
{
	int fd;

	if (!path_is_absolute_normal(o->workspace) || !path_is_absolute_normal(o->store))
		return err_set(e, ERR_INVALID, "workspace and store must be absolute paths: %s, %s",
			       o->workspace, o->store);
	fd = open(o->workspace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "workspace %s", o->workspace);
	*ret_fd = fd;
	if (!has(fd, ".git") && has(fd, "HEAD") && has(fd, "objects") && has(fd, "refs"))
		return err_set(
		    e, ERR_INVALID,
		    "workspace %s is a bare git repository (or a .git directory): nothing is "
		    "written into one; clone it and run in the clone",
		    o->workspace);
	return 0;
}

/* The older stack is of use if it was made for the same owner and its manifest reads. */
static int load_old(struct job *j, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_fd_ int fd = -1;
	int r = store_current(&j->store, &j->old, e);

	if (r <= 0)
		return r;
	path = store_manifest_path(&j->store, j->old.number);
	fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (j->old.owner != j->o->owner || j->old.group != j->o->group || fd < 0 ||
	    (!j->o->one_file && !store_mountable(&j->store, &j->old)) ||
	    manifest_open(fd, &j->manifest, NULL) < 0) {
		j->manifest = NULL;
		j->old = (struct store_stack){0};
	}
	return 0;
}

static int scan(struct job *j, struct err *e)
{
	struct select_opts so = {
	    .root_fd = j->root_fd,
	    .rules = j->rules,
	    .cancel = j->o->cancel,
	    .emit = on_entry,
	    .note = on_note,
	    .held = on_held,
	    .arg = j,
	};
	struct stat st;
	int r;

	if (fstat(j->store.fd, &st) == 0) {
		so.skip_dev = st.st_dev;
		so.skip_ino = st.st_ino;
	}
	r = diff_init(&j->diff, j->manifest, e);
	if (!r)
		r = select_walk(&so, e);
	if (r == -ENOMEM && e && !e->code)
		(void)err_sys(e, ENOMEM, "list of notes");
	if (!r)
		r = diff_finish(&j->diff, e);
	j->res->excluded = so.excluded;
	(void)crypto_generichash_final(&j->held, j->held_hash, MANIFEST_HASH);
	return r;
}

/*
 * A stack is rebuilt as one full base when it grew too deep, or when more than half of it is
 * hidden anyway. Unchanged files come over by hard link inside the store.
 */
static bool must_fill(const struct job *j)
{
	return !j->manifest || j->old.layers_n >= DELTA_LAYERS_MAX ||
	       (j->diff.n > 1000 && j->diff.n > j->diff.same);
}

static int root_attributes(struct job *j, int layer_fd, struct err *e)
{
	struct stat st;

	if (fstat(j->root_fd, &st) < 0 || fchmod(layer_fd, (st.st_mode & 0777) | 0700) < 0)
		return err_sys(e, errno, "mode of the base's top directory");
	/* Safe because: layer_fd is a directory of our own store that we have just made. */
	if (j->o->owner == (uid_t)-1 || fchown(layer_fd, j->o->owner, j->o->group) == 0)
		return 0;
	/* What the kernel says of an id that root of a container does not have. */
	if (errno == EINVAL)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "sandboxes that root starts run as user %u, which this user namespace does not have. Remedy: run airlock "
		    "as an ordinary user here, or outside of this container. `airlock doctor` shows every layer",
		    (unsigned)j->o->owner);
	return err_sys(e, errno, "owner of the base's top directory");
}

static void collect_notes(struct job *j)
{
	for (size_t i = 0; i < j->diff.n; i++) {
		const struct layer_item *it = &j->diff.items[i];

		if (it->reason)
			(void)add_note(j->res, it->path, it->path_len, it->reason);
	}
}

static int write_manifest(struct job *j, struct err *e)
{
	struct diff_totals t = {j->old.files, j->old.dirs, j->old.links, j->old.bytes};
	_cleanup_fd_ int fd = -1;
	char name[64], to[64];
	int r = store_new_file(&j->store, j->store.fd, &fd, name, e);

	if (r < 0)
		return r;
	r = diff_manifest(&j->diff, fd, &t, e);
	(void)snprintf(to, sizeof(to), "manifest.%u", j->now.number);
	if (!r && renameat(j->store.fd, name, j->store.fd, to) < 0)
		r = err_sys(e, errno, "%s/%s", j->store.path, to);
	if (r < 0)
		(void)unlinkat(j->store.fd, name, 0);
	j->now.files = t.files;
	j->now.dirs = t.dirs;
	j->now.links = t.links;
	j->now.bytes = t.bytes;
	return r;
}

static int build_into(struct job *j, int fd, bool full, struct layer_build *b, struct err *e)
{
	int r = j->o->one_file ? 0 : root_attributes(j, fd, e);

	*b = (struct layer_build){
	    .root_fd = j->root_fd,
	    .layer_fd = fd,
	    .one_file = j->o->one_file,
	    .layers_fd = j->store.layers_fd,
	    .number = store_next_number(&j->store),
	    .owner = j->o->owner,
	    .group = j->o->group,
	    .items = j->diff.items,
	    .n = j->diff.n,
	    .old = full ? NULL : j->manifest,
	    .progress = j->o->progress,
	    .progress_arg = j->o->progress_arg,
	    .cancel = j->o->cancel,
	};
	if (!r)
		r = layer_build(b, e);
	if (!r && !full)
		r = layer_hide_gone(b, e);
	return r;
}

static void stack_on(struct job *j, uint32_t number, bool full)
{
	size_t below = full ? 0 : j->old.layers_n;

	j->now.layers[0] = number;
	memcpy(&j->now.layers[1], j->old.layers, below * sizeof(j->now.layers[0]));
	j->now.layers_n = below + 1;
}

/* Something differs: a new layer, or only new stat fields when the bytes are the same. */
static int apply(struct job *j, struct err *e)
{
	bool full = must_fill(j);
	_cleanup_fd_ int fd = -1;
	struct layer_build b;
	char name[64], to[32];
	/* Without an older manifest the list is a full base already. */
	int r = full && j->manifest ? diff_fill(&j->diff, e) : 0;

	if (!r && j->o->one_file)
		r = store_new_file(&j->store, j->store.layers_fd, &fd, name, e);
	else if (!r)
		r = store_new_dir(&j->store, j->store.layers_fd, "layer", &fd, name, e);
	if (r < 0)
		return r;
	r = build_into(j, fd, full, &b, e);
	if (r < 0 || (!full && !b.written)) {
		store_discard(&j->store, j->store.layers_fd, name);
	} else {
		(void)snprintf(to, sizeof(to), "%u", b.number);
		if (renameat(j->store.layers_fd, name, j->store.layers_fd, to) < 0) {
			r = err_sys(e, errno, "%s/layers/%s", j->store.path, to);
			store_discard(&j->store, j->store.layers_fd, name);
		}
		j->now.number = b.number;
		stack_on(j, b.number, full);
	}
	if (r < 0)
		return r;
	collect_notes(j);
	j->res->copied_files = b.files;
	j->res->copied_bytes = b.bytes;
	j->res->reused = !full && !b.written;
	/* Same number, newer stat fields: both manifests say true things of the same bytes. */
	return write_manifest(j, e);
}

static int own_manifest(struct job *j, struct err *e)
{
	char from[32], to[32];

	(void)snprintf(from, sizeof(from), "manifest.%u", j->now.number);
	j->now.number = store_next_number(&j->store);
	(void)snprintf(to, sizeof(to), "manifest.%u", j->now.number);
	if (linkat(j->store.fd, from, j->store.fd, to, 0) < 0)
		return err_sys(e, errno, "%s/%s", j->store.path, to);
	return 0;
}

/* Files never depend on history: what git cannot give is noted, and the run goes on without. */
static int without_history(struct job *j, int r, struct err *e)
{
	size_t n = j->res->notes_len;

	if (r == -ECANCELED || r == -ENOMEM || r == -ENOSPC || r == -EDQUOT)
		return r;
	j->now.seed[0] = '\0';
	r = add_note(j->res, ".git", 4, r == -ETIMEDOUT ? "git_timeout" : "git_failed");
	if (e && r == 0 && j->res->notes_len > n) {
		j->res->notes[n].detail = strdup(e->text);
		r = j->res->notes[n].detail ? 0 : -ENOMEM;
	}
	if (e)
		*e = (struct err)ERR_INIT;
	return r;
}

static int make_seed(struct job *j, const struct gitseed_opts *go, struct err *e)
{
	_cleanup_free_ char *path = store_manifest_path(&j->store, j->now.number);
	_cleanup_fd_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct manifest *m = NULL;
	int r;

	if (fd < 0)
		return err_sys(e, path ? errno : ENOMEM, "manifest");
	r = manifest_open(fd, &m, e);
	if (!r)
		r = gitseed_make(go, m, j->now.seed, e);
	manifest_free(m);
	return r;
}

/* Repository for the sandbox; only at the top of a work tree (H1: a subfolder gets none). */
static int seed(struct job *j, struct err *e)
{
	struct gitseed_opts go = {
	    .store = &j->store,
	    .git = j->git,
	    .config = rules_config(j->rules),
	    .policy = j->o->git,
	    .root_fd = j->root_fd,
	    .owner = j->o->owner,
	    .group = j->o->group,
	    .held = j->held_hash,
	};
	int r;

	j->now.seed[0] = '\0';
	if (!j->git || j->o->git == GIT_NONE || j->git->prefix[0])
		return 0;
	r = gitseed_key(&go, j->now.seed, e);
	if (!r)
		r = make_seed(j, &go, e);
	return r < 0 ? without_history(j, r, e) : 0;
}

static int fill_result(struct job *j, struct err *e)
{
	struct sync_in_result *res = j->res;
	_cleanup_free_ char *p = NULL;
	int r = 0;

	for (size_t i = 0; i <= j->now.layers_n && !r; i++) {
		free(TAKE_PTR(p));
		if (i < j->now.layers_n)
			r = asprintf(&p, "%s/layers/%u", j->store.path, j->now.layers[i]);
		else if (j->now.seed[0])
			r = asprintf(&p, "%s/git/%s", j->store.path, j->now.seed);
		else
			break;
		r = r < 0 ? -ENOMEM : strv_add(&res->layers, p);
	}
	res->manifest_path = store_manifest_path(&j->store, j->now.number);
	if (!r && !res->manifest_path)
		r = -ENOMEM;
	res->files = j->now.files;
	res->dirs = j->now.dirs;
	res->links = j->now.links;
	res->bytes = j->now.bytes;
	res->is_git = j->git != NULL;
	res->has_repo = j->now.seed[0] != '\0';
	if (!r && j->git) {
		(void)snprintf(res->head, sizeof(res->head), "%s", j->git->head);
		res->branch = j->git->branch ? strdup(j->git->branch) : NULL;
		if (j->git->branch && !res->branch)
			r = -ENOMEM;
	}
	return r < 0 ? err_sys(e, -r, "result of sync in") : 0;
}

/* With the store locked. */
static int run(struct job *j, struct err *e)
{
	bool same_seed;
	int r = rules_new(j->o, &j->rules, e);

	if (r < 0)
		return r;
	j->git = rules_git(j->rules);
	if (rules_note(j->rules))
		r = add_note(j->res, ".git", 4, rules_note(j->rules));
	if (!r)
		r = load_old(j, e);
	if (!r)
		r = scan(j, e);
	if (r < 0)
		return r;
	rules_unused(j->rules, on_unused, j);
	j->now = j->old;
	j->now.owner = j->o->owner;
	j->now.group = j->o->group;
	j->res->reused = j->manifest && !j->diff.n;
	if (!j->res->reused)
		r = apply(j, e);
	if (!r)
		r = seed(j, e);
	if (r < 0)
		return r;
	same_seed = strcmp(j->now.seed, j->old.seed) == 0;
	if (j->now.number == j->old.number && !same_seed)
		r = own_manifest(j, e);
	if (!r)
		r = store_hold(&j->store, j->now.number, &j->res->hold_fd, e);
	if (!r && memcmp(&j->now, &j->old, sizeof(j->now)) != 0)
		r = store_commit(&j->store, &j->now, e);
	if (!r)
		r = fill_result(j, e);
	if (!r)
		store_collect(&j->store, &j->now);
	return r;
}

int sync_in(const struct sync_in_opts *o, struct sync_in_result *ret, struct err *e)
{
	struct job *j = calloc(1, sizeof(*j));
	struct stat st = {0};
	int r;

	*ret = (struct sync_in_result){.hold_fd = -1};
	if (!j)
		return err_sys(e, ENOMEM, "sync in");
	if (sodium_init() < 0) {
		free(j);
		return err_set(e, ERR_INTERNAL, "libsodium cannot start");
	}
	(void)crypto_generichash_init(&j->held, NULL, 0, MANIFEST_HASH);
	j->o = o;
	j->res = ret;
	j->root_fd = j->store.fd = j->store.layers_fd = j->store.lock_fd = -1;
	r = open_workspace(o, &j->root_fd, e);
	if (!r && fstat(j->root_fd, &st) < 0)
		r = err_sys(e, errno, "workspace %s", o->workspace);
	ret->root_dev = r ? 0 : st.st_dev;
	ret->root_ino = r ? 0 : st.st_ino;
	if (!r)
		r = store_open(o->store, o->cancel, &j->store, e);
	if (!r)
		r = run(j, e);
	diff_done(&j->diff);
	manifest_free(j->manifest);
	rules_free(j->rules);
	store_close(&j->store);
	cleanup_fd(&j->root_fd);
	free(j);
	if (r < 0)
		sync_in_result_done(ret);
	return r;
}

void sync_in_result_done(struct sync_in_result *r)
{
	strv_free(r->layers);
	free(r->manifest_path);
	cleanup_fd(&r->hold_fd);
	free(r->branch);
	for (size_t i = 0; i < r->notes_len; i++) {
		free(r->notes[i].path);
		free(r->notes[i].detail);
	}
	free(r->notes);
	*r = (struct sync_in_result){.hold_fd = -1};
}
