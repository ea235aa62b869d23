/*
 * tarout.h: results by plain tar over exec: for places that have no packer of ours.
 *
 * `tar` runs inside, on the whole workspace, with the sandbox's authority and nothing else; the stream goes
 * to airlock-unpack as a whole tree and is compared with the manifest on the host. The archiver says only by
 * its exit status that it could not read something, and its messages are not to be relied on: then no
 * deletion is taken over, and the results count as incomplete.
 */
#ifndef AIRLOCK_ENGINE_TAROUT_H
#define AIRLOCK_ENGINE_TAROUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "provider/provider.h"

#define TAROUT_SAID 4096

struct tarout {
	struct sandbox *sb; /* borrowed */
	uint32_t id;
	int said;		    /* owned: read end of its stderr */
	char tail[TAROUT_SAID + 1]; /* the end of what it said */
	size_t tail_len;
	bool ended; /* its end is known */
	int code, signo;
	int fail; /* negative errno: it did not run, or its end is not known */
	struct err why;
};

#define TAROUT_INIT ((struct tarout){.said = -1})

/* Any archiver or unarchiver inside; in -1: nothing to read. Descriptors are borrowed. */
int tarout_exec(struct tarout *t, struct sandbox *sb, const char *const *argv, int in, int out,
		struct err *e);
/* Starts it on the workspace; out_fd is borrowed. */
int tarout_start(struct tarout *t, struct sandbox *sb, int out_fd, struct err *e);
/* Takes what it says, and keeps the end of that, and hears the sandbox: to be called while its stream is read, elsewhere it stops when nobody does. */
void tarout_turn(struct tarout *t);
/* Waits for its end (START_TIMEOUT_MS). 0, also when it failed; negative: as t->fail. */
int tarout_wait(struct tarout *t, struct err *e);
/* After tarout_wait: did it read everything? If not, e says what it said. */
bool tarout_whole(struct tarout *t, struct err *e);
void tarout_done(struct tarout *t);

struct run_ui; /* engine/ui.h */

/* A tar stream on its way to airlock-unpack. */
struct tarout_end {
	struct tarout t;
	bool partial; /* tar did not say that it read everything */
	const struct run_ui *ui;
};

/* For unpack_opts.complete, arg a tarout_end: did tar say that the stream is whole? If not, the user is told. */
int tarout_complete(void *arg, bool *ret_partial, struct err *e);

#endif
