#include "wire/runlog.h"

#include <errno.h>
#include <stdbool.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/cursor.h"

static void put_le(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void give_back(struct runlog *l)
{
	if (l->error != ENOSPC && l->error != EDQUOT)
		return;
	l->full = true;
	if (l->reserve_fd >= 0)
		(void)close(l->reserve_fd);
	l->reserve_fd = -1;
}

/* The nameless file goes away with us, however we end. */
static void reserve(struct runlog *l, const char *path)
{
	_cleanup_free_ char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!slash)
		return;
	*slash = '\0';
	l->reserve_fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (l->reserve_fd >= 0 && fallocate(l->reserve_fd, 0, 0, RUNLOG_RESERVE) < 0) {
		(void)close(l->reserve_fd);
		l->reserve_fd = -1;
	}
}

/* Whole record or nothing: a short write is cut off again, so that the next one is not garbage. */
static bool append(struct runlog *l, enum runlog_stream s, int64_t time_ns, const void *p, size_t n)
{
	uint8_t h[RUNLOG_RECORD] = {(uint8_t)s};
	struct iovec v[2] = {{h, sizeof(h)}, {(void *)(uintptr_t)p, n}};
	ssize_t k;

	if (!l->headed) {
		k = pwrite(l->fd, RUNLOG_MAGIC, RUNLOG_HEAD, 0);
		if (k != RUNLOG_HEAD) {
			l->error = k < 0 ? errno : ENOSPC;
			return false;
		}
		l->headed = true;
	}
	put_le(h + 4, n, 4);
	put_le(h + 8, (uint64_t)time_ns, 8);
	do {
		k = pwritev(l->fd, v, n ? 2 : 1, (off_t)l->end);
	} while (k < 0 && errno == EINTR);
	if (k == (ssize_t)(sizeof(h) + n)) {
		l->end += (uint64_t)k;
		return true;
	}
	/* A short write does not say why; the next byte does. What it may leave is cut off below. */
	if (k >= 0 && pwrite(l->fd, "", 1, (off_t)l->end + k) >= 0)
		errno = EIO;
	l->error = errno;
	give_back(l);
	if (k >= 0 && ftruncate(l->fd, (off_t)l->end) < 0)
		l->error = errno;
	return false;
}

static bool mark_pending(struct runlog *l, int64_t time_ns)
{
	uint8_t b[8];

	if (!l->pending)
		return true;
	put_le(b, l->pending, 8);
	if (!append(l, RUNLOG_DROPPED, time_ns, b, sizeof(b)))
		return false;
	l->pending = 0;
	return true;
}

static void drop(struct runlog *l, size_t n)
{
	l->dropped += n;
	l->pending += n;
}

int runlog_create(struct runlog *l, const char *path, uint64_t limit, struct err *e)
{
	*l = (struct runlog){.fd = -1, .limit = limit, .reserve_fd = -1};
	l->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (l->fd < 0)
		return err_sys(e, errno, "create the run log %s", path);
	l->end = RUNLOG_HEAD;
	/* A full disk at this point is not an error either: the next append tries again. */
	reserve(l, path);
	l->headed = pwrite(l->fd, RUNLOG_MAGIC, RUNLOG_HEAD, 0) == RUNLOG_HEAD;
	if (!l->headed)
		l->error = errno ? errno : ENOSPC;
	return 0;
}

int runlog_append(struct runlog *l, const char *path, struct err *e)
{
	struct runlog_reader rd;
	struct runlog_record rec;
	int r;

	*l = (struct runlog){.fd = -1, .reserve_fd = -1};
	l->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (l->fd < 0)
		return err_sys(e, errno, "open the run log %s", path);
	runlog_reader_init(&rd, l->fd, 0);
	while ((r = runlog_next(&rd, &rec, e)) > 0)
		continue;
	l->headed = rd.offset >= RUNLOG_HEAD;
	l->end = l->headed ? rd.offset : RUNLOG_HEAD;
	runlog_reader_done(&rd);
	if (r == 0 && l->headed && ftruncate(l->fd, (off_t)l->end) < 0)
		r = err_sys(e, errno, "cut the torn end of the run log %s", path);
	if (r < 0)
		runlog_close(l);
	return r;
}

void runlog_write(struct runlog *l, enum runlog_stream s, int64_t time_ns, const void *p, size_t n)
{
	const uint8_t *b = p;

	while (l->fd >= 0 && n) {
		size_t k = n > RUNLOG_RECORD_MAX ? RUNLOG_RECORD_MAX : n;

		if (l->limit && (l->payload >= l->limit || k > l->limit - l->payload)) {
			/* Fill up to the limit, so that the head that is kept is exactly that long. */
			uint64_t room = l->payload < l->limit ? l->limit - l->payload : 0;

			if (room && !l->pending && append(l, s, time_ns, b, (size_t)room)) {
				l->payload += room;
				b += room;
				n -= (size_t)room;
			}
			drop(l, n);
			return;
		}
		if (!l->full && mark_pending(l, time_ns) && append(l, s, time_ns, b, k))
			l->payload += k;
		else
			drop(l, k);
		b += k;
		n -= k;
	}
}

void runlog_note(struct runlog *l, int64_t time_ns, const char *text)
{
	size_t n = strlen(text);

	if (l->fd < 0)
		return;
	if (mark_pending(l, time_ns))
		(void)append(l, RUNLOG_NOTE, time_ns, text,
			     n > RUNLOG_RECORD_MAX ? RUNLOG_RECORD_MAX : n);
}

void runlog_end(struct runlog *l, int64_t time_ns, uint32_t exit_status)
{
	uint8_t b[4];

	if (l->fd < 0)
		return;
	put_le(b, exit_status, 4);
	(void)mark_pending(l, time_ns);
	(void)append(l, RUNLOG_END, time_ns, b, sizeof(b));
}

void runlog_close(struct runlog *l)
{
	if (l->fd >= 0)
		(void)close(l->fd);
	l->fd = -1;
	if (l->reserve_fd >= 0)
		(void)close(l->reserve_fd);
	l->reserve_fd = -1;
}

void runlog_reader_init(struct runlog_reader *r, int fd, uint64_t offset)
{
	*r = (struct runlog_reader){.fd = fd, .offset = offset};
}

void runlog_reader_done(struct runlog_reader *r)
{
	free(r->buf);
	r->buf = NULL;
	r->cap = 0;
}

/* Bytes read at off: n, or fewer at the end of the file; negative errno. */
static ssize_t read_at(int fd, void *to, size_t n, uint64_t off)
{
	size_t got = 0;

	while (got < n) {
		ssize_t k = pread(fd, (uint8_t *)to + got, n - got, (off_t)(off + got));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		got += (size_t)k;
	}
	return (ssize_t)got;
}

static int check_head(struct runlog_reader *r, struct err *e)
{
	char head[RUNLOG_HEAD];
	ssize_t k = read_at(r->fd, head, sizeof(head), 0);

	if (k < 0)
		return err_sys(e, (int)-k, "read run log");
	if (memcmp(head, RUNLOG_MAGIC, (size_t)k) != 0)
		return err_set(e, ERR_PROTOCOL, "this file is not a run log");
	if (k < RUNLOG_HEAD)
		return 0;
	r->offset = RUNLOG_HEAD;
	return 1;
}

static int shrunk(struct runlog_reader *r, struct err *e)
{
	struct stat st;

	if (fstat(r->fd, &st) < 0)
		return err_sys(e, errno, "stat run log");
	if ((uint64_t)st.st_size >= r->offset)
		return 0;
	(void)err_set(e, ERR_CONFLICT,
		      "the run log became shorter (%lld bytes) than what was read of it (%llu)",
		      (long long)st.st_size, (unsigned long long)r->offset);
	return -ESTALE;
}

int runlog_next(struct runlog_reader *r, struct runlog_record *ret, struct err *e)
{
	uint8_t h[RUNLOG_RECORD];
	struct cursor c;
	uint32_t zero, n;
	uint8_t stream;
	ssize_t k;

	if (r->offset < RUNLOG_HEAD) {
		int g = check_head(r, e);

		if (g <= 0)
			return g;
	}
	k = read_at(r->fd, h, sizeof(h), r->offset);
	if (k < 0)
		return err_sys(e, (int)-k, "read run log");
	if (k < RUNLOG_RECORD)
		return k == 0 ? shrunk(r, e) : 0;
	cursor_init(&c, h, sizeof(h));
	stream = cursor_u8(&c);
	zero = cursor_u8(&c);
	zero |= cursor_u8(&c);
	zero |= cursor_u8(&c);
	n = cursor_u32(&c);
	if (stream < RUNLOG_OUT || stream > RUNLOG_END || zero || n > RUNLOG_RECORD_MAX)
		return err_set(e, ERR_PROTOCOL, "the run log is damaged at offset %llu",
			       (unsigned long long)r->offset);
	if (n > r->cap) {
		uint8_t *p = realloc(r->buf, n);

		if (!p)
			return err_set(e, ERR_NOMEM, "read run log: out of memory");
		r->buf = p;
		r->cap = n;
	}
	k = read_at(r->fd, r->buf, n, r->offset + RUNLOG_RECORD);
	if (k < 0)
		return err_sys(e, (int)-k, "read run log");
	if (k < (ssize_t)n)
		return 0;
	*ret = (struct runlog_record){stream, (int64_t)cursor_u64(&c), n, r->buf};
	r->offset += RUNLOG_RECORD + n;
	return 1;
}
