#include "sync/layer_sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define STAGE (1 << 20)

/* All into one. ------------------------------------------------------------------------------- */

int layer_onefile_init(struct layer_onefile *of, int fd)
{
	*of = (struct layer_onefile){.fd = fd};
	(void)pthread_mutex_init(&of->tail_lock, NULL);
	for (size_t i = 0; i < LAYER_LANES; i++) {
		of->lane[i].of = of;
		of->lane[i].stage = malloc(STAGE);
		if (!of->lane[i].stage)
			return -ENOMEM;
	}
	return 0;
}

void layer_onefile_done(struct layer_onefile *of)
{
	for (size_t i = 0; i < LAYER_LANES; i++) {
		free(of->lane[i].stage);
		free(of->lane[i].v);
	}
	(void)pthread_mutex_destroy(&of->tail_lock);
}

/* Whole files that are gathered, up to the present one. */
static int flush(struct layer_lane *l)
{
	struct layer_onefile *of = l->of;
	uint64_t at;
	int r;

	if (!l->start)
		return 0;
	(void)pthread_mutex_lock(&of->tail_lock);
	at = of->tail;
	of->tail += l->start;
	(void)pthread_mutex_unlock(&of->tail_lock);
	r = fd_write_at(of->fd, l->stage, l->start, at);
	if (r < 0)
		return r;
	for (; l->settled < l->n; l->settled++)
		l->v[l->settled].at += at;
	memmove(l->stage, l->stage + l->start, l->len - l->start);
	l->len -= l->start;
	l->start = 0;
	return 0;
}

static int put_alone(struct layer_lane *l, const char *p, size_t n)
{
	int r = fd_write_at(l->of->fd, p, n, l->at + l->done);

	l->done += n;
	return r;
}

/* Ended by layer_sink_end or _restart, whatever fails meanwhile. */
static int go_alone(struct layer_lane *l)
{
	size_t n = l->len;

	(void)pthread_mutex_lock(&l->of->tail_lock);
	l->alone = true;
	l->at = l->of->tail;
	l->done = 0;
	l->len = 0;
	return put_alone(l, l->stage, n);
}

/* Room for n bytes, or the end of the file. */
static int make_room(struct layer_lane *l, size_t n)
{
	int r = l->alone || l->len + n <= STAGE ? 0 : flush(l);

	return r < 0 || l->alone || l->len + n <= STAGE ? r : go_alone(l);
}

static int restart(struct layer_lane *l)
{
	int r = 0;

	l->len = l->start;
	if (!l->alone)
		return 0;
	if (ftruncate(l->of->fd, (off_t)l->at) < 0)
		r = -errno;
	l->alone = false;
	(void)pthread_mutex_unlock(&l->of->tail_lock);
	return r;
}

static struct layerfile_entry *new_entry(struct layer_lane *l)
{
	size_t cap = l->cap ? l->cap * 2 : 1024;
	struct layerfile_entry *v;

	if (l->n < l->cap)
		return &l->v[l->n];
	v = reallocarray(l->v, cap, sizeof(*v));
	if (!v)
		return NULL;
	l->v = v;
	l->cap = cap;
	return &v[l->n];
}

static int end_alone(struct layer_lane *l)
{
	l->settled = l->n;
	l->of->tail = l->at + l->done;
	l->alone = false;
	(void)pthread_mutex_unlock(&l->of->tail_lock);
	return 0;
}

static int end(struct layer_lane *l, uint64_t size, const uint8_t hash[MANIFEST_HASH])
{
	struct layerfile_entry *x = new_entry(l);

	if (!x) {
		(void)restart(l);
		return -ENOMEM;
	}
	memcpy(x->hash, hash, MANIFEST_HASH);
	x->size = size;
	x->at = l->alone ? l->at : l->start;
	l->n++;
	if (l->alone)
		return end_alone(l);
	l->start = l->len;
	return 0;
}

int layer_onefile_finish(struct layer_onefile *of)
{
	struct layer_lane *first = &of->lane[0];
	int r = 0;

	for (size_t i = 0; r == 0 && i < LAYER_LANES; i++) {
		struct layer_lane *l = &of->lane[i];

		r = flush(l);
		for (size_t k = 0; r == 0 && i && k < l->n; k++) {
			struct layerfile_entry *x = new_entry(first);

			if (!x)
				return -ENOMEM;
			*x = l->v[k];
			first->n++;
		}
	}
	return r < 0 ? r : layerfile_finish(of->fd, of->tail, first->v, first->n);
}

/* Either. ------------------------------------------------------------------------------------- */

int layer_sink_put(const struct layer_sink *s, const char *p, size_t n)
{
	struct layer_lane *l = s->lane;
	int r = 0;

	if (!l) {
		for (ssize_t k; s->fd >= 0 && n; p += k, n -= (size_t)k) {
			k = write(s->fd, p, n);
			if (k < 0 && errno != EINTR)
				return -errno;
			k = k < 0 ? 0 : k;
		}
		return 0;
	}
	r = make_room(l, n);
	if (r < 0 || l->alone)
		return r < 0 ? r : put_alone(l, p, n);
	memcpy(l->stage + l->len, p, n);
	l->len += n;
	return 0;
}

int layer_sink_zeros(const struct layer_sink *s, size_t n)
{
	struct layer_lane *l = s->lane;
	int r;

	if (!l)
		return s->fd >= 0 && lseek(s->fd, (off_t)n, SEEK_CUR) < 0 ? -errno : 0;
	r = make_room(l, n);
	if (r < 0)
		return r;
	if (l->alone) {
		l->done += n;
		return 0;
	}
	memset(l->stage + l->len, 0, n);
	l->len += n;
	return 0;
}

int layer_sink_restart(const struct layer_sink *s)
{
	if (s->lane)
		return restart(s->lane);
	return s->fd >= 0 && (ftruncate(s->fd, 0) < 0 || lseek(s->fd, 0, SEEK_SET) < 0) ? -errno
											: 0;
}

int layer_sink_end(const struct layer_sink *s, uint64_t size, const uint8_t hash[MANIFEST_HASH])
{
	return s->lane ? end(s->lane, size, hash) : 0;
}
