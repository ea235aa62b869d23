#include "sync/listing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "sync/unpack_proto.h"

#define NAMES_MAX (UINT64_C(1) << 30) /* bytes of names in one directory */

struct kernel_dirent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

static bool is_name(const char *name, size_t len, const char *want, size_t n)
{
	return len == n && memcmp(name, want, n) == 0;
}

static int add_name(struct listing *l, const struct kernel_dirent *d)
{
	size_t len = strlen(d->name);
	char *to;

	if (d->name[0] == '.') {
		if (is_name(d->name, len, ".", 1) || is_name(d->name, len, "..", 2))
			return 0;
		if (is_name(d->name, len, ".git", 4)) {
			l->has_git = true;
			return 0;
		}
		/* Old versions that wait for their trash are no part of the workspace, and are private. */
		if (strcmp(d->name, STAGING_TOP) == 0)
			return 0;
		if (is_name(d->name, len, ".gitignore", 10) ||
		    is_name(d->name, len, ".airlockignore", 14))
			l->has_rules = true;
	}
	l->n++;
	to = buf_room(&l->names, len + 3);
	if (!to)
		return l->names.err;
	to[0] = (char)d->type;
	memcpy(to + 1, d->name, len);
	to[len + 1] = '/';
	to[len + 2] = '\0';
	buf_add(&l->names, len + 3);
	return 0;
}

static int read_names(int fd, char *piece, size_t max, struct listing *l)
{
	for (;;) {
		long got = syscall(SYS_getdents64, fd, piece, LISTING_PIECE);

		if (got < 0)
			return -errno;
		if (got == 0)
			return 0;
		for (long at = 0; at < got;) {
			const struct kernel_dirent *d =
			    (const struct kernel_dirent *)(const void *)(piece + at);
			int r = add_name(l, d);

			if (r < 0)
				return r;
			at += d->reclen;
		}
		if (l->n > max)
			return -EFBIG;
	}
}

static int by_name(const void *a, const void *b)
{
	const struct listing_item *x = a, *y = b;
	size_t n = x->len < y->len ? x->len : y->len;
	int r = memcmp(x->name, y->name, n);

	return r ? r : (x->len > y->len) - (x->len < y->len);
}

/* d_type may be unknown on old file systems; then the stat says it. */
static uint8_t sure_type(int fd, const char *rec, size_t len)
{
	char name[PATH_SEGMENT_MAX + 1];
	struct stat st;

	if ((uint8_t)rec[0] != 0 || len > PATH_SEGMENT_MAX)
		return (uint8_t)rec[0];
	memcpy(name, rec + 1, len);
	name[len] = '\0';
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (uint8_t)(st.st_mode >> 12 & 017);
}

int listing_read(int fd, char *piece, size_t max, struct listing *l)
{
	size_t count, k = 0, len;
	const char *p;
	int r;

	*l = (struct listing){.names = BUF_INIT(NAMES_MAX)};
	r = read_names(fd, piece, max, l);
	if (r < 0)
		return r;
	count = l->n;
	l->n = 0;
	l->items = calloc(2 * count + 1, sizeof(*l->items));
	l->dirs = calloc(count + 1, sizeof(*l->dirs));
	if (!l->items || !l->dirs)
		return -ENOMEM;
	p = l->names.data;
	for (size_t i = 0; i < count; i++, p += len + 3) {
		struct listing_dir *d = NULL;
		uint8_t type;

		len = strlen(p + 1) - 1;
		type = sure_type(fd, p, len);
		if (type == DT_DIR) {
			d = &l->dirs[l->dirs_n++];
			d->fd = -1;
			l->items[k++] =
			    (struct listing_item){p + 1, (uint32_t)len + 1, true, type, d};
		}
		l->items[k++] = (struct listing_item){p + 1, (uint32_t)len, false, type, d};
	}
	l->n = k;
	if (l->n)
		qsort(l->items, l->n, sizeof(*l->items), by_name);
	return 0;
}

static int64_t ns_of(struct statx_timestamp t)
{
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

void listing_from_statx(const struct statx *st, struct listing_stat *ret)
{
	*ret = (struct listing_stat){
	    .size = st->stx_size,
	    .ino = st->stx_ino,
	    .mtime_ns = ns_of(st->stx_mtime),
	    .ctime_ns = ns_of(st->stx_ctime),
	    .mode = st->stx_mode,
	};
}

void listing_stat_one(int fd, const char *name, struct listing_stat *ret)
{
	struct statx st;

	/* Not AT_STATX_DONT_SYNC: on NFS a file changed elsewhere would pass for unchanged. */
	if (statx(fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, LISTING_STAT_MASK, &st) < 0)
		*ret = (struct listing_stat){.err = errno};
	else
		listing_from_statx(&st, ret);
}

int listing_read_stats(int fd, struct listing *l, const atomic_bool *stop)
{
	char name[PATH_SEGMENT_MAX + 1];

	l->stats = malloc((l->n + 1) * sizeof(*l->stats));
	if (!l->stats)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++) {
		const struct listing_item *it = &l->items[i];

		if (it->dir || it->len > PATH_SEGMENT_MAX)
			continue;
		if (atomic_load_explicit(stop, memory_order_relaxed))
			return -ECANCELED;
		memcpy(name, it->name, it->len);
		name[it->len] = '\0';
		listing_stat_one(fd, name, &l->stats[i]);
	}
	return 0;
}

void listing_done(struct listing *l)
{
	for (size_t i = 0; i < l->dirs_n; i++)
		cleanup_fd(&l->dirs[i].fd);
	free(l->items);
	free(l->dirs);
	free(l->stats);
	buf_done(&l->names);
	*l = (struct listing){0};
}
