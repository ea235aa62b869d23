#include "guest/delta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/clock.h"

#define CHUNK 65536
#define TICK_TRIES 50 /* of a millisecond; the clock of file stamps ticks every 1 to 10 ms */
#define COARSE_NS (2 * NS_PER_S) /* FAT stores even seconds, others whole ones */

_Static_assert(BLAKE2B_OUT == MANIFEST_HASH, "the hash of a manifest is BLAKE2b-256");

struct delta {
	struct manifest *m;
	int64_t made_ns;
	size_t passed;	  /* of m, out of memory again */
	size_t after;	  /* position past `e` */
	const char *name; /* in e.path */
	struct manifest_entry e;
	uint8_t chunk[CHUNK];
};

static int64_t stamp(const struct timespec *t)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)t->tv_sec, NS_PER_S, &ns) ||
	    __builtin_add_overflow(ns, t->tv_nsec, &ns))
		return t->tv_sec < 0 ? INT64_MIN + 1 : INT64_MAX;
	return ns;
}

/* The index. -------------------------------------------------------------------------------- */

/* The time that the file system gives to what is written now. */
static int now_there(int fd, int64_t *ret)
{
	const struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
	struct stat st;

	if (futimens(fd, now) < 0 || fstat(fd, &st) < 0)
		return -errno;
	*ret = stamp(&st.st_mtim);
	return 0;
}

/* A file system of whole seconds is not waited for: its young files are hashed. */
static int next_tick(int fd, int64_t *ret)
{
	const struct timespec ms = {.tv_nsec = NS_PER_MS};
	int64_t first = 0;
	int r = now_there(fd, &first);

	*ret = first;
	for (int i = 0; r == 0 && *ret == first && i < TICK_TRIES; i++) {
		(void)nanosleep(&ms, NULL);
		r = now_there(fd, ret);
	}
	return r;
}

/* False: it never arrived. */
static bool look_up(int tree, struct manifest_entry *m)
{
	struct stat st;
	bool there = fstatat(tree, m->path, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (!there && (errno == ENOENT || errno == ENOTDIR))
		return false;
	m->sandbox = false;
	m->host_mode = m->layer = 0;
	m->content = 0;
	/* What is not as it was sent matches no file, and so will be looked at. */
	m->ino = 0;
	m->ctime_ns = 0;
	if (!there)
		return true;
	if ((m->kind == 'd' && S_ISDIR(st.st_mode)) || (m->kind == 'f' && S_ISREG(st.st_mode)))
		m->mode = st.st_mode & 0777;
	if (m->kind != 'f' || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != m->size)
		return true;
	m->ino = st.st_ino;
	m->mtime_ns = stamp(&st.st_mtim);
	m->ctime_ns = stamp(&st.st_ctim);
	return true;
}

static int write_index(int tree, const struct manifest *sent, struct manifest_writer *w,
		       struct err *e)
{
	_cleanup_free_ struct manifest_entry *m = malloc(sizeof(*m));
	size_t pos = 0, passed = 0;
	int r;

	if (!m)
		return err_sys(e, ENOMEM, "index of the tree");
	while ((r = manifest_next(sent, &pos, m)) > 0) {
		manifest_pass(sent, &passed, pos);
		if (look_up(tree, m)) {
			r = manifest_writer_add(w, m, e);
			if (r < 0)
				return r;
		}
	}
	if (r < 0)
		return err_set(e, ERR_PROTOCOL, "the manifest that was sent has a broken line");
	return manifest_writer_finish(w, e);
}

int delta_index(int tree, const struct manifest *sent, int out, struct err *e)
{
	struct timespec made[2] = {{.tv_nsec = UTIME_OMIT}};
	struct manifest_writer *w = calloc(1, sizeof(*w));
	int64_t ns;
	int r = w ? manifest_writer_init(w, out, e) : err_sys(e, ENOMEM, "index of the tree");

	if (r == 0) {
		r = next_tick(out, &ns);
		if (r < 0)
			(void)err_sys(e, -r, "index of the tree: its time cannot be set");
	}
	if (r == 0)
		r = write_index(tree, sent, w, e);
	if (r == 0) {
		made[1] = (struct timespec){ns / NS_PER_S, ns % NS_PER_S};
		r = futimens(out, made) < 0 ? err_sys(e, errno, "index of the tree") : 0;
	}
	if (w)
		manifest_writer_done(w);
	free(w);
	return r;
}

/* The comparison. --------------------------------------------------------------------------- */

int delta_open(int index, struct delta **ret, struct err *e)
{
	struct delta *d = malloc(sizeof(*d));
	struct stat st;
	int r;

	if (!d)
		return err_sys(e, ENOMEM, "index of the tree");
	d->m = NULL;
	d->passed = 0;
	r = fstat(index, &st) < 0 ? err_sys(e, errno, "index of the tree")
				  : manifest_open(index, &d->m, e);
	if (r < 0) {
		delta_free(d);
		return r;
	}
	d->made_ns = stamp(&st.st_mtim);
	*ret = d;
	return 0;
}

void delta_free(struct delta *d)
{
	if (d)
		manifest_free(d->m);
	free(d);
}

static bool older(const struct delta *d, int64_t ns)
{
	/* Without a fraction it may have been cut to what the file system stores. */
	if (ns % NS_PER_S == 0 && ns <= INT64_MAX - COARSE_NS)
		ns += COARSE_NS;
	return ns < d->made_ns;
}

bool delta_older(const struct delta *d, const struct stat *st)
{
	return older(d, stamp(&st->st_mtim)) && older(d, stamp(&st->st_ctim));
}

bool delta_plainly_same(struct delta *d, size_t *pos, const char *path, size_t n,
			const struct stat *st)
{
	const struct manifest_stat s = {
	    .kind = S_ISDIR(st->st_mode) ? 'd' : 'f',
	    .mode = st->st_mode & 0777,
	    .size = (uint64_t)st->st_size,
	    .ino = st->st_ino,
	    .mtime_ns = stamp(&st->st_mtim),
	    .ctime_ns = stamp(&st->st_ctim),
	    .path = path,
	    .path_len = n,
	};

	manifest_pass(d->m, &d->passed, *pos);
	if (S_ISREG(st->st_mode) ? !delta_older(d, st) : !S_ISDIR(st->st_mode))
		return false;
	return manifest_skip_same(d->m, pos, &s);
}

void delta_enter(const struct delta *d, const char *path, size_t n, size_t *pos)
{
	manifest_seek_below(d->m, path, n, pos);
}

/* The next entry that lies in dir itself. 1, 0, -EPROTO. */
static int child(struct delta *d, size_t *pos, const char *dir, size_t dir_len)
{
	for (;;) {
		size_t at = *pos, skip = dir_len ? dir_len + 1 : 0;
		int r = manifest_next(d->m, &at, &d->e);
		char *slash;

		if (r <= 0)
			return r;
		if (d->e.path_len <= skip ||
		    (skip && (memcmp(d->e.path, dir, dir_len) != 0 || d->e.path[dir_len] != '/')))
			return 0;
		d->name = d->e.path + skip;
		d->after = at;
		slash = memchr(d->name, '/', d->e.path_len - skip);
		if (!slash)
			return 1;
		/* Contents of a directory, which its own level has seen or nobody will: '0' follows '/'. */
		*slash = '/' + 1;
		r = manifest_seek(d->m, d->e.path, (size_t)(slash + 1 - d->e.path), pos);
		if (r < 0)
			return r;
	}
}

int delta_before(struct delta *d, size_t *pos, const char *dir, size_t dir_len, const char *until,
		 struct view *ret_path)
{
	int r = child(d, pos, dir, dir_len);

	if (r <= 0 || (until && strcmp(d->name, until) >= 0))
		return r < 0 ? r : 0;
	*pos = d->after;
	*ret_path = (struct view){d->e.path, d->e.path_len};
	return 1;
}

/* Are the bytes the indexed ones? Whatever cannot be read is for the packer to say. */
static bool same_bytes(struct delta *d, int dir, const char *name)
{
	_cleanup_fd_ int fd =
	    openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	uint8_t hash[BLAKE2B_OUT];
	struct blake2b b;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	blake2b_init(&b);
	do {
		n = read(fd, d->chunk, sizeof(d->chunk));
		if (n > 0)
			blake2b_update(&b, d->chunk, (size_t)n);
		/* One that grows for ever must not keep us. */
	} while ((n > 0 && b.bytes <= d->e.size) || (n < 0 && errno == EINTR));
	blake2b_final(&b, hash);
	return n == 0 && memcmp(hash, d->e.hash, sizeof(hash)) == 0;
}

static enum delta_look judge_file(struct delta *d, const struct stat *st, int dir, const char *name)
{
	const struct manifest_entry *m = &d->e;

	if (m->kind != 'f')
		return DELTA_KIND;
	if (m->size != (uint64_t)st->st_size || m->mode != (st->st_mode & 0777))
		return DELTA_DIFFERS;
	if (delta_older(d, st) && m->ino == st->st_ino && m->mtime_ns == stamp(&st->st_mtim) &&
	    m->ctime_ns == stamp(&st->st_ctim))
		return DELTA_SAME;
	return same_bytes(d, dir, name) ? DELTA_SAME : DELTA_DIFFERS;
}

static enum delta_look judge_link(const struct delta *d, int dir, const char *name)
{
	char target[LINK_TARGET_MAX + 1];
	ssize_t n;

	if (d->e.kind != 'l')
		return DELTA_KIND;
	n = readlinkat(dir, name, target, sizeof(target));
	return n > 0 && (size_t)n == d->e.target_len && memcmp(target, d->e.target, (size_t)n) == 0
		   ? DELTA_SAME
		   : DELTA_DIFFERS;
}

int delta_judge(struct delta *d, size_t *pos, const char *path, size_t n, const struct stat *st,
		int dir, const char *name)
{
	size_t len = strlen(name);
	int r = child(d, pos, path, n > len ? n - len - 1 : 0);

	if (r < 0)
		return r;
	if (r == 0 || strcmp(d->name, name) != 0)
		return DELTA_NEW;
	*pos = d->after;
	if (S_ISREG(st->st_mode))
		return judge_file(d, st, dir, name);
	if (S_ISLNK(st->st_mode))
		return judge_link(d, dir, name);
	if (!S_ISDIR(st->st_mode) || d->e.kind != 'd')
		return DELTA_KIND;
	return d->e.mode == (st->st_mode & 0777) ? DELTA_SAME : DELTA_DIFFERS;
}
