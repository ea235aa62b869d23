#include "guest/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/delta.h"
#include "guest/names.h"
#include "wire/tar.h"

#define FLUSH_AT 131072 /* bytes of stream that are collected before a write */
#define SMALL 65536	/* a file up to this size goes through the buffer */
#define STREAM_MAX 262144
#define CHUNK (1 << 20)
#define PIECES_MAX 256		/* of a file with holes; with more it goes as a plain file */
#define NAMES_BUDGET (3u << 20) /* bytes of names over all open directories, roughly */
#define NAMES_LEAST 16384
/* struct open_how, openat2(2); the guest is built without the kernel's headers */
struct how {
	uint64_t flags, mode, resolve;
};
#define BENEATH 0x0e /* RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS */

struct level {
	int fd;
	struct names names;
	size_t next;
	size_t path_len;
	size_t base_at; /* position in the index */
	mode_t own_mode;
	bool lent; /* own_mode is to be put back when it is closed */
};

struct pack {
	int out, work;
	bool plain; /* a copy of the workspace, not a layer */
	struct delta
	    *base; /* only what differs from it goes; NULL: the tree is an overlay's layer */
	enum delta_look look; /* the entry at hand, compared with it */
	struct buf stream;
	struct pack_result *res;
	char path[PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 2];
	struct level levels[PATH_DEPTH_MAX];
	size_t depth; /* open levels; level 0 is the top */
};

/* The stream. ------------------------------------------------------------------------------- */

/* After a failed write or sendfile: true to try again. */
static bool try_again(const struct pack *p)
{
	struct pollfd w = {.fd = p->out, .events = POLLOUT};

	if (errno == EAGAIN)
		(void)poll(&w, 1, -1);
	return errno == EAGAIN || errno == EINTR;
}

static int flush(struct pack *p)
{
	size_t at = 0;

	if (p->stream.err)
		return p->stream.err;
	while (at < p->stream.len) {
		ssize_t n = write(p->out, p->stream.data + at, p->stream.len - at);

		if (n >= 0)
			at += (size_t)n;
		else if (!try_again(p))
			return -errno;
	}
	buf_reset(&p->stream);
	return 0;
}

static int put_zeros(struct pack *p, uint64_t n)
{
	while (n) {
		size_t k = n < SMALL ? (size_t)n : SMALL;
		char *to = buf_room(&p->stream, k);
		int r;

		if (!to)
			return p->stream.err;
		memset(to, 0, k);
		buf_add(&p->stream, k);
		n -= k;
		r = p->stream.len >= FLUSH_AT ? flush(p) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* Moves up to *left bytes of the file through the buffer; stops early where the file does. */
static int copy(struct pack *p, int fd, uint64_t *left)
{
	while (*left) {
		size_t k = *left < SMALL ? (size_t)*left : SMALL;
		char *to = buf_room(&p->stream, k);
		ssize_t n;
		int r;

		if (!to)
			return p->stream.err;
		n = read(fd, to, k);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		buf_add(&p->stream, (size_t)n);
		*left -= (uint64_t)n;
		r = p->stream.len >= FLUSH_AT ? flush(p) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Exactly size bytes, whatever happens to the file meanwhile: the header has promised them. 1 if some of
 * them are no bytes of the file, errno.
 */
static int put_bytes(struct pack *p, int fd, uint64_t size)
{
	uint64_t left = size;
	int r;

	if (left > SMALL) {
		r = flush(p);
		if (r < 0)
			return r;
		while (left) {
			ssize_t n = sendfile(p->out, fd, NULL, left < CHUNK ? (size_t)left : CHUNK);

			if (n > 0)
				left -= (uint64_t)n;
			else if (n == 0 || !try_again(p))
				break;
		}
	}
	/* What sendfile could not do, for lack of support or an error on either side, shows here. */
	r = copy(p, fd, &left);
	if (r < 0)
		return r;
	if (left) {
		p->res->shrunk++;
		r = put_zeros(p, left);
		if (r < 0)
			return r;
	}
	return left != 0;
}

static int put_body(struct pack *p, int fd, uint64_t size)
{
	int r = put_bytes(p, fd, size);
	int k = r < 0 ? r : tar_put_padding(&p->stream, size);

	return k < 0 ? k : r;
}

/* Members. ---------------------------------------------------------------------------------- */

static int64_t mtime_of(const struct stat *st)
{
	if (st->st_mtim.tv_sec < 0)
		return 0;
	if (st->st_mtim.tv_sec > INT64_MAX / NS_PER_S - 1)
		return INT64_MAX / NS_PER_S * NS_PER_S - NS_PER_S;
	return st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
}

static struct tar_member member_of(const struct pack *p, size_t path_len, enum tar_type type,
				   const struct stat *st)
{
	return (struct tar_member){
	    .type = type,
	    .path = {p->path, path_len},
	    .target = {"", 0},
	    .mode = st->st_mode & 07777,
	    .mtime_ns = mtime_of(st),
	};
}

static int put_member(struct pack *p, const struct tar_member *m)
{
	int r = p->stream.len >= FLUSH_AT ? flush(p) : 0;

	if (r == 0)
		r = tar_put_header(&p->stream, m);
	if (r == 0)
		p->res->members++;
	return r;
}

static int put_op(struct pack *p, size_t path_len, enum tar_type type, enum tar_op op)
{
	struct tar_member m = {
	    .type = type, .op = op, .path = {p->path, path_len}, .target = {"", 0}, .mode = 0600};

	if (op == TAR_OP_UNREADABLE)
		p->res->unreadable++;
	return put_member(p, &m);
}

/* After a failed open: gone is gone, everything else is unknown to the host, never deleted. */
static int put_unopened(struct pack *p, size_t path_len, enum tar_type type, int error)
{
	return error == ENOENT ? 0 : put_op(p, path_len, type, TAR_OP_UNREADABLE);
}

/* Overlay marks live in one of two name spaces, by the way it was mounted. */
static bool has_mark(int fd, const char *user, const char *trusted, char value)
{
	char v[4];

	for (int i = 0; i < 2; i++) {
		ssize_t n = fgetxattr(fd, i ? trusted : user, v, sizeof(v));

		if (n < 0 && errno == ERANGE && !value)
			return true;
		if (n >= 0 && (!value || (n == 1 && v[0] == value)))
			return true;
	}
	return false;
}

static int put_special(struct pack *p, size_t path_len, const struct stat *st)
{
	struct tar_member m = member_of(p, path_len, TAR_SPECIAL, st);

	/* tar has no letter for a socket. */
	m.typeflag = S_ISCHR(st->st_mode) ? '3' : S_ISBLK(st->st_mode) ? '4' : '6';
	return put_member(p, &m);
}

/*
 * Sets the mode of p->path[0..path_len) through the workspace, for the layer is mounted read-only here. By
 * /proc, because chmod by name would follow a link that has just taken the place.
 */
static bool set_mode(struct pack *p, size_t path_len, mode_t mode)
{
	struct how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = BENEATH};
	_cleanup_fd_ int fd = -1;
	char proc[40];

	if (p->work < 0)
		return false;
	p->path[path_len] = '\0';
	/* The top itself needs no walk, for which it might lack the right. */
	if (path_len)
		fd = (int)syscall(SYS_openat2, p->work, p->path, &how, sizeof(how));
	if (path_len && fd < 0)
		return false;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_len ? fd : p->work);
	return chmod(proc, mode & 07777) == 0;
}

/*
 * The command may have taken the right to read from its own files; their contents are results all the same.
 * True: the bits in `need` were added, and the caller puts st_mode back. A packer that is killed in
 * between leaves them added.
 */
static bool lend(struct pack *p, size_t path_len, const struct stat *st, mode_t need)
{
	return (st->st_mode & need) != need && set_mode(p, path_len, st->st_mode | need);
}

/* The pieces of a file with holes. How many; 0: it has none, or so many that it goes as a plain file. */
static size_t find_pieces(int fd, uint64_t size, struct tar_extent v[PIECES_MAX])
{
	size_t n = 0;
	off_t at = 0;

	while ((uint64_t)at < size) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;

		if (data < 0 && errno != ENXIO)
			return 0;
		if (data < 0 || (uint64_t)data >= size)
			break;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole <= data || n == PIECES_MAX)
			return 0;
		at = (uint64_t)hole < size ? hole : (off_t)size;
		v[n++] = (struct tar_extent){(uint64_t)data, (uint64_t)(at - data)};
	}
	/* Nothing but a hole still needs a piece to be one. */
	if (!n)
		v[n++] = (struct tar_extent){size, 0};
	return n;
}

static int put_sparse(struct pack *p, int fd, const struct tar_member *m,
		      const struct tar_extent *v, size_t n)
{
	uint64_t sum = 0;
	bool torn = false;
	int r = p->stream.len >= FLUSH_AT ? flush(p) : 0;

	if (r == 0)
		r = tar_put_sparse(&p->stream, m, v, n);
	p->res->members += r == 0;
	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (lseek(fd, (off_t)v[i].off, SEEK_SET) < 0)
			return -errno;
		r = put_bytes(p, fd, v[i].len);
		torn |= r > 0;
		sum += v[i].len;
	}
	if (r >= 0)
		r = tar_put_padding(&p->stream, sum);
	return r < 0 ? r : torn;
}

static int put_content(struct pack *p, int fd, const struct tar_member *m, const struct stat *st)
{
	struct tar_extent v[PIECES_MAX];
	size_t n = 0;
	int r;

	if (m->size > SMALL && (uint64_t)st->st_blocks * 512 < m->size)
		n = find_pieces(fd, m->size, v);
	if (n)
		return put_sparse(p, fd, m, v, n);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	r = put_member(p, m);
	return r < 0 ? r : put_body(p, fd, m->size);
}

static int put_file(struct pack *p, int dir, const char *name, size_t path_len,
		    const struct stat *before)
{
	bool lent = lend(p, path_len, before, S_IRUSR);
	/* Non-blocking: the name may be a FIFO by now. */
	_cleanup_fd_ int fd =
	    openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	int error = errno;
	struct tar_member m;
	struct stat st;
	int r;

	if (lent)
		(void)set_mode(p, path_len, before->st_mode);

	if (fd < 0)
		return put_unopened(p, path_len, TAR_FILE, error);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return put_op(p, path_len, TAR_FILE, TAR_OP_UNREADABLE);
	if (!p->base && st.st_size == 0 &&
	    has_mark(fd, "user.overlay.whiteout", "trusted.overlay.whiteout", '\0'))
		return put_op(p, path_len, TAR_FILE, TAR_OP_DELETE);
	m = member_of(p, path_len, TAR_FILE, &st);
	m.size = (uint64_t)st.st_size;
	r = put_content(p, fd, &m, &st);
	/* Neither the old bytes nor the new: the host must not take what it got for a state of the file. */
	return r > 0 ? put_op(p, path_len, TAR_FILE, TAR_OP_UNREADABLE) : r;
}

static int put_link(struct pack *p, int dir, const char *name, size_t path_len,
		    const struct stat *st)
{
	struct tar_member m = member_of(p, path_len, TAR_SYMLINK, st);
	char target[LINK_TARGET_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, sizeof(target));

	if (n <= 0 || n > LINK_TARGET_MAX)
		return put_unopened(p, path_len, TAR_FILE, n < 0 ? errno : EINVAL);
	m.target = (struct view){target, (size_t)n};
	return put_member(p, &m);
}

static size_t names_limit(const struct pack *p)
{
	size_t used = 0;

	for (size_t i = 0; i < p->depth; i++)
		used += names_size(&p->levels[i].names);
	if (used + 2 * NAMES_LEAST > NAMES_BUDGET)
		return NAMES_LEAST;
	return (NAMES_BUDGET - used) / 2;
}

/* Opens a level below the last one. Its first names are read before its member is written, for
 * a directory that turns out to be unreadable must not have been announced as a plain one. */
static int put_open_dir(struct pack *p, int dir, const char *name, size_t path_len,
			const struct stat *before, bool lent)
{
	_cleanup_fd_ int fd =
	    openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct level *l = p->depth < ARRAY_LEN(p->levels) ? &p->levels[p->depth] : NULL;
	struct names names = {0};
	struct tar_member m;
	struct stat st;
	bool too_deep = !l || path_len + 1 + PATH_SEGMENT_MAX > PATH_MEMBER_MAX;
	int r;

	if (fd < 0)
		return put_unopened(p, path_len, TAR_DIR, errno);
	r = names_read(&names, fd, NULL, too_deep ? 0 : names_limit(p));
	if (r == -ENOMEM) {
		names_done(&names);
		return r;
	}
	/* A renamed lower directory (redirect) has contents that are not in this layer. */
	if (r < 0 || fstat(fd, &st) < 0 || (too_deep && names.n) ||
	    (!p->base && has_mark(fd, "user.overlay.redirect", "trusted.overlay.redirect", '\0'))) {
		names_done(&names);
		return put_op(p, path_len, TAR_DIR, TAR_OP_UNREADABLE);
	}
	if (lent)
		st.st_mode = before->st_mode;
	m = member_of(p, path_len, TAR_DIR, &st);
	if (p->base ? p->look == DELTA_KIND
		    : has_mark(fd, "user.overlay.opaque", "trusted.overlay.opaque", 'y'))
		m.op = TAR_OP_OPAQUE;
	r = p->look == DELTA_SAME ? 0 : put_member(p, &m);
	/* An empty one has nothing to walk, unless something may have gone from it. */
	if (r < 0 || !l || (!names.n && !p->base)) {
		names_done(&names);
		return r;
	}
	*l = (struct level){.fd = TAKE_FD(fd),
			    .names = names,
			    .path_len = path_len,
			    .own_mode = before->st_mode,
			    .lent = lent};
	if (p->base)
		delta_enter(p->base, p->path, path_len, &l->base_at);
	p->depth++;
	return 0;
}

static int put_dir(struct pack *p, int dir, const char *name, size_t path_len,
		   const struct stat *before)
{
	bool lent = lend(p, path_len, before, S_IRUSR | S_IXUSR);
	size_t depth = p->depth;
	int r = put_open_dir(p, dir, name, path_len, before, lent);

	/* Otherwise close_level does it. */
	if (lent && p->depth == depth)
		(void)set_mode(p, path_len, before->st_mode);
	return r;
}

/*
 * An attempt on git's own files is announced by name, without bytes: the host refuses it, and a person
 * reads of it (S1-05). git itself writes none of these when it commits.
 */
static int put_attempt(struct pack *p, int dir, const char *in, const char *name)
{
	struct tar_member m = {.type = TAR_FILE, .target = {"", 0}, .mode = 0600};
	struct stat st;
	int n;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return 0;
	/* A whiteout only takes something away. */
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0))
		return 0;
	if (p->base && delta_older(p->base, &st))
		return 0;
	n = snprintf(p->path, sizeof(p->path), "%s%s", in, name);
	m.path = (struct view){p->path, (size_t)n};
	return put_member(p, &m);
}

static int put_hooks(struct pack *p, int git)
{
	static const char sample[] = ".sample"; /* git's own examples, which git never runs */
	_cleanup_fd_ int fd = openat(git, "hooks", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct names names = {0};
	int r = 0;

	if (fd < 0)
		return put_attempt(p, git, ".git/", "hooks"); /* a link, or nothing */
	/* One list's worth: who makes more hooks than that is seen anyway. */
	if (names_read(&names, fd, NULL, NAMES_LEAST) == 0)
		for (size_t i = 0; r == 0 && i < names.n; i++) {
			const char *name = names_get(&names, i);
			size_t n = strlen(name), k = sizeof(sample) - 1;

			if (n < k || strcmp(name + n - k, sample) != 0)
				r = put_attempt(p, fd, ".git/hooks/", name);
		}
	names_done(&names);
	return r;
}

static int put_git(struct pack *p, int dir)
{
	_cleanup_fd_ int git = openat(dir, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int info = -1;
	int r;

	if (git < 0)
		return put_attempt(p, dir, "", ".git"); /* a pointer elsewhere */
	r = put_attempt(p, git, ".git/", "config");
	if (r == 0)
		r = put_hooks(p, git);
	info = openat(git, "info", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r == 0 && info >= 0)
		r = put_attempt(p, info, ".git/info/", "attributes");
	return r;
}

/* Never travels: the host would refuse it anyway, and it may be large. */
static bool left_out(const struct pack *p, const char *name)
{
	return p->depth == 1 &&
	       (strcmp(name, ".git") == 0 || strcmp(name, ".airlock-staging") == 0);
}

/* Appends name to the level's path; the whole length. */
static size_t set_path(struct pack *p, const struct level *l, const char *name)
{
	size_t at = l->path_len, n = strlen(name);

	if (at)
		p->path[at++] = '/';
	memcpy(p->path + at, name, n + 1);
	return at + n;
}

/* What the index has in this directory before `until` (NULL: up to its end) and the tree has not. */
static int put_gone(struct pack *p, struct level *l, const char *until)
{
	struct view v;
	int r;

	while ((r = delta_before(p->base, &l->base_at, p->path, l->path_len, until, &v)) > 0) {
		const char *name = v.p + (l->path_len ? l->path_len + 1 : 0);
		struct stat st;

		/* There after all: made since the names were read, or found by another spelling. */
		if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
			continue;
		r = put_op(p, set_path(p, l, name), TAR_FILE, TAR_OP_DELETE);
		if (r < 0)
			return r;
	}
	return r;
}

/* Sets p->look, after what has gone before this name; p->path is the entry's. */
static int look(struct pack *p, struct level *l, const char *name, size_t path_len,
		const struct stat *st)
{
	int r;

	p->look = DELTA_SAME;
	if (delta_plainly_same(p->base, &l->base_at, p->path, path_len, st))
		return 0;
	r = put_gone(p, l, name);
	if (r < 0)
		return r;
	(void)set_path(p, l, name);
	r = delta_judge(p->base, &l->base_at, p->path, path_len, st, l->fd, name);
	if (r >= 0)
		p->look = (enum delta_look)r;
	return r < 0 ? r : 0;
}

static int put_entry(struct pack *p, struct level *l, const char *name)
{
	struct stat st;
	size_t at;
	int r;

	if (left_out(p, name)) {
		p->res->left_out++;
		return strcmp(name, ".git") == 0 && !p->plain ? put_git(p, l->fd) : 0;
	}
	at = set_path(p, l, name);
	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return put_unopened(p, at, TAR_FILE, errno);
	if (p->base) {
		r = look(p, l, name, at, &st);
		if (r < 0 || (p->look == DELTA_SAME && !S_ISDIR(st.st_mode)))
			return r;
	}
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		return put_file(p, l->fd, name, at, &st);
	case S_IFDIR:
		return put_dir(p, l->fd, name, at, &st);
	case S_IFLNK:
		return put_link(p, l->fd, name, at, &st);
	case S_IFCHR:
		if (!p->base && major(st.st_rdev) == 0 && minor(st.st_rdev) == 0)
			return put_op(p, at, TAR_FILE, TAR_OP_DELETE);
		return put_special(p, at, &st);
	default:
		return put_special(p, at, &st);
	}
}

/* The walk. --------------------------------------------------------------------------------- */

/* Next name of the last level, or NULL at its end. */
static int next_name(struct pack *p, struct level *l, const char **ret)
{
	char floor[PATH_SEGMENT_MAX + 1];
	int r;

	*ret = NULL;
	if (l->next == l->names.n && l->names.more) {
		(void)snprintf(floor, sizeof(floor), "%s", names_get(&l->names, l->next - 1));
		r = names_read(&l->names, l->fd, floor, names_limit(p));
		if (r < 0)
			return r;
		l->next = 0;
	}
	if (l->next < l->names.n)
		*ret = names_get(&l->names, l->next++);
	return 0;
}

static void close_level(struct pack *p)
{
	struct level *l = &p->levels[--p->depth];

	names_done(&l->names);
	(void)close(l->fd);
	if (l->lent)
		(void)set_mode(p, l->path_len, l->own_mode);
}

static int walk(struct pack *p)
{
	while (p->depth) {
		struct level *l = &p->levels[p->depth - 1];
		const char *name;
		int r = next_name(p, l, &name);

		if (r < 0)
			return r;
		if (!name) {
			r = p->base ? put_gone(p, l, NULL) : 0;
			close_level(p);
			if (r < 0)
				return r;
			continue;
		}
		r = put_entry(p, l, name);
		if (r < 0)
			return r;
	}
	return 0;
}

static int open_top(struct pack *p, int upper)
{
	_cleanup_fd_ int fd = -1;
	struct level *l = &p->levels[0];
	struct stat st, work;
	int r;

	if (fstat(upper, &st) < 0)
		return -errno;
	/* An overlay has a device of its own. */
	p->plain = !p->base && p->work >= 0 && fstat(p->work, &work) == 0 &&
		   work.st_dev == st.st_dev && work.st_ino == st.st_ino;
	l->own_mode = st.st_mode;
	l->lent = lend(p, 0, &st, S_IRUSR | S_IXUSR);
	fd = openat(upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = names_read(&l->names, fd, NULL, names_limit(p));
	if (r < 0)
		return r;
	l->fd = TAKE_FD(fd);
	if (p->base)
		delta_enter(p->base, "", 0, &l->base_at);
	p->depth = 1;
	return 0;
}

static int run(int tree, int work, int out, struct delta *base, struct pack_result *ret)
{
	struct pack *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->out = out;
	p->work = work;
	p->res = ret;
	p->base = base;
	p->look = DELTA_NEW;
	buf_init(&p->stream, STREAM_MAX);
	r = open_top(p, tree);
	if (r == 0)
		r = walk(p);
	while (p->depth)
		close_level(p);
	if (r == 0)
		r = tar_put_end(&p->stream);
	if (r == 0)
		r = flush(p);
	names_done(&p->levels[0].names);
	buf_done(&p->stream);
	free(p);
	return r;
}

int pack_write(int upper, int work, int out, struct pack_result *ret)
{
	return run(upper, work, out, NULL, ret);
}

int delta_write(struct delta *d, int tree, int out, struct pack_result *ret)
{
	return run(tree, tree, out, d, ret);
}
