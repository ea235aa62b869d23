#include "sync/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MEM_MAX (128 << 10) /* bytes kept in memory; above: one write each */
#define WINDOW (32 << 10)   /* of the file, for who reads on */
#define LITTLE 512	    /* beyond what was asked, for who does not */

struct spool_window {
	uint64_t at;
	size_t len;
	char data[WINDOW + LITTLE];
};

void spool_init(struct spool *s, int dir, uint64_t max)
{
	*s = (struct spool){.dir = dir, .fd = -1, .max = max};
}

void spool_done(struct spool *s)
{
	cleanup_fd(&s->fd);
	free(s->mem);
	free(s->win);
	spool_init(s, s->dir, s->max);
}

uint64_t spool_len(const struct spool *s)
{
	return s->flushed + s->mem_len;
}

int spool_nameless(int dir)
{
	int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char name[32];

	if (fd >= 0)
		return fd;
	/* No O_TMPFILE on this file system: the directory is ours alone, any free name will do. */
	for (unsigned i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof(name), "spool.%u", i);
		fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd >= 0 && unlinkat(dir, name, 0) == 0)
			return fd;
		if (fd >= 0 || errno != EEXIST)
			break;
	}
	cleanup_fd(&fd);
	return -errno;
}

static long read_at(int fd, char *p, size_t n, uint64_t off)
{
	ssize_t k;

	do {
		k = pread(fd, p, n, (off_t)off);
	} while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : k == 0 ? -EIO : k;
}

static int flush(struct spool *s)
{
	size_t off = 0;
	int r = 0;

	if (s->fd < 0) {
		r = spool_nameless(s->dir);
		s->fd = r < 0 ? -1 : r;
		r = r < 0 ? r : 0;
	}
	if (!s->win)
		s->win = calloc(1, sizeof(*s->win)); /* without one it is slower, no worse */

	while (r == 0 && off < s->mem_len) {
		ssize_t k =
		    pwrite(s->fd, s->mem + off, s->mem_len - off, (off_t)(s->flushed + off));

		if (k > 0)
			off += (size_t)k;
		else if (k == 0 || errno != EINTR)
			r = k == 0 ? -EIO : -errno;
	}
	if (r == 0) {
		s->flushed += s->mem_len;
		s->mem_len = 0;
	}
	return r;
}

int spool_put(struct spool *s, const void *p, size_t n)
{
	if (n > s->max || spool_len(s) > s->max - n)
		return -E2BIG;
	if (s->mem_len + n > MEM_MAX && s->mem_len) {
		int r = flush(s);

		if (r < 0)
			return r;
	}
	if (s->mem_len + n > s->mem_cap) {
		size_t cap = s->mem_cap ? s->mem_cap : 4096;
		char *m;

		while (cap < s->mem_len + n)
			cap *= 2;
		m = realloc(s->mem, cap);
		if (!m)
			return -ENOMEM;
		s->mem = m;
		s->mem_cap = cap;
	}
	memcpy(s->mem + s->mem_len, p, n);
	s->mem_len += n;
	return 0;
}

/* Bytes of the file at off: how many, at least one; errno. */
static long read_file(const struct spool *s, uint64_t off, char *p, size_t n)
{
	struct spool_window *w = s->win;
	size_t want = n > s->flushed - off ? (size_t)(s->flushed - off) : n;

	if (!w || want >= WINDOW)
		return read_at(s->fd, p, want, off);
	/* What only begins in it is read anew from there: who asks for more than a record comes back for the next one. */
	if (off < w->at || off - w->at >= w->len || want > w->len - (size_t)(off - w->at)) {
		/* A bisection jumps about and wants no more than it asked for. */
		bool on = w->len && off >= w->at && off - w->at < 2 * WINDOW;
		long k = read_at(s->fd, w->data, on ? WINDOW : want + LITTLE, off);

		w->at = off;
		w->len = k < 0 ? 0 : (size_t)k;
		if (k < 0)
			return k;
	}
	if (want > w->len - (size_t)(off - w->at))
		want = w->len - (size_t)(off - w->at);
	memcpy(p, w->data + (off - w->at), want);
	return (long)want;
}

long spool_get(const struct spool *s, uint64_t off, void *p, size_t n)
{
	size_t got = 0;

	while (got < n && off + got < s->flushed) {
		long k = read_file(s, off + got, (char *)p + got, n - got);

		if (k < 0)
			return k;
		got += (size_t)k;
	}
	if (got < n && off + got >= s->flushed && off + got < spool_len(s)) {
		size_t at = (size_t)(off + got - s->flushed), want = n - got;

		if (want > s->mem_len - at)
			want = s->mem_len - at;
		memcpy((char *)p + got, s->mem + at, want);
		got += want;
	}
	return (long)got;
}
