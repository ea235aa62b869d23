#include "wire/layerfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define MAGIC "airlock-layer 1\n"
#define MAGIC_LEN (sizeof(MAGIC) - 1)
#define LAST_LEN (MAGIC_LEN + 16)
#define ENTRY_LEN (MANIFEST_HASH + 16)
#define PIECE 1024 /* entries written at once */

struct layerfile {
	void *map; /* from a page's beginning to the end of the file */
	size_t map_len;
	const uint8_t *index;
	uint64_t count, end; /* end: of the contents */
};

/* Writing. ------------------------------------------------------------------------------------ */

static int order(const void *a, const void *b)
{
	return memcmp(((const struct layerfile_entry *)a)->hash,
		      ((const struct layerfile_entry *)b)->hash, MANIFEST_HASH);
}

static int put(int fd, const struct buf *b, uint64_t *at)
{
	int r = b->err ? b->err : fd_write_at(fd, b->data, b->len, *at);

	*at += b->len;
	return r;
}

int layerfile_finish(int fd, uint64_t end, struct layerfile_entry *entries, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)PIECE * ENTRY_LEN + LAST_LEN);
	uint64_t at = end;
	int r = 0;

	if (n)
		qsort(entries, n, sizeof(*entries), order);
	for (size_t i = 0; i < n && r == 0; i++) {
		(void)buf_put(&b, entries[i].hash, MANIFEST_HASH);
		(void)buf_u64(&b, entries[i].at);
		(void)buf_u64(&b, entries[i].size);
		if ((i + 1) % PIECE == 0) {
			r = put(fd, &b, &at);
			buf_reset(&b);
		}
	}
	(void)buf_puts(&b, MAGIC);
	(void)buf_u64(&b, n);
	(void)buf_u64(&b, end);
	return r < 0 ? r : put(fd, &b, &at);
}

/* Reading. ------------------------------------------------------------------------------------ */

static int broken(struct err *e)
{
	return err_set(e, ERR_PROTOCOL,
		       "a layer of the base is not whole: remove it with 'airlock prune'");
}

static int map_index(int fd, uint64_t size, struct layerfile *l, struct err *e)
{
	uint64_t from = l->end & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);

	l->map_len = (size_t)(size - from);
	l->map = mmap(NULL, l->map_len, PROT_READ, MAP_PRIVATE, fd, (off_t)from);
	if (l->map == MAP_FAILED) {
		l->map = NULL;
		return err_sys(e, errno, "read a layer of the base");
	}
	l->index = (const uint8_t *)l->map + (l->end - from);
	return 0;
}

static int open_at(int fd, struct layerfile *l, struct err *e)
{
	uint8_t last[LAST_LEN];
	struct cursor c;
	struct stat st;
	uint64_t size, room;

	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "read a layer of the base");
	size = (uint64_t)st.st_size;
	if (!S_ISREG(st.st_mode) || size < LAST_LEN ||
	    pread(fd, last, LAST_LEN, (off_t)(size - LAST_LEN)) != LAST_LEN ||
	    memcmp(last, MAGIC, MAGIC_LEN) != 0)
		return broken(e);
	cursor_init(&c, last + MAGIC_LEN, LAST_LEN - MAGIC_LEN);
	l->count = cursor_u64(&c);
	l->end = cursor_u64(&c);
	room = size - LAST_LEN;
	if (l->end > room || (room - l->end) % ENTRY_LEN != 0 ||
	    (room - l->end) / ENTRY_LEN != l->count)
		return broken(e);
	return map_index(fd, size, l, e);
}

int layerfile_open(int fd, struct layerfile **ret, struct err *e)
{
	struct layerfile *l = calloc(1, sizeof(*l));
	int r = l ? open_at(fd, l, e) : err_sys(e, ENOMEM, "read a layer of the base");

	if (r < 0)
		layerfile_free(l);
	else
		*ret = l;
	return r;
}

void layerfile_free(struct layerfile *l)
{
	if (l && l->map)
		(void)munmap(l->map, l->map_len);
	free(l);
}

int layerfile_find(const struct layerfile *l, const struct manifest_entry *m, uint64_t *ret_at)
{
	uint64_t from = 0, to = l->count, at, size;
	struct cursor c;

	while (from < to) {
		uint64_t mid = from + (to - from) / 2;
		const uint8_t *p = l->index + mid * ENTRY_LEN;
		int k = memcmp(p, m->hash, MANIFEST_HASH);

		if (k < 0)
			from = mid + 1;
		else if (k > 0)
			to = mid;
		else {
			cursor_init(&c, p + MANIFEST_HASH, 16);
			at = cursor_u64(&c);
			size = cursor_u64(&c);
			*ret_at = at;
			return size == m->size && at <= l->end && size <= l->end - at;
		}
	}
	return 0;
}
