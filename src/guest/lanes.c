#include "guest/lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"

#define LANES 2
#define LANES_BATCHES 4
#define BATCH (256 << 10)
#define ALIGN(n) (((n) + 7) & ~(size_t)7)

/* In a batch: this, the path with its NUL, the contents. */
struct record {
	int64_t mtime_ns;
	uint32_t mode, path_len, size, whole; /* whole: bytes until the next record */
};

_Static_assert(sizeof(struct record) + PATH_MEMBER_MAX + 1 + LANES_FILE_MAX + 8 < BATCH,
	       "a batch holds any file");

enum batch_state { FREE, READY, BUSY };

struct batch {
	enum batch_state state;
	size_t len;
	char *buf;
};

struct lanes {
	int tree;
	bool exact;
	pthread_mutex_t lock;
	pthread_cond_t ready, done; /* for the threads; for the caller */
	struct batch batch[LANES_BATCHES];
	struct batch *filling; /* the caller's alone; NULL: none yet */
	size_t at;	       /* in filling: where the present file's next bytes belong */
	bool over;
	int error; /* the first; 0 */
	char path[PATH_MEMBER_MAX + 1];
	unsigned started;
	pthread_t thread[LANES];
};

/* Making. ------------------------------------------------------------------------------------- */

static int make(const struct lanes *l, const struct record *f, const char *path, const char *data)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(f->mtime_ns)};
	int r, fd = openat(l->tree, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			   l->exact ? f->mode : 0600);

	if (fd < 0)
		return -errno;
	r = fd_write(fd, data, f->size);
	if (r == 0 && ((!l->exact && fchmod(fd, f->mode) < 0) || futimens(fd, times) < 0))
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	return r;
}

static void fail(struct lanes *l, int r, const char *path)
{
	(void)pthread_mutex_lock(&l->lock);
	if (!l->error) {
		l->error = r;
		memcpy(l->path, path, strlen(path) + 1);
	}
	(void)pthread_mutex_unlock(&l->lock);
}

static void make_batch(struct lanes *l, const struct batch *b)
{
	for (size_t at = 0; at < b->len;) {
		const struct record *f = (const void *)(b->buf + at);
		const char *path = (const char *)(f + 1);
		int r = make(l, f, path, path + f->path_len + 1);

		if (r < 0) {
			fail(l, r, path);
			return;
		}
		at += f->whole;
	}
}

/* With the lock held. */
static struct batch *in_state(struct lanes *l, enum batch_state state)
{
	for (size_t i = 0; i < LANES_BATCHES; i++)
		if (l->batch[i].state == state && &l->batch[i] != l->filling)
			return &l->batch[i];
	return NULL;
}

static void *work(void *arg)
{
	struct lanes *l = arg;

	(void)pthread_mutex_lock(&l->lock);
	for (;;) {
		struct batch *b = in_state(l, READY);
		bool stop = l->error;

		if (!b && l->over)
			break;
		if (!b) {
			(void)pthread_cond_wait(&l->ready, &l->lock);
			continue;
		}
		b->state = BUSY;
		(void)pthread_mutex_unlock(&l->lock);
		if (!stop)
			make_batch(l, b);
		(void)pthread_mutex_lock(&l->lock);
		b->len = 0;
		b->state = FREE;
		(void)pthread_cond_signal(&l->done);
	}
	(void)pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* Giving. ------------------------------------------------------------------------------------- */

static void hand_over(struct lanes *l)
{
	(void)pthread_mutex_lock(&l->lock);
	if (l->filling && l->filling->len) {
		l->filling->state = READY;
		l->filling = NULL;
		(void)pthread_cond_signal(&l->ready);
	}
	(void)pthread_mutex_unlock(&l->lock);
}

static void get_empty(struct lanes *l)
{
	struct batch *b;

	if (l->filling)
		return;
	(void)pthread_mutex_lock(&l->lock);
	while (!(b = in_state(l, FREE)))
		(void)pthread_cond_wait(&l->done, &l->lock);
	l->filling = b;
	(void)pthread_mutex_unlock(&l->lock);
}

void lanes_begin(struct lanes *l, const struct lanes_file *f)
{
	size_t whole = ALIGN(sizeof(struct record) + f->path_len + 1 + f->size);
	struct record *to;
	char *path;

	if (l->filling && l->filling->len + whole > BATCH)
		hand_over(l);
	get_empty(l);
	to = (void *)(l->filling->buf + l->filling->len);
	*to = (struct record){.mtime_ns = f->mtime_ns,
			      .mode = f->mode,
			      .path_len = (uint32_t)f->path_len,
			      .size = (uint32_t)f->size,
			      .whole = (uint32_t)whole};
	path = (char *)(to + 1);
	memcpy(path, f->path, f->path_len);
	path[f->path_len] = '\0';
	l->at = (size_t)(path - l->filling->buf) + f->path_len + 1;
}

void lanes_data(struct lanes *l, const void *p, size_t n)
{
	memcpy(l->filling->buf + l->at, p, n);
	l->at += n;
}

void lanes_end(struct lanes *l)
{
	const struct record *f = (const void *)(l->filling->buf + l->filling->len);

	l->filling->len += f->whole;
}

bool lanes_failed(struct lanes *l)
{
	bool failed;

	(void)pthread_mutex_lock(&l->lock);
	failed = l->error;
	(void)pthread_mutex_unlock(&l->lock);
	return failed;
}

int lanes_drain(struct lanes *l, const char **ret_path)
{
	hand_over(l);
	(void)pthread_mutex_lock(&l->lock);
	while (in_state(l, READY) || in_state(l, BUSY))
		(void)pthread_cond_wait(&l->done, &l->lock);
	(void)pthread_mutex_unlock(&l->lock);
	*ret_path = l->path;
	return l->error;
}

struct lanes *lanes_new(int tree, bool exact)
{
	struct lanes *l = calloc(1, sizeof(*l));
	bool all = l;

	if (!l)
		return NULL;
	l->tree = tree;
	l->exact = exact;
	(void)pthread_mutex_init(&l->lock, NULL);
	(void)pthread_cond_init(&l->ready, NULL);
	(void)pthread_cond_init(&l->done, NULL);
	for (size_t i = 0; i < LANES_BATCHES; i++)
		all = (l->batch[i].buf = malloc(BATCH)) && all;
	while (all && l->started < LANES &&
	       pthread_create(&l->thread[l->started], NULL, work, l) == 0)
		l->started++;
	if (l->started)
		return l;
	lanes_free(l);
	return NULL;
}

void lanes_free(struct lanes *l)
{
	if (!l)
		return;
	(void)pthread_mutex_lock(&l->lock);
	l->over = true;
	(void)pthread_cond_broadcast(&l->ready);
	(void)pthread_mutex_unlock(&l->lock);
	for (unsigned i = 0; i < l->started; i++)
		(void)pthread_join(l->thread[i], NULL);
	for (size_t i = 0; i < LANES_BATCHES; i++)
		free(l->batch[i].buf);
	(void)pthread_cond_destroy(&l->done);
	(void)pthread_cond_destroy(&l->ready);
	(void)pthread_mutex_destroy(&l->lock);
	free(l);
}
