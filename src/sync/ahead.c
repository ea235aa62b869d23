#include "sync/ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "wire/manifest.h"

struct ahead {
	pthread_t thread;
	pthread_mutex_t lock; /* guards list, n's, entries, waits and each state; what a state
				 hands over (fd, st, l) is its holder's */
	pthread_cond_t work, done;
	struct ahead_dir *list; /* owned */
	size_t n;		/* of list; changed by the walk alone */
	size_t entries;		/* items of read listings in list */
	bool worker_waits, walk_waits;
	atomic_bool stop;
	dev_t skip_dev;
	ino_t skip_ino;
	char *piece; /* owned; the thread's */
};

void ahead_dir_free(struct ahead_dir *d)
{
	if (!d)
		return;
	listing_done(&d->l);
	cleanup_fd(&d->fd);
	free(d);
}

/* Without the lock; d is RUNNING, so nobody else looks into it. */
static bool read_dir(struct ahead *a, struct ahead_dir *d, char *piece)
{
	struct statx st;

	/* O_NOFOLLOW: a directory swapped for a link is not followed out of the workspace. */
	d->fd = openat(d->parent_fd, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d->fd < 0 || statx(d->fd, "", AT_EMPTY_PATH, LISTING_STAT_MASK, &st) < 0)
		return false;
	if ((st.stx_attributes & STATX_ATTR_MOUNT_ROOT) ||
	    (st.stx_ino == a->skip_ino &&
	     makedev(st.stx_dev_major, st.stx_dev_minor) == a->skip_dev))
		return false;
	listing_from_statx(&st, &d->st);
	return listing_read(d->fd, piece, AHEAD_ENTRIES_MAX, &d->l) == 0 &&
	       listing_read_stats(d->fd, &d->l, &a->stop) == 0;
}

/* First that nobody has begun, if there is room for its names. With the lock. */
static struct ahead_dir *pick(const struct ahead *a)
{
	struct ahead_dir *d = a->entries < AHEAD_ENTRIES_MAX ? a->list : NULL;

	while (d && d->state != AHEAD_WAITING)
		d = d->next;
	return d;
}

/* With the lock, which is given up meanwhile. */
static void run(struct ahead *a, struct ahead_dir *d, char *piece)
{
	bool ok;

	d->state = AHEAD_RUNNING;
	(void)pthread_mutex_unlock(&a->lock);
	ok = read_dir(a, d, piece);
	if (!ok) {
		/* What the walk must do again holds neither memory nor descriptor. */
		listing_done(&d->l);
		cleanup_fd(&d->fd);
	}
	(void)pthread_mutex_lock(&a->lock);
	d->state = ok ? AHEAD_DONE : AHEAD_FAILED;
	a->entries += d->l.n;
}

static void *work(void *arg)
{
	struct ahead *a = arg;

	(void)pthread_mutex_lock(&a->lock);
	while (!atomic_load(&a->stop)) {
		struct ahead_dir *d = pick(a);

		if (!d) {
			a->worker_waits = true;
			(void)pthread_cond_wait(&a->work, &a->lock);
			a->worker_waits = false;
			continue;
		}
		run(a, d, a->piece);
		if (a->walk_waits)
			(void)pthread_cond_signal(&a->done);
	}
	(void)pthread_mutex_unlock(&a->lock);
	return NULL;
}

struct ahead *ahead_new(dev_t skip_dev, ino_t skip_ino)
{
	struct ahead *a = calloc(1, sizeof(*a));
	sigset_t all, old;
	int r = ENOMEM;

	if (!a)
		return NULL;
	a->skip_dev = skip_dev;
	a->skip_ino = skip_ino;
	(void)pthread_mutex_init(&a->lock, NULL);
	(void)pthread_cond_init(&a->work, NULL);
	(void)pthread_cond_init(&a->done, NULL);
	a->piece = malloc(LISTING_PIECE);
	if (a->piece) {
		/* The program's handlers run where they always did. */
		(void)sigfillset(&all);
		(void)pthread_sigmask(SIG_SETMASK, &all, &old);
		r = pthread_create(&a->thread, NULL, work, a);
		(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	if (!r)
		return a;
	free(a->piece);
	free(a);
	return NULL;
}

void ahead_free(struct ahead *a)
{
	if (!a)
		return;
	(void)pthread_mutex_lock(&a->lock);
	atomic_store(&a->stop, true);
	(void)pthread_cond_signal(&a->work);
	(void)pthread_mutex_unlock(&a->lock);
	(void)pthread_join(a->thread, NULL);
	while (a->list) {
		struct ahead_dir *d = a->list;

		a->list = d->next;
		ahead_dir_free(d);
	}
	(void)pthread_cond_destroy(&a->work);
	(void)pthread_cond_destroy(&a->done);
	(void)pthread_mutex_destroy(&a->lock);
	free(a->piece);
	free(a);
}

bool ahead_room(const struct ahead *a, bool near)
{
	return a->n < (near ? AHEAD_NEAR_MAX : AHEAD_DIRS_MAX);
}

void ahead_offer(struct ahead *a, const struct ahead_dir *like, const char *path, size_t n,
		 size_t name_at)
{
	struct ahead_dir *d = calloc(1, sizeof(*d) + n + 1), **at = &a->list;

	if (!d)
		return;
	*d = *like;
	d->state = AHEAD_WAITING;
	d->fd = -1;
	d->path_len = n;
	memcpy(d->path, path, n);
	d->name = d->path + name_at;
	(void)pthread_mutex_lock(&a->lock);
	while (*at && manifest_path_cmp((*at)->path, (*at)->path_len, path, n) < 0)
		at = &(*at)->next;
	d->next = *at;
	*at = d;
	a->n++;
	if (a->worker_waits)
		(void)pthread_cond_signal(&a->work);
	(void)pthread_mutex_unlock(&a->lock);
}

struct ahead_dir *ahead_next_read(struct ahead *a, const struct ahead_dir *after)
{
	struct ahead_dir *d;

	(void)pthread_mutex_lock(&a->lock);
	d = after ? after->next : a->list;
	while (d && (d->state != AHEAD_DONE || !d->l.dirs_n || d->offered == d->l.n))
		d = d->next;
	(void)pthread_mutex_unlock(&a->lock);
	return d;
}

/* With the lock. */
static void wait_done(struct ahead *a, const struct ahead_dir *d)
{
	a->walk_waits = true;
	while (d->state == AHEAD_RUNNING)
		(void)pthread_cond_wait(&a->done, &a->lock);
	a->walk_waits = false;
}

/* With the lock; *at is not RUNNING. */
static struct ahead_dir *unlink_at(struct ahead *a, struct ahead_dir **at)
{
	struct ahead_dir *d = *at;

	*at = d->next;
	d->next = NULL;
	a->n--;
	a->entries -= d->l.n;
	if (a->worker_waits && pick(a))
		(void)pthread_cond_signal(&a->work);
	return d;
}

struct ahead_dir *ahead_take(struct ahead *a, const struct listing_dir *key, char *piece)
{
	struct ahead_dir **at = &a->list, *d, *other;

	(void)pthread_mutex_lock(&a->lock);
	while (*at && (*at)->key != key)
		at = &(*at)->next;
	d = *at;
	while (d && d->state == AHEAD_RUNNING) {
		other = pick(a);
		if (other)
			run(a, other, piece);
		else
			wait_done(a, d);
	}
	/* The list is changed by this thread alone: `at` still holds. */
	if (d)
		d = unlink_at(a, at);
	(void)pthread_mutex_unlock(&a->lock);
	if (d && d->state != AHEAD_DONE) {
		ahead_dir_free(d);
		d = NULL;
	}
	return d;
}

static bool is_below(const struct ahead_dir *d, const char *dir, size_t n)
{
	return !n || (d->path_len > n && d->path[n] == '/' && memcmp(d->path, dir, n) == 0);
}

void ahead_drop_below(struct ahead *a, const char *dir, size_t n)
{
	struct ahead_dir **at = &a->list, *gone = NULL, *d;

	if (!a->n)
		return;
	(void)pthread_mutex_lock(&a->lock);
	while (*at) {
		if (!is_below(*at, dir, n)) {
			at = &(*at)->next;
			continue;
		}
		wait_done(a, *at);
		d = unlink_at(a, at);
		d->next = gone;
		gone = d;
	}
	(void)pthread_mutex_unlock(&a->lock);
	while ((d = gone)) {
		gone = d->next;
		ahead_dir_free(d);
	}
}
