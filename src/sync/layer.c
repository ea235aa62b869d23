#include "sync/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/path.h"
#include "sync/layer_sink.h"

#define COPY_BUF (256 << 10)
#define READ_TRIES 3
#define CHUNK 32	/* items a thread takes at once: neighbours share a directory */
#define PARALLEL_MIN 64 /* below, a second thread costs more than it brings */
#define PROGRESS_NS (50 * NS_PER_MS)
/*
 * Kernels before 6.13 stamp files with the time of the last clock tick (10 ms at worst). A file
 * changed within that time of our reading may change again with the same stamp.
 */
#define RACY_NS (10 * NS_PER_MS)

struct job {
	struct layer_build *b;
	atomic_size_t next;
	atomic_bool stop;
	atomic_uint_fast64_t done, bytes, files, written;
};

struct worker {
	struct job *job;
	char *buf;		 /* owned */
	struct layer_lane *lane; /* NULL: each file is one of its own */
	bool reports;
	int64_t last_report_ns;
	int r;
	struct err e;
};

static int fail(struct worker *w, int errnum, const struct layer_item *it, const char *verb)
{
	if (errnum == ENOSPC || errnum == EDQUOT)
		return err_sys(&w->e, errnum,
			       "the base cannot hold %s (%llu bytes); free space in the state "
			       "directory or set XDG_STATE_HOME to a larger disk",
			       it->path, (unsigned long long)it->size);
	return err_sys(&w->e, errnum, "%s %s in the base", verb, it->path);
}

static int gone(struct layer_item *it, const char *reason)
{
	it->outcome = LAYER_GONE;
	it->reason = reason;
	return 0;
}

static int open_source(const struct layer_build *b, const char *path)
{
	struct open_how how = {
	    .flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do {
		fd = syscall(SYS_openat2, b->root_fd, path, &how, sizeof(how));
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : (int)fd;
}

static int source_gone(struct worker *w, struct layer_item *it, int errnum)
{
	switch (errnum) {
	case ENOENT:
	case ENOTDIR:
		return gone(it, "vanished");
	case ELOOP:
	case EXDEV:
	case ENXIO:
		return gone(it, "changed");
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return fail(w, errnum, it, "cannot read");
	default:
		return gone(it, "unreadable");
	}
}

static bool cancelled(const struct worker *w)
{
	const volatile int *c = w->job->b->cancel;

	return (c && *c) || atomic_load_explicit(&w->job->stop, memory_order_relaxed);
}

/*
 * Reads src to its end, or to as many bytes as the stat said: for a small file
 * the second stat tells whether there was more. A failure to read is in *ret_src_errno and none of ours.
 */
static int pour(struct worker *w, int src, const struct layer_sink *dst, struct layer_item *it,
		const struct stat *said, int *ret_src_errno)
{
	/* A file with holes keeps them: where it is zeros, nothing is written. */
	bool holes = (uint64_t)said->st_blocks * 512 < (uint64_t)said->st_size;
	uint64_t total = 0, expect = (uint64_t)said->st_size;
	crypto_generichash_state h;
	int r;

	*ret_src_errno = 0;
	(void)crypto_generichash_init(&h, NULL, 0, MANIFEST_HASH);
	for (;;) {
		ssize_t n;

		if (total && cancelled(w))
			return err_set(&w->e, ERR_CANCELLED, "sync in was stopped");
		n = read(src, w->buf, COPY_BUF);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			*ret_src_errno = errno;
			return 0;
		}
		if (n == 0)
			break;
		(void)crypto_generichash_update(&h, (const unsigned char *)w->buf, (size_t)n);
		r = holes && str_is_zero(w->buf, (size_t)n)
			? layer_sink_zeros(dst, (size_t)n)
			: layer_sink_put(dst, w->buf, (size_t)n);
		if (r < 0)
			return fail(w, -r, it, "cannot write");
		total += (uint64_t)n;
		if (total == expect && n < COPY_BUF)
			break;
	}
	if (holes && dst->fd >= 0 && ftruncate(dst->fd, (off_t)total) < 0)
		return fail(w, errno, it, "cannot write");
	it->size = total;
	(void)crypto_generichash_final(&h, it->hash, MANIFEST_HASH);
	return 0;
}

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static bool same_stat(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && ns_of(a->st_mtim) == ns_of(b->st_mtim) &&
	       ns_of(a->st_ctim) == ns_of(b->st_ctim);
}

/* 1: read whole and consistent, or taken as it is; 0: gone (outcome set); negative. */
static int read_consistent(struct worker *w, int src, const struct layer_sink *dst,
			   struct layer_item *it)
{
	struct stat before, after;
	int64_t begin = 0;
	int r, src_errno = 0;

	for (int i = 0; i < READ_TRIES; i++) {
		if (i && lseek(src, 0, SEEK_SET) < 0)
			return fail(w, errno, it, "cannot rewind");
		r = i ? layer_sink_restart(dst) : 0;
		if (r < 0)
			return fail(w, -r, it, "cannot rewind");
		begin = clock_real_ns();
		if (fstat(src, &before) < 0)
			return source_gone(w, it, errno);
		if (!S_ISREG(before.st_mode))
			return gone(it, "changed");
		r = pour(w, src, dst, it, &before, &src_errno);
		if (r < 0)
			return r;
		if (src_errno)
			return source_gone(w, it, src_errno);
		it->mode = before.st_mode & 0777;
		it->mtime_ns = ns_of(before.st_mtim);
		it->ctime_ns = ns_of(before.st_ctim);
		it->ino = before.st_ino;
		if (fstat(src, &after) == 0 && same_stat(&before, &after) &&
		    it->size == (uint64_t)before.st_size) {
			if (it->ctime_ns > begin - RACY_NS)
				it->ctime_ns = 0; /* the next pass reads it again */
			return 1;
		}
	}
	it->reason = "changed";
	it->ino = 0;
	it->ctime_ns = 0;
	return 1;
}

static int set_owner(const struct layer_build *b, int fd, const char *path, int flags)
{
	if (b->owner == (uid_t)-1)
		return 0;
	/* Safe because: fd is in our own store and the entry was just made by us; links are not followed. */
	return fchownat(fd, path, b->owner, b->group, flags | AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int finish_file(struct worker *w, int dst, const struct layer_item *it)
{
	const struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(it->mtime_ns)};
	int r;

	/* u+r: a sandbox must be able to read what was sent; set-id bits are not in mode. */
	if (fchmod(dst, it->mode | 0400) < 0 || futimens(dst, t) < 0)
		return fail(w, errno, it, "cannot finish");
	r = set_owner(w->job->b, dst, "", AT_EMPTY_PATH);
	return r < 0 ? fail(w, -r, it, "cannot give away") : 0;
}

static int taken(struct worker *w, struct layer_item *it)
{
	it->layer = w->job->b->number;
	atomic_fetch_add(&w->job->files, 1);
	atomic_fetch_add(&w->job->bytes, it->size);
	atomic_fetch_add(&w->job->written, 1);
	return 0;
}

/* Into the layer's one file. */
static int gather_file(struct worker *w, struct layer_item *it, int src)
{
	const struct layer_sink to = {.fd = -1, .lane = w->lane};
	int r = read_consistent(w, src, &to, it), k;

	if (r > 0 && it->outcome != LAYER_GONE) {
		k = layer_sink_end(&to, it->size, it->hash);
		return k < 0 ? fail(w, -k, it, "cannot write") : taken(w, it);
	}
	k = layer_sink_restart(&to);
	return r < 0 ? r : k < 0 ? fail(w, -k, it, "cannot write") : 0;
}

static int copy_file(struct worker *w, struct layer_item *it, int src)
{
	struct layer_build *b = w->job->b;
	_cleanup_fd_ int dst = openat(b->layer_fd, it->path,
				      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	const struct layer_sink to = {.fd = dst};
	int r;

	if (dst < 0)
		return fail(w, errno, it, "cannot make");
	r = read_consistent(w, src, &to, it);
	if (r > 0 && it->outcome != LAYER_GONE)
		r = finish_file(w, dst, it);
	else if (r >= 0)
		(void)unlinkat(b->layer_fd, it->path, 0);
	return r < 0 || it->outcome == LAYER_GONE ? r : taken(w, it);
}

/* 1: the bytes are the ones that an older layer holds. */
static int verify(struct worker *w, struct layer_item *it, int src)
{
	const struct layer_sink nowhere = {.fd = -1};
	struct layer_item now = *it;
	int r = read_consistent(w, src, &nowhere, &now);

	if (r < 0)
		return r;
	if (r == 0 || now.reason || now.mode != it->mode || now.mtime_ns != it->mtime_ns ||
	    memcmp(now.hash, it->hash, MANIFEST_HASH) != 0)
		return lseek(src, 0, SEEK_SET) < 0 ? fail(w, errno, it, "cannot rewind") : 0;
	*it = now;
	it->outcome = LAYER_SAME;
	return 1;
}

static int take_file(struct worker *w, struct layer_item *it)
{
	_cleanup_fd_ int src = open_source(w->job->b, it->path);
	int r = 0;

	if (src < 0)
		return source_gone(w, it, -src);
	if (it->op == LAYER_VERIFY)
		r = verify(w, it, src);
	if (r)
		return r < 0 ? r : 0;
	return w->lane ? gather_file(w, it, src) : copy_file(w, it, src);
}

static int take_link(struct worker *w, struct layer_item *it)
{
	struct layer_build *b = w->job->b;
	int r;

	if (symlinkat(it->target, b->layer_fd, it->path) < 0)
		return fail(w, errno, it, "cannot make");
	r = set_owner(b, b->layer_fd, it->path, 0);
	atomic_fetch_add(&w->job->written, 1);
	return r < 0 ? fail(w, -r, it, "cannot give away") : 0;
}

static int reuse(struct worker *w, struct layer_item *it)
{
	struct layer_build *b = w->job->b;
	_cleanup_free_ char *from = NULL;

	if (asprintf(&from, "%u/%s", it->layer, it->path) < 0)
		return fail(w, ENOMEM, it, "cannot link");
	/* A longer name than PATH_MAX, too many links, a layer that was damaged: copy instead. */
	if (linkat(b->layers_fd, from, b->layer_fd, it->path, 0) < 0)
		return take_file(w, it);
	it->layer = b->number;
	atomic_fetch_add(&w->job->written, 1);
	return 0;
}

static int one(struct worker *w, struct layer_item *it)
{
	if (it->outcome == LAYER_GONE) /* hidden by a parent already */
		return 0;
	/* In one file are contents alone: of everything else the manifest says all there is. */
	if (w->lane && (it->kind != 'f' || it->op == LAYER_WHITEOUT)) {
		atomic_fetch_add(&w->job->written, 1);
		return 0;
	}
	if (it->op == LAYER_WHITEOUT) {
		/* Unprivileged since Linux 5.8: device 0:0 is no device but the overlay's mark. */
		if (mknodat(w->job->b->layer_fd, it->path, S_IFCHR, makedev(0, 0)) < 0)
			return fail(w, errno, it, "cannot hide");
		atomic_fetch_add(&w->job->written, 1);
		return 0;
	}
	if (it->kind == 'd')
		return 0;
	if (it->kind == 'l')
		return take_link(w, it);
	return it->op == LAYER_REUSE && !w->lane ? reuse(w, it) : take_file(w, it);
}

static void report(struct worker *w, bool last)
{
	struct layer_build *b = w->job->b;
	int64_t now;

	if (!w->reports || !b->progress)
		return;
	now = clock_mono_ns();
	if (!last && now - w->last_report_ns < PROGRESS_NS)
		return;
	w->last_report_ns = now;
	b->progress(b->progress_arg, "copy", atomic_load(&w->job->done), b->n,
		    atomic_load(&w->job->bytes));
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct layer_build *b = w->job->b;

	while (!w->r) {
		size_t from = atomic_fetch_add(&w->job->next, CHUNK);
		size_t to = from + CHUNK < b->n ? from + CHUNK : b->n;

		if (from >= b->n)
			break;
		for (size_t i = from; i < to && !w->r; i++)
			w->r = cancelled(w) ? err_set(&w->e, ERR_CANCELLED, "sync in was stopped")
					    : one(w, &b->items[i]);
		atomic_fetch_add(&w->job->done, to - from);
		report(w, false);
	}
	if (w->r)
		atomic_store(&w->job->stop, true);
	return NULL;
}

static int make_dir(struct layer_build *b, const char *path, uint32_t mode, struct err *e)
{
	int r;

	if (mkdirat(b->layer_fd, path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "cannot make directory %s in the base", path);
	/* u+rwx: the overlay must look into it and the sandbox may have to add to it. */
	if (fchmodat(b->layer_fd, path, mode | 0700, 0) < 0)
		return err_sys(e, errno, "cannot set the mode of %s in the base", path);
	r = set_owner(b, b->layer_fd, path, 0);
	if (r < 0)
		return err_sys(e, -r, "cannot give %s in the base to the sandbox", path);
	return 0;
}

/* Directories between the layer's top and path that are not in the list. */
static int make_parents(struct layer_build *b, const char *path, size_t *known, struct err *e)
{
	_cleanup_free_ struct manifest_entry *m = NULL;
	_cleanup_free_ char *p = strdup(path);

	if (!p)
		return err_sys(e, ENOMEM, "%s", path);
	for (size_t i = *known; p[i]; i++) {
		int r;

		if (p[i] != '/')
			continue;
		p[i] = '\0';
		if (faccessat(b->layer_fd, p, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
			if (!m)
				m = malloc(sizeof(*m));
			if (!m)
				return err_sys(e, ENOMEM, "%s", path);
			r = b->old ? manifest_find(b->old, p, i, m) : 0;
			r = make_dir(b, p, r == 1 && m->kind == 'd' ? m->mode : 0755, e);
			if (r < 0)
				return r;
		}
		p[i] = '/';
	}
	return 0;
}

static size_t dir_len(const struct layer_item *it)
{
	const char *slash = memrchr(it->path, '/', it->path_len);

	return slash ? (size_t)(slash - it->path) : 0;
}

/* All directories first, so that the threads never wait for one another. */
static int make_dirs(struct layer_build *b, struct err *e)
{
	const struct layer_item *last = NULL;
	size_t none = 0;

	for (size_t i = 0; i < b->n; i++) {
		struct layer_item *it = &b->items[i];
		size_t n = dir_len(it);
		int r = 0;

		if (it->outcome == LAYER_GONE)
			continue;
		/* A VERIFY may write nothing; its parents are harmless: they equal the old ones. */
		if (n && (!last || dir_len(last) != n || memcmp(last->path, it->path, n) != 0))
			r = make_parents(b, it->path, &none, e);
		if (!r && it->kind == 'd' && it->op != LAYER_WHITEOUT) {
			r = make_dir(b, it->path, it->mode, e);
			b->written++;
		}
		if (r < 0)
			return r;
		last = it;
	}
	return 0;
}

static int run_workers(struct job *j, struct layer_onefile *of, struct err *e)
{
	struct worker w[LAYER_LANES] = {{.job = j, .reports = true}, {.job = j}};
	bool two = j->b->n >= PARALLEL_MIN;
	pthread_t t;
	int r;

	for (size_t i = 0; of && i < LAYER_LANES; i++)
		w[i].lane = &of->lane[i];
	w[0].buf = malloc(COPY_BUF);
	w[1].buf = two ? malloc(COPY_BUF) : NULL;
	if (!w[0].buf || (two && !w[1].buf)) {
		free(w[0].buf);
		return err_sys(e, ENOMEM, "copying into the base");
	}
	two = two && pthread_create(&t, NULL, work, &w[1]) == 0;
	(void)work(&w[0]);
	if (two)
		(void)pthread_join(t, NULL);
	report(&w[0], true);
	free(w[0].buf);
	free(w[1].buf);
	r = w[0].r ? w[0].r : w[1].r;
	/* The one that failed first tells why; the other was only stopped. */
	if (w[0].r == -ECANCELED && w[1].r && w[1].r != -ECANCELED)
		r = w[1].r;
	if (r < 0 && e)
		*e = r == w[0].r ? w[0].e : w[1].e;
	return r;
}

static int build_one_file(struct job *j, struct err *e)
{
	struct layer_onefile of;
	int r = layer_onefile_init(&of, j->b->layer_fd), k;

	r = r < 0 ? err_sys(e, -r, "copying into the base") : run_workers(j, &of, e);
	if (r == 0) {
		k = layer_onefile_finish(&of);
		r = k < 0 ? err_sys(e, -k,
				    "the base cannot be written; free space in the state directory "
				    "or set XDG_STATE_HOME to a larger disk")
			  : 0;
	}
	layer_onefile_done(&of);
	return r;
}

int layer_build(struct layer_build *b, struct err *e)
{
	struct job j = {.b = b};
	int r = 0;

	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, "libsodium cannot start");
	b->written = 0;
	if (b->one_file)
		r = build_one_file(&j, e);
	else
		r = make_dirs(b, e);
	if (!r && !b->one_file)
		r = run_workers(&j, NULL, e);
	b->files = j.files;
	b->bytes = j.bytes;
	b->written += j.written;
	return r;
}

int layer_hide_gone(struct layer_build *b, struct err *e)
{
	for (size_t i = 0; i < b->n; i++) {
		struct layer_item *it = &b->items[i];

		if (it->outcome != LAYER_GONE || !it->was_there || it->op == LAYER_WHITEOUT)
			continue;
		if (!b->one_file && mknodat(b->layer_fd, it->path, S_IFCHR, makedev(0, 0)) < 0)
			return err_sys(e, errno, "cannot hide %s in the base", it->path);
		b->written++;
	}
	return 0;
}
