/*
 * Policy: part of door 1. Both threads are started when the process is confined in all but its system calls, which
 * they inherit, and wait until the filter is laid over them too (os/confine.h); so neither ever runs with more than
 * the rest of the process, and no thread or process can be started later. Every order names an open directory of the
 * private staging place and one segment below it; nothing is followed and nothing is opened that was there before.
 * Not done here: judging (policy/member.h), choosing the place (unpack_stage.c, unpack_tree.c).
 */
#include "sync/unpack_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "sync/unpack_server.h"

#define BATCH_BYTES (128 << 10)
#define BATCHES 8
#define BATCH_DIRS 8		/* directories closed in one: bounds the descriptors under way */
#define PIECE_LEAST 4096	/* a batch with less room than that is full */
#define STACK_BYTES (128 << 10) /* no recursion; largest frame: a path */
#define PUSH_BYTES (1 << 20) /* from here on a file's write-back is started whatever came before */
#define PUSH_FIRST \
	128 /* of the first files too: a few are waited for one by one; of many each start costs as much as the file */
#define SYNC_EVERY \
	12288 /* files; each early sync costs a commit of the file system's journal, during which it stalls */

enum op { OP_FILE, OP_DATA, OP_END, OP_LINK, OP_UNLINK, OP_CLOSE, OP_SYNC };

struct order {
	uint8_t op;
	bool again, give, hole;
	uint32_t mode;
	int dir;
	uint32_t name_len, path_len, n; /* what follows: name and path with their NUL, n bytes */
	uint64_t at;			/* of data; size of the file */
	int64_t mtime_ns;
};

struct batch {
	size_t len, dirs;
	_Alignas(8) char data[BATCH_BYTES];
};

struct writer {
	pthread_t thread, syncer;
	pthread_mutex_t lock;
	pthread_cond_t more, back; /* to the writing thread; from both */
	pthread_cond_t sync;	   /* to the other */
	/* under the lock */
	uint64_t filled, done; /* batches */
	unsigned running;
	bool stop, sync_wanted;
	int sync_fd; /* owned; a file of its own, for an error of write-back is told to each file once */
	int error; /* negative errno: of the first order that failed; the rest is constant from then on */
	bool make_failed;
	char failed[PATH_MEMBER_MAX + 1];
	/* of the one who gives orders */
	bool started[2];
	const char *place;
	/* of the writing thread, from its start on */
	int fd; /* owned: the file in work */
	char path[PATH_MEMBER_MAX + 1];
	uint64_t files;
	bool in_making;
	/* constant from writer_begin on */
	uid_t uid;
	gid_t gid;

	struct batch batch[BATCHES];
};

/* --- carrying out ------------------------------------------------------------------------- */

static int make_file(struct writer *w, const struct order *o, const char *name)
{
	do {
		/* Safe because: one segment in a private directory, and a new file or none. */
		w->fd = openat(o->dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			       o->mode & 0777);
	} while (w->fd < 0 && o->again && errno == EEXIST && unlinkat(o->dir, name, 0) == 0);
	if (w->fd < 0)
		return errno == ENOENT ? -EIO : -errno;
	if (o->give)
		give_to(o->dir, name, w->uid, w->gid);
	return 0;
}

static int write_at(int fd, const char *p, size_t n, uint64_t off)
{
	while (n) {
		ssize_t k = pwrite(fd, p, n, (off_t)off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -EIO;
		p += k;
		n -= (size_t)k;
		off += (uint64_t)k;
	}
	return 0;
}

static void times_of(int64_t mtime_ns, struct timespec ts[2])
{
	ts[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
	ts[1] = (struct timespec){.tv_sec = mtime_ns / NS_PER_S, .tv_nsec = mtime_ns % NS_PER_S};
}

/* Mode (set when it is published) and time: what the sandbox may say. Owner, ACL, set-id bits: not. */
static int end_file(struct writer *w, const struct order *o)
{
	struct timespec ts[2];
	int r = 0;

	times_of(o->mtime_ns, ts);
	/* Only a hole at the end is not there yet. */
	if (o->hole && ftruncate(w->fd, (off_t)o->at) < 0)
		r = -errno;
	if (r == 0 && futimens(w->fd, ts) < 0)
		r = -errno;
	/*
	 * Starts the write-back now; the sync before the commit then finds little left to do. Many small files
	 * are left to the kernel, which does them together.
	 */
	if (r == 0 && (o->at >= PUSH_BYTES || w->files < PUSH_FIRST))
		(void)sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	w->files++;
	cleanup_fd(&w->fd);
	return r;
}

static int make_link(struct writer *w, const struct order *o, const char *name, const char *target)
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
		give_to(o->dir, name, w->uid, w->gid);
	return 0;
}

static int carry_out(struct writer *w, const struct order *o)
{
	const char *name = (const char *)(o + 1), *path = name + o->name_len + 1;
	const char *data = path + o->path_len + 1;

	w->in_making = o->op == OP_FILE || o->op == OP_LINK || o->op == OP_UNLINK;
	if (w->in_making)
		memcpy(w->path, path, o->path_len + 1);
	switch ((enum op)o->op) {
	case OP_FILE:
		return make_file(w, o, name);
	case OP_DATA:
		return write_at(w->fd, data, o->n, o->at);
	case OP_END:
		return end_file(w, o);
	case OP_LINK:
		return make_link(w, o, name, data);
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

static size_t order_len(const struct order *o)
{
	return (sizeof(*o) + o->name_len + o->path_len + 2 + o->n + 7) & ~(size_t)7;
}

/* error: of an earlier batch. The error from now on. */
static int do_batch(struct writer *w, const struct batch *b, int error)
{
	for (size_t at = 0; at < b->len;) {
		const struct order *o = (const void *)(b->data + at);

		if (error == 0)
			error = carry_out(w, o);
		else if (o->op == OP_CLOSE)
			(void)close(o->dir);
		at += order_len(o);
	}
	if (error)
		cleanup_fd(&w->fd);
	return error;
}

static void *write_on(void *arg)
{
	struct writer *w = arg;
	uint64_t synced = SYNC_EVERY;

	(void)pthread_mutex_lock(&w->lock);
	w->running++;
	(void)pthread_cond_signal(&w->back);
	for (;;) {
		int r = w->error;

		while (w->done == w->filled && !w->stop)
			(void)pthread_cond_wait(&w->more, &w->lock);
		if (w->done == w->filled)
			break;
		(void)pthread_mutex_unlock(&w->lock);
		r = do_batch(w, &w->batch[w->done % BATCHES], r);
		(void)pthread_mutex_lock(&w->lock);
		if (r < 0 && !w->error) {
			memcpy(w->failed, w->path, sizeof(w->failed));
			w->make_failed = w->in_making;
			w->error = r;
		}
		if (w->files >= synced && !w->error) {
			synced = w->files + SYNC_EVERY;
			w->sync_wanted = true;
			(void)pthread_cond_signal(&w->sync);
		}
		w->done++;
		(void)pthread_cond_signal(&w->back);
	}
	(void)pthread_mutex_unlock(&w->lock);
	cleanup_fd(&w->fd);
	return NULL;
}

/* Its result counts for nothing: the sync before the commit is the promise, and asks on its own. */
static void *sync_on(void *arg)
{
	struct writer *w = arg;

	(void)pthread_mutex_lock(&w->lock);
	w->running++;
	(void)pthread_cond_signal(&w->back);
	for (;;) {
		while (!w->sync_wanted && !w->stop)
			(void)pthread_cond_wait(&w->sync, &w->lock);
		if (w->stop)
			break;
		w->sync_wanted = false;
		(void)pthread_mutex_unlock(&w->lock);
		if (w->sync_fd >= 0)
			(void)syncfs(w->sync_fd);
		(void)pthread_mutex_lock(&w->lock);
	}
	(void)pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* --- orders ------------------------------------------------------------------------------- */

static struct batch *current(struct writer *w)
{
	return &w->batch[w->filled % BATCHES];
}

/* Gives the current batch away and waits for an empty one, or (all) until nothing is left. The error, or 0. */
static int hand_over(struct writer *w, bool all)
{
	int r;

	(void)pthread_mutex_lock(&w->lock);
	if (current(w)->len) {
		w->filled++;
		(void)pthread_cond_signal(&w->more);
	}
	while (w->filled - w->done >= (all ? 1 : BATCHES))
		(void)pthread_cond_wait(&w->back, &w->lock);
	r = w->error;
	(void)pthread_mutex_unlock(&w->lock);
	current(w)->len = current(w)->dirs = 0;
	return r;
}

static int explain(struct writer *w, int r, struct err *e)
{
	if (r == 0)
		return 0;
	return w->make_failed ? err_sys(e, -r, "stage %s in %s", w->failed, w->place)
			      : err_sys(e, -r, "stage %s", w->failed);
}

/* An order with its three strings. o->n may be any length that fits into an empty batch. The error, or 0. */
static int give(struct writer *w, struct order *o, const char *name, const char *path,
		const void *data)
{
	struct batch *b = current(w);
	char *to;
	int r = 0;

	o->name_len = (uint32_t)strlen(name);
	o->path_len = (uint32_t)strlen(path);
	if (b->len + order_len(o) > BATCH_BYTES || b->dirs == BATCH_DIRS) {
		r = hand_over(w, false);
		b = current(w);
	}
	to = b->data + b->len;
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
	return r;
}

static struct order order_of(enum op op, const struct writer_entry *m)
{
	return (struct order){.op = (uint8_t)op,
			      .again = m->again,
			      .give = m->give,
			      .mode = m->mode,
			      .dir = m->dir,
			      .mtime_ns = m->mtime_ns};
}

int writer_file(struct writer *w, const struct writer_entry *m, struct err *e)
{
	struct order o = order_of(OP_FILE, m);

	return explain(w, give(w, &o, m->name, m->path, NULL), e);
}

int writer_data(struct writer *w, const void *p, size_t n, uint64_t at, struct err *e)
{
	const char *from = p;
	int r = 0;

	while (n && r == 0) {
		struct order o = {.op = OP_DATA, .at = at};
		size_t room = BATCH_BYTES - current(w)->len, k = n;

		if (room < sizeof(o) + PIECE_LEAST)
			room = BATCH_BYTES; /* of the next */
		if (k > room - sizeof(o) - 16)
			k = room - sizeof(o) - 16;
		o.n = (uint32_t)k;
		r = give(w, &o, "", "", from);
		from += k;
		at += k;
		n -= k;
	}
	return explain(w, r, e);
}

int writer_end(struct writer *w, uint64_t size, bool hole, int64_t mtime_ns, struct err *e)
{
	struct order o = {.op = OP_END, .hole = hole, .at = size, .mtime_ns = mtime_ns};

	return explain(w, give(w, &o, "", "", NULL), e);
}

int writer_link(struct writer *w, const struct writer_entry *m, const char *target, struct err *e)
{
	struct order o = order_of(OP_LINK, m);

	o.n = (uint32_t)strlen(target) + 1;
	return explain(w, give(w, &o, m->name, m->path, target), e);
}

int writer_unlink(struct writer *w, int dir, const char *name, const char *path, struct err *e)
{
	struct order o = {.op = OP_UNLINK, .dir = dir};

	return explain(w, give(w, &o, name, path, NULL), e);
}

void writer_close(struct writer *w, int fd)
{
	struct order o = {.op = OP_CLOSE, .dir = fd};

	(void)give(w, &o, "", "", NULL);
}

void writer_sync(struct writer *w, int fd)
{
	struct order o = {.op = OP_SYNC, .dir = fd};

	(void)give(w, &o, "", "", NULL);
	(void)hand_over(w, false);
}

int writer_wait(struct writer *w, struct err *e)
{
	return explain(w, hand_over(w, true), e);
}

void writer_sync_soon(struct writer *w)
{
	(void)pthread_mutex_lock(&w->lock);
	if (w->files > PUSH_EACH_MAX) {
		w->sync_wanted = true;
		(void)pthread_cond_signal(&w->sync);
	}
	(void)pthread_mutex_unlock(&w->lock);
}

uint64_t writer_pending(const struct writer *w)
{
	return w ? sizeof(w->batch) : 0;
}

/* --- life --------------------------------------------------------------------------------- */

static int start_thread(struct writer *w, pthread_t *ret, void *(*fn)(void *))
{
	pthread_attr_t a;
	sigset_t all, old;
	int r = pthread_attr_init(&a);

	if (r)
		return -r;
	/* A signal is for the thread that waits for the workspace's lock. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	r = pthread_attr_setstacksize(&a, STACK_BYTES);
	if (r == 0)
		/*
		 * Safe because: it begins with this thread's Landlock rules, capabilities and limits, touches
		 * nothing before writer_begin, and the filter covers it before that.
		 */
		r = pthread_create(ret, &a, fn, w);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&a);
	return -r;
}

int writer_start(struct writer **ret, struct err *e)
{
	struct writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory");
	w->fd = w->sync_fd = -1;
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->more, NULL);
	(void)pthread_cond_init(&w->back, NULL);
	(void)pthread_cond_init(&w->sync, NULL);
	r = start_thread(w, &w->thread, write_on);
	w->started[0] = r == 0;
	if (r == 0)
		r = start_thread(w, &w->syncer, sync_on);
	w->started[1] = w->started[0] && r == 0;
	if (r < 0) {
		writer_free(w);
		return err_sys(e, -r, "start a thread");
	}
	/* What a new thread asks of the system by itself, the filter does not allow: that must be over. */
	(void)pthread_mutex_lock(&w->lock);
	while (w->running < 2)
		(void)pthread_cond_wait(&w->back, &w->lock);
	(void)pthread_mutex_unlock(&w->lock);
	*ret = w;
	return 0;
}

int writer_begin(struct writer *w, const char *place, int dir, uid_t uid, gid_t gid)
{
	int fd = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir >= 0 && fd < 0)
		return -errno;
	(void)pthread_mutex_lock(&w->lock);
	w->place = place;
	w->uid = uid;
	w->gid = gid;
	w->sync_fd = fd;
	(void)pthread_mutex_unlock(&w->lock);
	return 0;
}

void writer_free(struct writer *w)
{
	if (!w)
		return;
	(void)pthread_mutex_lock(&w->lock);
	w->stop = true;
	(void)pthread_cond_signal(&w->more);
	(void)pthread_cond_signal(&w->sync);
	(void)pthread_mutex_unlock(&w->lock);
	if (w->started[0])
		(void)pthread_join(w->thread, NULL);
	if (w->started[1])
		(void)pthread_join(w->syncer, NULL);
	cleanup_fd(&w->sync_fd);
	(void)pthread_cond_destroy(&w->more);
	(void)pthread_cond_destroy(&w->back);
	(void)pthread_cond_destroy(&w->sync);
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
}
