#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/pack_internal.h"

#define FLUSH_AT 131072 /* bytes of stream that are collected before a write */
#define CHUNK 65536
#define TRIES 3	       /* of a file that changes while it is read */
#define PIECES_MAX 256 /* of a file with holes; with more it goes as a plain file */
/* struct open_how, openat2(2); the guest is built without the kernel's headers */
struct how {
	uint64_t flags, mode, resolve;
};
#define BENEATH 0x0e /* RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS */

/* The stream. ------------------------------------------------------------------------------- */

/* After a failed write: true to try again. */
static bool try_again(const struct pack *p)
{
	struct pollfd w = {.fd = p->out, .events = POLLOUT};

	if (errno == EAGAIN)
		(void)poll(&w, 1, -1);
	return errno == EAGAIN || errno == EINTR;
}

int pack_flush(struct pack *p)
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
		size_t k = n < CHUNK ? (size_t)n : CHUNK;
		char *to = buf_room(&p->stream, k);
		int r;

		if (!to)
			return p->stream.err;
		memset(to, 0, k);
		buf_add(&p->stream, k);
		n -= k;
		r = p->stream.len >= FLUSH_AT ? pack_flush(p) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* A sum of the bytes that were read, to see whether a second look finds the same. No control: who lies is inside. */
static void mix(uint64_t *sum, const char *data, size_t n)
{
	uint64_t h = *sum, w;

	for (; n >= sizeof(w); data += sizeof(w), n -= sizeof(w)) {
		memcpy(&w, data, sizeof(w));
		h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 32;
	}
	for (; n; data++, n--)
		h = (h ^ (uint8_t)*data) * UINT64_C(0x100000001b3);
	*sum = h ^ h >> 29;
}

/* Fills `to` as far as the file goes. How much, or negative errno. */
static ssize_t read_chunk(int fd, char *to, size_t n)
{
	size_t at = 0;

	while (at < n) {
		ssize_t k = read(fd, to + at, n - at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		at += (size_t)k;
	}
	return (ssize_t)at;
}

/*
 * Exactly size bytes, whatever happens to the file meanwhile: the header has promised them. 1 if some of
 * them are no bytes of the file, errno. Copied and not spliced: pages on their way through a pipe still change
 * with the file, after every look at it.
 */
static int put_bytes(struct pack *p, int fd, uint64_t size)
{
	uint64_t left = size;

	while (left) {
		size_t k = left < CHUNK ? (size_t)left : CHUNK;
		char *to = buf_room(&p->stream, k);
		ssize_t n;
		int r;

		if (!to)
			return p->stream.err;
		n = read_chunk(fd, to, k);
		if (n <= 0) /* an error of the file shows in the stream as lost bytes */
			break;
		mix(&p->sum, to, (size_t)n);
		buf_add(&p->stream, (size_t)n);
		left -= (uint64_t)n;
		r = p->stream.len >= FLUSH_AT ? pack_flush(p) : 0;
		if (r < 0)
			return r;
		if ((size_t)n < k)
			break;
	}
	if (left) {
		int r = put_zeros(p, left);

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

struct tar_member pack_member_of(const struct pack *p, size_t path_len, enum tar_type type,
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

int pack_put_member(struct pack *p, const struct tar_member *m)
{
	int r = p->stream.len >= FLUSH_AT ? pack_flush(p) : 0;

	if (r == 0)
		r = tar_put_header(&p->stream, m);
	if (r == 0)
		p->res->members++;
	return r;
}

int pack_put_op(struct pack *p, size_t path_len, enum tar_type type, enum tar_op op)
{
	struct tar_member m = {
	    .type = type, .op = op, .path = {p->path, path_len}, .target = {"", 0}, .mode = 0600};

	if (op == TAR_OP_UNREADABLE)
		p->res->unreadable++;
	return pack_put_member(p, &m);
}

int pack_put_unopened(struct pack *p, size_t path_len, enum tar_type type, int error)
{
	return error == ENOENT ? 0 : pack_put_op(p, path_len, type, TAR_OP_UNREADABLE);
}

bool pack_has_mark(int fd, const char *user, const char *trusted, char value)
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

int pack_put_special(struct pack *p, size_t path_len, const struct stat *st)
{
	struct tar_member m = pack_member_of(p, path_len, TAR_SPECIAL, st);

	/* tar has no letter for a socket. */
	m.typeflag = S_ISCHR(st->st_mode) ? '3' : S_ISBLK(st->st_mode) ? '4' : '6';
	return pack_put_member(p, &m);
}

bool pack_set_mode(struct pack *p, size_t path_len, mode_t mode)
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

bool pack_lend(struct pack *p, size_t path_len, const struct stat *st, mode_t need)
{
	return (st->st_mode & need) != need && pack_set_mode(p, path_len, st->st_mode | need);
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
	int r = p->stream.len >= FLUSH_AT ? pack_flush(p) : 0;

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

/* One file's content, and how it was read. */
struct content {
	struct tar_extent v[PIECES_MAX];
	size_t n; /* pieces; 0: a plain file */
	struct stat st;
	bool
	    fresh; /* it was written in this tick of the clock that stamps files: another write would not show */
};

static int put_content(struct pack *p, int fd, const struct tar_member *m, struct content *c)
{
	int r;

	p->sum = 0;
	c->n = 0;
	if (m->size > CHUNK && (uint64_t)c->st.st_blocks * 512 < m->size)
		c->n = find_pieces(fd, m->size, c->v);
	if (c->n)
		return put_sparse(p, fd, m, c->v, c->n);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	r = pack_put_member(p, m);
	return r < 0 ? r : put_body(p, fd, m->size);
}

static int look(int fd, struct content *c)
{
	struct timespec now;

	if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0 || fstat(fd, &c->st) < 0 ||
	    !S_ISREG(c->st.st_mode))
		return -EINVAL;
	c->fresh = c->st.st_ctim.tv_sec > now.tv_sec ||
		   (c->st.st_ctim.tv_sec == now.tv_sec && c->st.st_ctim.tv_nsec >= now.tv_nsec);
	return 0;
}

/* The sum of what is there now, where the pieces of before are. false: it is shorter, or cannot be read. */
static bool sum_again(struct pack *p, int fd, const struct content *c, uint64_t size, uint64_t *ret)
{
	const struct tar_extent whole = {0, size}, *v = c->n ? c->v : &whole;
	size_t n = c->n ? c->n : 1;
	char *part = buf_room(&p->stream, CHUNK); /* not added to it */

	*ret = 0;
	for (size_t i = 0; i < n; i++) {
		if (!part || lseek(fd, (off_t)v[i].off, SEEK_SET) < 0)
			return false;
		for (uint64_t left = v[i].len; left;) {
			size_t k = left < CHUNK ? (size_t)left : CHUNK;

			if (read_chunk(fd, part, k) != (ssize_t)k)
				return false;
			mix(ret, part, k);
			left -= k;
		}
	}
	return true;
}

static bool same_pieces(int fd, const struct content *c, uint64_t size)
{
	struct tar_extent now[PIECES_MAX];
	size_t n = c->n ? find_pieces(fd, size, now) : 0;

	return n == c->n && memcmp(now, c->v, n * sizeof(*now)) == 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/*
 * Were the bytes that went out ever in the file at one moment? Its stamps say that nothing touched it; or a second
 * look at the same bytes finds them all again, and so they were there in between: a log that only grows passes, one
 * that was cut and filled again while it was read does not. What goes through a writable mapping shows in neither.
 */
static bool steady(struct pack *p, int fd, const struct content *c, uint64_t size)
{
	struct stat st;
	uint64_t again;

	if (!c->fresh && fstat(fd, &st) == 0 && st.st_size == c->st.st_size &&
	    same_time(&st.st_mtim, &c->st.st_mtim) && same_time(&st.st_ctim, &c->st.st_ctim))
		return true;
	return sum_again(p, fd, c, size, &again) && again == p->sum && same_pieces(fd, c, size);
}

/* As often as it takes to get bytes of one moment, TRIES at most: the last member of a path is the one that counts. */
static int put_steady(struct pack *p, int fd, size_t path_len, struct content *c)
{
	for (int i = 0; i < TRIES; i++) {
		struct tar_member m = pack_member_of(p, path_len, TAR_FILE, &c->st);
		int r;

		m.size = (uint64_t)c->st.st_size;
		r = put_content(p, fd, &m, c);
		if (r < 0 || (r == 0 && steady(p, fd, c, m.size)))
			return r;
		p->res->shrunk += r > 0;
		if (look(fd, c) < 0)
			break;
	}
	/* Neither the old bytes nor the new: the host must not take what it got for a state of the file. */
	return pack_put_op(p, path_len, TAR_FILE, TAR_OP_UNREADABLE);
}

int pack_put_file(struct pack *p, int dir, const char *name, size_t path_len,
		  const struct stat *before)
{
	bool lent = pack_lend(p, path_len, before, S_IRUSR);
	/* Non-blocking: the name may be a FIFO by now. */
	_cleanup_fd_ int fd =
	    openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	int error = errno;
	struct content c;

	if (lent)
		(void)pack_set_mode(p, path_len, before->st_mode);

	if (fd < 0)
		return pack_put_unopened(p, path_len, TAR_FILE, error);
	if (look(fd, &c) < 0)
		return pack_put_op(p, path_len, TAR_FILE, TAR_OP_UNREADABLE);
	if (!p->base && c.st.st_size == 0 &&
	    pack_has_mark(fd, "user.overlay.whiteout", "trusted.overlay.whiteout", '\0'))
		return pack_put_op(p, path_len, TAR_FILE, TAR_OP_DELETE);
	return put_steady(p, fd, path_len, &c);
}

int pack_put_link(struct pack *p, int dir, const char *name, size_t path_len, const struct stat *st)
{
	struct tar_member m = pack_member_of(p, path_len, TAR_SYMLINK, st);
	char target[LINK_TARGET_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, sizeof(target));

	if (n <= 0 || n > LINK_TARGET_MAX)
		return pack_put_unopened(p, path_len, TAR_FILE, n < 0 ? errno : EINVAL);
	m.target = (struct view){target, (size_t)n};
	return pack_put_member(p, &m);
}
