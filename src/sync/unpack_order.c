/*
 * Policy: part of door 1, for threads that are confined (unpack_writer.c). Every order names an open directory of
 * the private staging place and one segment below it; nothing is followed and nothing is opened that was there before.
 * Not done here: judging (policy/member.h), choosing the place (unpack_stage.c, unpack_tree.c).
 */
#include "sync/unpack_order.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "sync/unpack_server.h"

#define PUSH_BYTES (1 << 20) /* from here on a file's write-back is started whatever came before */
#define PUSH_FIRST \
	128 /* of the first files too: a few are waited for one by one; of many each start costs as much as the file */

static int make_file(struct hand *h, const struct order *o, const char *name)
{
	do {
		/* Safe because: one segment in a private directory, and a new file or none. */
		h->fd = openat(o->dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			       o->mode & 0777);
	} while (h->fd < 0 && o->again && errno == EEXIST && unlinkat(o->dir, name, 0) == 0);
	if (h->fd < 0)
		return errno == ENOENT ? -EIO : -errno;
	if (o->give)
		give_to(o->dir, name, h->uid, h->gid);
	return 0;
}

static void times_of(int64_t mtime_ns, struct timespec ts[2])
{
	ts[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
	ts[1] = clock_timespec(mtime_ns);
}

/* Mode (set when it is published) and time: what the sandbox may say. Owner, ACL, set-id bits: not. */
static int end_file(struct hand *h, const struct order *o)
{
	struct timespec ts[2];
	int r = 0;

	times_of(o->mtime_ns, ts);
	/* Only a hole at the end is not there yet. */
	if (o->hole && ftruncate(h->fd, (off_t)o->at) < 0)
		r = -errno;
	if (r == 0 && futimens(h->fd, ts) < 0)
		r = -errno;
	/*
	 * Starts the write-back now; the sync before the commit then finds little left to do. Many small files
	 * are left to the kernel, which does them together.
	 */
	if (r == 0 && (o->at >= PUSH_BYTES || h->files < PUSH_FIRST))
		(void)sync_file_range(h->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	h->files++;
	cleanup_fd(&h->fd);
	return r;
}

static int make_link(struct hand *h, const struct order *o, const char *name, const char *target)
{
	struct timespec ts[2];
	int r;

	do {
		/* Safe because: it lies in the private staging place and nothing follows links there. */
		r = symlinkat(target, o->dir, name);
	} while (r < 0 && o->again && errno == EEXIST && unlinkat(o->dir, name, 0) == 0);
	if (r < 0)
		return -errno;
	times_of(o->mtime_ns, ts);
	(void)utimensat(o->dir, name, ts, AT_SYMLINK_NOFOLLOW);
	if (o->give)
		give_to(o->dir, name, h->uid, h->gid);
	return 0;
}

static int carry_out(struct hand *h, const struct order *o)
{
	const char *name = (const char *)(o + 1), *path = name + o->name_len + 1;
	const char *data = path + o->path_len + 1;

	h->in_making = o->op == OP_FILE || o->op == OP_LINK || o->op == OP_UNLINK;
	if (h->in_making)
		memcpy(h->path, path, o->path_len + 1);
	switch ((enum order_op)o->op) {
	case OP_FILE:
		return make_file(h, o, name);
	case OP_DATA:
		return fd_write_at(h->fd, data, o->n, o->at);
	case OP_END:
		return end_file(h, o);
	case OP_LINK:
		return make_link(h, o, name, data);
	case OP_UNLINK:
		return unlinkat(o->dir, name, 0) == 0 || errno == ENOENT || errno == EISDIR
			   ? 0
			   : -errno;
	case OP_CLOSE:
		(void)close(o->dir);
		return 0;
	case OP_SYNC:
		return syncfs(o->dir) < 0 ? -errno : 0;
	}
	return -EINVAL;
}

size_t order_len(const struct order *o)
{
	return (sizeof(*o) + o->name_len + o->path_len + 2 + o->n + 7) & ~(size_t)7;
}

bool batch_has_room(const struct batch *b, const struct order *o)
{
	return b->len + order_len(o) <= BATCH_BYTES && b->dirs < BATCH_DIRS;
}

size_t batch_data_room(const struct batch *b)
{
	size_t room = BATCH_BYTES - b->len, rest = sizeof(struct order) + 16;

	return room < rest + BATCH_LEAST ? 0 : room - rest;
}

void batch_add(struct batch *b, const struct order *o, const char *name, const char *path,
	       const void *data)
{
	char *to = b->data + b->len;

	memcpy(to, o, sizeof(*o));
	to += sizeof(*o);
	memcpy(to, name, o->name_len + 1);
	to += o->name_len + 1;
	memcpy(to, path, o->path_len + 1);
	to += o->path_len + 1;
	if (o->n)
		memcpy(to, data, o->n);
	b->len += order_len(o);
	b->dirs += o->op == OP_CLOSE;
}

int batch_carry_out(struct hand *h, const struct batch *b, uint64_t until, uint64_t *ret_seq)
{
	bool cut = false;
	int error = 0, r;

	for (size_t at = 0; at < b->len;) {
		const struct order *o = (const void *)(b->data + at);

		at += order_len(o);
		if (o->seq >= until) {
			if (o->op == OP_CLOSE)
				(void)close(o->dir);
			cut = true;
			continue;
		}
		r = carry_out(h, o);
		if (r < 0) {
			error = r;
			cut = true;
			until = *ret_seq = o->seq;
		}
	}
	if (cut)
		cleanup_fd(&h->fd);
	return error;
}
