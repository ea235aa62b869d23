/*
 * loop.h: one thread waiting for many descriptors (epoll, level-triggered), and for one deadline.
 *
 * A watch lives in its owner's struct. Removing one is safe at any time, also from a callback of the
 * same turn: events of that turn that are still waiting for it are dropped. Deadlines are not a list here:
 * owners with limits of seconds look at all of theirs in `tick`.
 */
#ifndef AIRLOCK_OS_LOOP_H
#define AIRLOCK_OS_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/err.h"

#define LOOP_BATCH 64

struct loop_watch {
	int fd; /* borrowed; -1: not watched */
	uint32_t events;
	void (*ready)(struct loop_watch *w, uint32_t events);
};

struct loop {
	int ep;
	bool stop;
	int64_t wake_ns; /* tick is called then at the latest; INT64_MAX: only after events */
	uint64_t looks;	 /* turns that told all that was to be told, so far */
	struct epoll_event batch[LOOP_BATCH];
	int batch_at, batch_len;
};

int loop_init(struct loop *l, struct err *e);
void loop_done(struct loop *l);
/* Starts watching fd. 0 or a negative errno (-EPERM: a plain file, which never blocks). */
int loop_add(struct loop *l, struct loop_watch *w, int fd, uint32_t events,
	     void (*ready)(struct loop_watch *w, uint32_t events));
/* Other events for the same descriptor; no call when nothing changes. */
void loop_mod(struct loop *l, struct loop_watch *w, uint32_t events);
void loop_del(struct loop *l, struct loop_watch *w);
/*
 * Runs until l->stop. tick is called after each turn, and sets l->wake_ns to the next deadline
 * (clock_mono_ns). 0 or a negative errno.
 */
int loop_run(struct loop *l, void (*tick)(void *arg, int64_t now_ns), void *arg, struct err *e);

#endif
