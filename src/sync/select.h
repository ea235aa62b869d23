/*
 * select.h: the walk over a host workspace: what travels, in manifest order.
 *
 * Every entry that travels is given out once, in rising byte order of its path, with the stat
 * that a reader may compare later. No file is opened here but ignore files. Directories are
 * opened one by one from their parent's descriptor without following links, so the walk never
 * leaves the workspace; another file system mounted inside is not entered (note "mount").
 * Names are any bytes. Cost: one listing a directory, one stat an entry; in trees that are not
 * small a second thread reads directories ahead (ahead.h). Callbacks come from the caller's.
 */
#ifndef AIRLOCK_SYNC_SELECT_H
#define AIRLOCK_SYNC_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sync/rules.h"

struct select_entry {
	char kind; /* 'd', 'f', 'l' */
	uint32_t mode;
	uint64_t size, ino;
	int64_t mtime_ns, ctime_ns;
	const char *path; /* NUL-terminated; valid during the call */
	size_t path_len;
	const char *target; /* 'l' */
	size_t target_len;
};

struct select_opts {
	int root_fd; /* the workspace, borrowed */
	struct rules *rules;
	dev_t skip_dev; /* a directory never entered: the store, should it lie inside */
	ino_t skip_ino;
	const volatile int *cancel;
	/* Negative stops the walk with that code; 1 stops it with 0. */
	int (*emit)(void *arg, const struct select_entry *s, struct err *e);
	/* reason: a stable word; see struct sync_note. */
	int (*note)(void *arg, const char *path, size_t n, const char *reason);
	/* A path that a rule of the user keeps out (exclude, .airlockignore). May be NULL. */
	void (*held)(void *arg, const char *path, size_t n);
	void *arg;
	uint64_t excluded; /* out: entries left out by rules; a directory counts once */
};

int select_walk(struct select_opts *o, struct err *e);

#endif
