/*
 * Policy: part of door 1. All threads are started when the process is confined in all but its system calls, which
 * they inherit, and wait until the filter is laid over them too (os/confine.h); so none ever runs with more than
 * the rest of the process, and no thread or process can be started later. What an order may do: unpack_order.c.
 */
#include "sync/unpack_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "sync/unpack_order.h"
#include "sync/unpack_server.h"

#define BATCHES 8		/* of one lane */
#define STACK_BYTES (128 << 10) /* no recursion; largest frame: a path */
#define SYNC_EVERY \
	12288 /* files; each early sync costs a commit of the file system's journal, during which it stalls */

struct lane {
	struct writer *w;
	pthread_t thread;
	bool started;
	pthread_cond_t more;   /* to its thread */
	uint64_t filled, done; /* batches; under the lock */
	struct hand hand;      /* of its thread */
	struct batch batch[BATCHES];
};

struct writer {
	pthread_t syncer;
	pthread_mutex_t lock;
	pthread_cond_t back; /* from all threads */
	pthread_cond_t sync; /* to the syncer */
	/* under the lock */
	unsigned running;
	bool stop, sync_wanted;
	int sync_fd; /* owned; a file of its own, for an error of write-back is told to each file once */
	uint64_t files,
	    synced;	    /* files made; so many of them when an early sync was asked for last */
	int error;	    /* negative errno: of the first order that failed, by its number */
	uint64_t error_seq; /* UINT64_MAX: none */
	bool make_failed;
	char failed[PATH_MEMBER_MAX + 1];
	/* of the one who gives orders */
	bool syncer_started;
	const char *place;
	uint64_t seq;
	size_t at; /* lane of the file in work */

	size_t lanes_len; /* constant */
	struct lane lanes[];
};

/* --- the threads -------------------------------------------------------------------------- */

static void note_error(struct writer *w, const struct hand *h, int r, uint64_t seq)
{
	if (seq > w->error_seq)
		return;
	memcpy(w->failed, h->path, sizeof(w->failed));
	w->make_failed = h->in_making;
	w->error = r;
	w->error_seq = seq;
}

static void *write_on(void *arg)
{
	struct lane *l = arg;
	struct writer *w = l->w;
	uint64_t until, before, seq;
	int r;

	(void)pthread_mutex_lock(&w->lock);
	w->running++;
	(void)pthread_cond_signal(&w->back);
	for (;;) {
		while (l->done == l->filled && !w->stop)
			(void)pthread_cond_wait(&l->more, &w->lock);
		if (l->done == l->filled)
			break;
		until = w->error_seq;
		before = l->hand.files;
		(void)pthread_mutex_unlock(&w->lock);
		r = batch_carry_out(&l->hand, &l->batch[l->done % BATCHES], until, &seq);
		(void)pthread_mutex_lock(&w->lock);
		if (r < 0)
			note_error(w, &l->hand, r, seq);
		w->files += l->hand.files - before;
		if (w->files - w->synced >= SYNC_EVERY && !w->error) {
			w->synced = w->files;
			w->sync_wanted = true;
			(void)pthread_cond_signal(&w->sync);
		}
		l->done++;
		(void)pthread_cond_signal(&w->back);
	}
	(void)pthread_mutex_unlock(&w->lock);
	cleanup_fd(&l->hand.fd);
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

/*
 * What is in one directory is one lane's, so orders about one name keep their order. Names of neighbours, which
 * often differ in their last digit only, alternate.
 */
static size_t lane_of(const struct writer *w, const char *dir, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (uint8_t)dir[i];
	return sum % w->lanes_len;
}

/* The lane of a member. */
static size_t lane_for(const struct writer *w, const char *path)
{
	size_t n = (size_t)(path_base(path) - path);

	return lane_of(w, path, n ? n - 1 : 0);
}

static struct batch *current(struct lane *l)
{
	return &l->batch[l->filled % BATCHES];
}

/* Gives the current batch away and waits for an empty one, or (all) until nothing is left. The error, or 0. */
static int hand_over(struct lane *l, bool all)
{
	struct writer *w = l->w;
	int r;

	(void)pthread_mutex_lock(&w->lock);
	if (current(l)->len) {
		l->filled++;
		(void)pthread_cond_signal(&l->more);
	}
	while (l->filled - l->done >= (all ? 1 : BATCHES))
		(void)pthread_cond_wait(&w->back, &w->lock);
	r = w->error;
	(void)pthread_mutex_unlock(&w->lock);
	current(l)->len = current(l)->dirs = 0;
	return r;
}

/* The others may still have that text to change. */
static int explain(struct writer *w, int r, struct err *e)
{
	if (r == 0)
		return 0;
	(void)pthread_mutex_lock(&w->lock);
	r = w->error;
	if (w->make_failed)
		(void)err_sys(e, -r, "stage %s in %s", w->failed, w->place);
	else
		(void)err_sys(e, -r, "stage %s", w->failed);
	(void)pthread_mutex_unlock(&w->lock);
	return r;
}

/* An order with its three strings. o->n may be any length that fits into an empty batch. The error, or 0. */
static int give(struct writer *w, size_t lane, struct order *o, const char *name, const char *path,
		const void *data)
{
	struct lane *l = &w->lanes[lane];
	int r = 0;

	o->seq = w->seq++;
	o->name_len = (uint32_t)strlen(name);
	o->path_len = (uint32_t)strlen(path);
	if (!batch_has_room(current(l), o))
		r = hand_over(l, false);
	batch_add(current(l), o, name, path, data);
	return r;
}

static struct order order_of(enum order_op op, const struct writer_entry *m)
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

	w->at = lane_for(w, m->path);
	return explain(w, give(w, w->at, &o, m->name, m->path, NULL), e);
}

int writer_data(struct writer *w, const void *p, size_t n, uint64_t at, struct err *e)
{
	const char *from = p;
	int r = 0;

	while (n && r == 0) {
		struct order o = {.op = OP_DATA, .at = at};
		size_t room = batch_data_room(current(&w->lanes[w->at])), k = n;

		if (!room) /* of the next */
			room = BATCH_DATA_MAX;
		if (k > room)
			k = room;
		o.n = (uint32_t)k;
		r = give(w, w->at, &o, "", "", from);
		from += k;
		at += k;
		n -= k;
	}
	return explain(w, r, e);
}

int writer_end(struct writer *w, uint64_t size, bool hole, int64_t mtime_ns, struct err *e)
{
	struct order o = {.op = OP_END, .hole = hole, .at = size, .mtime_ns = mtime_ns};

	return explain(w, give(w, w->at, &o, "", "", NULL), e);
}

int writer_link(struct writer *w, const struct writer_entry *m, const char *target, struct err *e)
{
	struct order o = order_of(OP_LINK, m);

	o.n = (uint32_t)strlen(target) + 1;
	return explain(w, give(w, lane_for(w, m->path), &o, m->name, m->path, target), e);
}

int writer_unlink(struct writer *w, int dir, const char *name, const char *path, struct err *e)
{
	struct order o = {.op = OP_UNLINK, .dir = dir};

	return explain(w, give(w, lane_for(w, path), &o, name, path, NULL), e);
}

void writer_close(struct writer *w, int fd, const char *path, size_t n)
{
	struct order o = {.op = OP_CLOSE, .dir = fd};

	(void)give(w, lane_of(w, path, n), &o, "", "", NULL);
}

void writer_sync(struct writer *w, int fd)
{
	struct order o = {.op = OP_SYNC, .dir = fd};

	(void)give(w, 0, &o, "", "", NULL);
	(void)hand_over(&w->lanes[0], false);
}

int writer_wait(struct writer *w, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < w->lanes_len; i++) /* all are at work while the first is awaited */
		(void)hand_over(&w->lanes[i], false);
	for (size_t i = 0; i < w->lanes_len; i++)
		r = hand_over(&w->lanes[i], true);
	return explain(w, r, e);
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
	return w ? w->lanes_len * sizeof(w->lanes[0].batch) : 0;
}

/* --- life --------------------------------------------------------------------------------- */

static int start_thread(pthread_t *ret, void *(*fn)(void *), void *arg)
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
		r = pthread_create(ret, &a, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&a);
	return -r;
}

/*
 * One for each two processors: who packs, who reads and the kernel's write-back are at work too. With two of each, two
 * lanes took up to a fifth more processor time in the file system's locks than one, and no less time.
 */
static size_t lanes_of_machine(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);

	return n < 4 ? 1 : (size_t)n / 2;
}

static int start_threads(struct writer *w)
{
	int r = start_thread(&w->syncer, sync_on, w);

	w->syncer_started = r == 0;
	for (size_t i = 0; r == 0 && i < w->lanes_len; i++) {
		struct lane *l = &w->lanes[i];

		r = start_thread(&l->thread, write_on, l);
		l->started = r == 0;
	}
	return r;
}

int writer_start(size_t lanes, struct writer **ret, struct err *e)
{
	size_t n = lanes ? lanes : lanes_of_machine();
	struct writer *w;
	int r;

	if (n > WRITER_LANES_MAX)
		n = WRITER_LANES_MAX;
	w = calloc(1, sizeof(*w) + n * sizeof(w->lanes[0]));
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory");
	w->sync_fd = -1;
	w->error_seq = UINT64_MAX;
	w->lanes_len = n;
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->back, NULL);
	(void)pthread_cond_init(&w->sync, NULL);
	for (size_t i = 0; i < n; i++) {
		w->lanes[i].w = w;
		w->lanes[i].hand.fd = -1;
		(void)pthread_cond_init(&w->lanes[i].more, NULL);
	}
	r = start_threads(w);
	if (r < 0) {
		writer_free(w);
		return err_sys(e, -r, "start a thread");
	}
	/* What a new thread asks of the system by itself, the filter does not allow: that must be over. */
	(void)pthread_mutex_lock(&w->lock);
	while (w->running < 1 + n)
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
	for (size_t i = 0; i < w->lanes_len; i++) {
		w->lanes[i].hand.uid = uid;
		w->lanes[i].hand.gid = gid;
	}
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
	for (size_t i = 0; i < w->lanes_len; i++)
		(void)pthread_cond_signal(&w->lanes[i].more);
	(void)pthread_cond_signal(&w->sync);
	(void)pthread_mutex_unlock(&w->lock);
	for (size_t i = 0; i < w->lanes_len; i++)
		if (w->lanes[i].started)
			(void)pthread_join(w->lanes[i].thread, NULL);
	if (w->syncer_started)
		(void)pthread_join(w->syncer, NULL);
	cleanup_fd(&w->sync_fd);
	for (size_t i = 0; i < w->lanes_len; i++)
		(void)pthread_cond_destroy(&w->lanes[i].more);
	(void)pthread_cond_destroy(&w->back);
	(void)pthread_cond_destroy(&w->sync);
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
}
