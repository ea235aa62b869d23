/*
 * rig.h: a small workspace on a memory file system, and the inside of airlock-unpack over it, in this process.
 *
 * For the targets whose parser acts on files: the merge planner and the replay of a journal. Nothing is
 * confined here, so what a target shows about the outside of the root rests on the paths alone.
 */
#ifndef TESTS_FUZZ_RIG_H
#define TESTS_FUZZ_RIG_H

#include "base/err.h"
#include "fuzz.h"
#include "sync/unpack_server.h"

#define RIG_RUN "0123456789abcdef" /* name of the staging directory */

struct rig {
	int top;       /* the private directory: ws/, out/, run/, layer/ */
	int ws, layer; /* descriptors of two of them */
	int peer;      /* the client's end of the channel */
	struct unpack u;
	struct err e;
};

/* Fresh directories; the canary lies in out/. */
void rig_start(struct rig *g);
/* Aborts when anything outside the root changed; removes everything. */
void rig_end(struct rig *g);

/* The entry below `dir`, with its parents; what is there is not replaced. */
void rig_file(int dir, const char *path, const void *p, size_t n, mode_t mode);
void rig_link(int dir, const char *path, const char *target);
void rig_dir(int dir, const char *path, mode_t mode);

/* What is at a path, as a few bytes of text: "-", "d755", "l<target>", "f644 <content>". Never followed. */
struct seen {
	char kind; /* '-', 'd', 'f', 'l', 'o' */
	unsigned mode;
	uint64_t ino;
	int64_t mtime_ns;
	size_t n;
	char text[512]; /* content or target, cut */
};
void rig_look(int dir, const char *path, struct seen *ret);
bool rig_same(const struct seen *a, const struct seen *b, bool identity);

#endif
