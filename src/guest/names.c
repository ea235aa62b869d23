#include "guest/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

struct dent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* One reading of a directory. */
struct pass {
	struct names *l;
	const char *floor;
	size_t limit;
	bool bounded;
	char bound[PATH_SEGMENT_MAX + 1]; /* names from here on wait for a later pass */
};

void names_done(struct names *l)
{
	free(l->data);
	free(l->at);
	*l = (struct names){0};
}

size_t names_size(const struct names *l)
{
	return l->cap + l->slots * sizeof(*l->at);
}

static int compare(const void *a, const void *b, void *data)
{
	const char *base = data;

	return strcmp(base + *(const uint32_t *)a, base + *(const uint32_t *)b);
}

static void sort(struct names *l)
{
	if (l->n)
		qsort_r(l->at, l->n, sizeof(*l->at), compare, l->data);
}

/* Grows by doubling, but never past what the limit can need. */
static int reserve(struct names *l, size_t bytes, size_t limit)
{
	if (l->len + bytes > l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 1024;
		char *p;

		if (cap > limit + PATH_SEGMENT_MAX + 1)
			cap = limit + PATH_SEGMENT_MAX + 1;
		p = realloc(l->data, cap);
		if (!p)
			return -ENOMEM;
		l->data = p;
		l->cap = cap;
	}
	if (l->n == l->slots) {
		size_t slots = l->slots ? l->slots * 2 : 64;
		uint32_t *p = realloc(l->at, slots * sizeof(*p));

		if (!p)
			return -ENOMEM;
		l->at = p;
		l->slots = slots;
	}
	return 0;
}

/* Over the limit: the upper half of the names waits for a later pass. */
static void drop_upper_half(struct pass *p)
{
	struct names *l = p->l;
	size_t to = 0, n = 0;

	sort(l);
	(void)snprintf(p->bound, sizeof(p->bound), "%s", names_get(l, l->n / 2));
	p->bounded = l->more = true;
	for (size_t from = 0; from < l->len;) {
		size_t bytes = strlen(l->data + from) + 1;

		if (strcmp(l->data + from, p->bound) < 0) {
			memmove(l->data + to, l->data + from, bytes);
			l->at[n++] = (uint32_t)to;
			to += bytes;
		}
		from += bytes;
	}
	l->len = to;
	l->n = n;
}

static int add(struct pass *p, const char *name)
{
	struct names *l = p->l;
	size_t bytes = strlen(name) + 1;
	int r;

	if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
		return 0;
	/* Linux has no longer ones outside FUSE; the host could not take it either. */
	if (bytes > sizeof(p->bound))
		return -ENAMETOOLONG;
	if (p->floor && strcmp(name, p->floor) <= 0)
		return 0;
	if (p->bounded && strcmp(name, p->bound) >= 0)
		return 0;
	r = reserve(l, bytes, p->limit);
	if (r < 0)
		return r;
	memcpy(l->data + l->len, name, bytes);
	l->at[l->n++] = (uint32_t)l->len;
	l->len += bytes;
	if (l->len + l->n * sizeof(*l->at) > p->limit && l->n > 1)
		drop_upper_half(p);
	return 0;
}

int names_read(struct names *l, int fd, const char *floor, size_t limit)
{
	_Alignas(struct dent) char buf[16384];
	struct pass p = {.l = l, .floor = floor, .limit = limit < 4096 ? 4096 : limit};
	long n;
	int r;

	l->len = l->n = 0;
	l->more = false;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	while ((n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0)
		for (long at = 0; at < n;) {
			struct dent *d = (struct dent *)(void *)(buf + at);

			at += d->reclen;
			r = add(&p, d->name);
			if (r < 0)
				return r;
		}
	if (n < 0)
		return -errno;
	sort(l);
	return 0;
}
