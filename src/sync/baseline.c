#include "sync/baseline.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "policy/member.h"
#include "sync/listing.h"
#include "wire/manifest.h"
#include "wire/tar.h"

#define READ_BUF (256 << 10)
#define READ_TRIES 3
/* Kernels before 6.13 stamp files with the last clock tick: what is younger may change unseen. */
#define RACY_NS (10 * NS_PER_MS)

struct walk {
	const struct baseline_opts *o;
	struct baseline_counts *n;
	struct manifest_writer w;
	struct manifest_entry m;
	struct stat out;
	char *piece; /* owned: LISTING_PIECE */
	char *buf;   /* owned: READ_BUF */
	struct buf head;
	unsigned depth;
	char path[PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 2];
	struct err *e;
};

static int walk_dir(struct walk *w, int fd, size_t n);

static int note(struct walk *w, const char *reason)
{
	w->n->left_out++;
	if (w->o->note)
		w->o->note(w->o->arg, w->path, reason);
	return 0;
}

/* The other side may be a sandbox: one that reads nothing is not waited for without end. */
static int pour(struct walk *w, const char *p, size_t n)
{
	while (n) {
		struct pollfd f = {.fd = w->o->tar_fd, .events = POLLOUT};
		ssize_t k = poll(&f, 1, STREAM_IDLE_MS);

		if (k == 0)
			return -ETIMEDOUT;
		/* A pipe that polls as writable takes so much without blocking. */
		k = k < 0 ? -1 : write(w->o->tar_fd, p, n < PIPE_BUF ? n : PIPE_BUF);
		if (k < 0 && errno != EINTR)
			return -errno;
		p += k > 0 ? k : 0;
		n -= (size_t)(k > 0 ? k : 0);
	}
	return 0;
}

static int pour_head(struct walk *w)
{
	int r = w->head.err ? w->head.err : pour(w, w->head.data, w->head.len);

	buf_reset(&w->head);
	return r;
}

static int put_member(struct walk *w, enum tar_type type, uint64_t size, uint32_t mode,
		      int64_t mtime_ns)
{
	const char *name = w->o->as ? w->o->as : w->path;
	struct tar_member t = {.type = type,
			       .path = {name, strlen(name)},
			       .mode = mode,
			       .size = size,
			       .mtime_ns = mtime_ns};

	if (w->o->tar_fd < 0)
		return 0;
	if (type == TAR_SYMLINK)
		t.target = (struct view){w->m.target, w->m.target_len};
	(void)tar_put_header(&w->head, &t);
	return pour_head(w);
}

static int sent(struct walk *w, int r)
{
	return r < 0 ? err_sys(w->e, -r, "send %s", w->path) : 0;
}

/* What was said is what is sent: a file that shrank is filled up, one that grew is cut; both are told apart. */
static int send_file(struct walk *w, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size, at = 0;
	crypto_generichash_state h;
	bool torn = false;
	int r = put_member(w, TAR_FILE, size, st->st_mode & 0777,
			   (int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec);

	(void)crypto_generichash_init(&h, NULL, 0, MANIFEST_HASH);
	while (r == 0 && at < size) {
		size_t want = size - at < READ_BUF ? (size_t)(size - at) : READ_BUF;
		ssize_t n = pread(fd, w->buf, want, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			torn = true;
			memset(w->buf, 0, want);
			n = (ssize_t)want;
		}
		if (w->o->cancel && *w->o->cancel)
			return -ECANCELED;
		(void)crypto_generichash_update(&h, (const unsigned char *)w->buf, (size_t)n);
		r = pour(w, w->buf, (size_t)n);
		at += (uint64_t)n;
	}
	(void)crypto_generichash_final(&h, w->m.hash, MANIFEST_HASH);
	w->m.size = size;
	(void)tar_put_padding(&w->head, size);
	if (r == 0)
		r = pour_head(w);
	return r < 0 ? r : torn;
}

static int write_entry(struct walk *w, char kind, size_t n)
{
	w->m.kind = kind;
	w->m.path_len = n;
	memcpy(w->m.path, w->path, n + 1);
	return manifest_writer_add(&w->w, &w->m, w->e);
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

/* Hash and length of what the file holds, from its start. 0 or negative errno. */
static int hash_file(struct walk *w, int fd)
{
	crypto_generichash_state h;
	uint64_t size = 0;
	ssize_t n;

	(void)crypto_generichash_init(&h, NULL, 0, MANIFEST_HASH);
	while ((n = pread(fd, w->buf, READ_BUF, (off_t)size)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (w->o->cancel && *w->o->cancel)
			return -ECANCELED;
		(void)crypto_generichash_update(&h, (const unsigned char *)w->buf, (size_t)n);
		size += (uint64_t)n;
	}
	(void)crypto_generichash_final(&h, w->m.hash, MANIFEST_HASH);
	w->m.size = size;
	return 0;
}

static int read_file(struct walk *w, int fd, const struct stat *first)
{
	struct stat before = *first, after;

	for (int i = 0; i < (w->o->tar_fd >= 0 ? 1 : READ_TRIES); i++) {
		int64_t begin = clock_real_ns();
		int r = w->o->tar_fd >= 0 ? send_file(w, fd, &before) : hash_file(w, fd);

		if (r < 0)
			return r;
		w->m.mode = before.st_mode & 0777;
		w->m.ino = before.st_ino;
		w->m.mtime_ns = ns_of(before.st_mtim);
		w->m.ctime_ns = ns_of(before.st_ctim);
		if (fstat(fd, &after) < 0)
			return -errno;
		if (r == 0 && same_stat(&before, &after) && w->m.size == (uint64_t)before.st_size) {
			if (w->m.ctime_ns > begin - RACY_NS)
				w->m.ctime_ns = 0;
			return 0;
		}
		before = after;
	}
	w->m.ino = 0;
	w->m.mtime_ns = w->m.ctime_ns = 0;
	return 0;
}

static int visit_file(struct walk *w, int dir, const char *name, size_t n)
{
	_cleanup_fd_ int fd =
	    openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return note(w, errno == ENOENT || errno == ELOOP ? "vanished" : "unreadable");
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return note(w, "changed");
	if (st.st_dev == w->out.st_dev && st.st_ino == w->out.st_ino)
		return 0;
	r = read_file(w, fd, &st);
	if (r == -ECANCELED)
		return err_set(w->e, ERR_CANCELLED, "stopped while the directory was read");
	if (r < 0 &&
	    w->o->tar_fd >= 0) /* the stream is broken: half a member cannot be taken back */
		return sent(w, r);
	if (r < 0)
		return note(w, "unreadable");
	w->n->files++;
	w->n->bytes += w->m.size;
	return write_entry(w, 'f', n);
}

static int visit_link(struct walk *w, int dir, const char *name, size_t n)
{
	ssize_t len = readlinkat(dir, name, w->m.target, sizeof(w->m.target));

	if (len < 0)
		return note(w, errno == ENOENT || errno == EINVAL ? "vanished" : "unreadable");
	if (len == 0 || len > LINK_TARGET_MAX)
		return note(w, "too_long");
	w->m.target[len] = '\0';
	w->m.target_len = (size_t)len;
	w->n->links++;
	if (sent(w, put_member(w, TAR_SYMLINK, 0, 0777, 0)) < 0)
		return -EIO;
	return write_entry(w, 'l', n);
}

/* The directory itself; its contents come in their own place of the order. */
static int visit_dir(struct walk *w, int dir, struct listing_dir *d, const char *name, size_t n)
{
	struct statx st;

	d->fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d->fd < 0)
		return note(w, errno == EACCES || errno == EPERM ? "unreadable" : "vanished");
	if (statx(d->fd, "", AT_EMPTY_PATH, LISTING_STAT_MASK, &st) < 0)
		return note(w, "unreadable");
	if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT || w->depth + 1 >= PATH_DEPTH_MAX) {
		cleanup_fd(&d->fd);
		return note(w, st.stx_attributes & STATX_ATTR_MOUNT_ROOT ? "mount" : "too_deep");
	}
	w->m.mode = st.stx_mode & 0777;
	w->n->dirs++;
	if (sent(w, put_member(w, TAR_DIR, 0, w->m.mode, 0)) < 0)
		return -EIO;
	return write_entry(w, 'd', n);
}

static int visit(struct walk *w, int dir, const struct listing_item *it, size_t n)
{
	const char *name = w->path + n - it->len;
	struct listing_stat st;

	if (member_name_rule(name, it->len))
		return 0;
	if (w->o->only && (it->dir || it->contents || strcmp(w->path, w->o->only) != 0))
		return 0;
	w->m = (struct manifest_entry){.layer = 1};
	if (it->dir)
		return visit_dir(w, dir, it->dir, name, n);
	listing_stat_one(dir, name, &st);
	if (st.err)
		return note(w, st.err == ENOENT ? "vanished" : "unreadable");
	switch (st.mode & S_IFMT) {
	case S_IFREG:
		return visit_file(w, dir, name, n);
	case S_IFLNK:
		return visit_link(w, dir, name, n);
	case S_IFSOCK:
		return note(w, "socket");
	case S_IFIFO:
		return note(w, "fifo");
	case S_IFDIR:
		return note(w, "changed");
	default:
		return note(w, "device");
	}
}

static int walk_items(struct walk *w, int fd, const struct listing *l, size_t n)
{
	size_t at = n + (n ? 1 : 0);
	int r = 0;

	for (size_t i = 0; i < l->n && r == 0; i++) {
		const struct listing_item *it = &l->items[i];
		size_t len = at + it->len - (it->contents ? 1 : 0);

		if (w->o->cancel && *w->o->cancel)
			return err_set(w->e, ERR_CANCELLED, "stopped while the directory was read");
		if (it->len > PATH_SEGMENT_MAX + 1)
			continue;
		if (n)
			w->path[n] = '/';
		memcpy(w->path + at, it->name, len - at);
		w->path[len] = '\0';
		if (len > PATH_MEMBER_MAX) {
			r = it->contents ? 0 : note(w, "too_long");
		} else if (!it->contents) {
			r = visit(w, fd, it, len);
		} else if (it->dir->fd >= 0) {
			r = walk_dir(w, it->dir->fd, len);
			cleanup_fd(&it->dir->fd);
		}
	}
	return r;
}

static int walk_dir(struct walk *w, int fd, size_t n)
{
	struct listing l = {0};
	int r = listing_read(fd, w->piece, SIZE_MAX, &l);

	if (r < 0) {
		/* Unknown, not empty: a baseline that lacks it would take later edits for new files. */
		w->path[n] = '\0';
		r = err_sys(w->e, -r, "cannot list %s", n ? w->path : "the directory");
	} else {
		w->depth++;
		r = walk_items(w, fd, &l, n);
		w->depth--;
	}
	listing_done(&l);
	return r;
}

int baseline_write(const struct baseline_opts *o, struct baseline_counts *ret, struct err *e)
{
	struct walk *w = calloc(1, sizeof(*w));
	_cleanup_fd_ int fd = -1;
	int r;

	*ret = (struct baseline_counts){0};
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory");
	w->o = o;
	w->n = ret;
	w->e = e;
	buf_init(&w->head, 64 << 10);
	w->piece = malloc(LISTING_PIECE);
	w->buf = malloc(READ_BUF);
	fd = openat(o->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!w->piece || !w->buf)
		r = err_set(e, ERR_NOMEM, "out of memory");
	else if (fd < 0 || fstat(o->out_fd, &w->out) < 0)
		r = err_sys(e, errno, "open the directory");
	else
		r = manifest_writer_init(&w->w, o->out_fd, e);
	if (r == 0)
		r = walk_dir(w, fd, 0);
	if (r == 0)
		r = manifest_writer_finish(&w->w, e);
	if (r == 0 && o->tar_fd >= 0) {
		(void)tar_put_end(&w->head);
		r = sent(w, pour_head(w));
	}
	buf_done(&w->head);
	manifest_writer_done(&w->w);
	free(w->piece);
	free(w->buf);
	free(w);
	return r;
}
