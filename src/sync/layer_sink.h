/*
 * layer_sink.h: where the contents of a layer's files go: each into a file of its own, or all into one (wire/layerfile.h).
 *
 * Into one: each thread has a lane. Small files are gathered in it and written many at once, at a place that is
 * taken from the end of the file; so the threads meet once in some hundred files. One that does not fit in the lane's memory has the end of the file for
 * itself until it is whole, since nobody knows how long it gets; the other thread waits for that when its own
 * memory is full. What is given up (the file changed, it vanished) leaves no bytes behind that could shine through a hole
 * of a later one.
 */
#ifndef AIRLOCK_SYNC_LAYER_SINK_H
#define AIRLOCK_SYNC_LAYER_SINK_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/layerfile.h"

#define LAYER_LANES 2

struct layer_onefile;

struct layer_lane {
	struct layer_onefile *of;
	char *stage;	   /* owned */
	size_t len, start; /* in stage; start: of the present file */
	bool alone;	   /* it holds the end: at, and `done` bytes of it are written */
	uint64_t at, done;
	struct layerfile_entry *v; /* owned; those before `settled` have their place in the file */
	size_t n, cap, settled;
};

struct layer_onefile {
	int fd; /* borrowed */
	pthread_mutex_t tail_lock;
	uint64_t tail;
	struct layer_lane lane[LAYER_LANES];
};

/* fd -1 and lane NULL: nowhere. */
struct layer_sink {
	int fd;
	struct layer_lane *lane;
};

int layer_onefile_init(struct layer_onefile *of, int fd);
void layer_onefile_done(struct layer_onefile *of);
/* When no thread works any more: the index. */
int layer_onefile_finish(struct layer_onefile *of);

/* All 0 or negative errno; the writers of one sink are one thread. */
int layer_sink_put(const struct layer_sink *s, const char *p, size_t n);
/* n zeros, which need no room. */
int layer_sink_zeros(const struct layer_sink *s, size_t n);
/* What came of the present file goes. Harmless when there is none. */
int layer_sink_restart(const struct layer_sink *s);
/* The present file is whole. */
int layer_sink_end(const struct layer_sink *s, uint64_t size, const uint8_t hash[MANIFEST_HASH]);

#endif
