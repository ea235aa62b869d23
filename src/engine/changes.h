/*
 * changes.h: what a run changed, as a list that can be shown.
 *
 * Two sources. A set that waits (run --review): exactly what an apply would bring, with the host's state now. A run that
 * is over: its record (changes.jsonl) says which paths; the bytes are what was sent in as long as its copy is
 * kept, what lies in the run's trash and conflict copies, and the workspace as it is now.
 *
 * Memory follows the number of changed paths; contents are read one file at a time.
 */
#ifndef AIRLOCK_ENGINE_CHANGES_H
#define AIRLOCK_ENGINE_CHANGES_H

#include "engine/changeset.h"
#include "sync/patch.h"

enum change_flag {
	CHANGE_CONFLICT = 1 << 0, /* both sides; the host's stays */
	CHANGE_MERGED = 1 << 1,	  /* both sides; the texts merge */
	CHANGE_REFUSED = 1 << 2,  /* not for the host; there is nothing to show but the reason */
	CHANGE_FAILED = 1 << 3,	  /* the host refuses */
	CHANGE_HOST_EXEC = 1 << 4,
	CHANGE_DONE = 1 << 5, /* the host has it already */
	CHANGE_NOTE = 1 << 6, /* a directory: a line, no patch */
};

struct shown_side {
	enum merge_kind kind; /* MK_FILE, MK_LINK, else nothing */
	uint32_t perm;
	uint64_t size;
	uint8_t hash[MANIFEST_HASH];
};

struct shown {
	char *path; /* owned */
	char *from; /* owned; of a rename, else NULL */
	char
	    *file; /* owned; in the run's directory: the bytes of the new side, or of the old one */
	bool file_is_old;
	char
	    letter; /* as git diff --name-status: A M D T R; "!" refused, "U" conflict are by flag */
	unsigned flags, similarity;
	char rule[40];
	struct shown_side a, b;
};

struct changes {
	const struct changeset *set; /* borrowed */
	struct changeset_part *part; /* owned: where it all lies */
	char *prefix;	       /* owned: goes before each path that is shown; "" in the workspace */
	struct review *review; /* owned */
	bool waiting;	       /* source: the set; else the record */
	struct shown *v;       /* owned, in path order */
	size_t n, cap;
	char *shown[2]; /* owned: names of changes_sides */
};

struct changes_filter {
	bool (*match)(void *arg, size_t part, const char *path);
	void *arg;
};

/* Paths of one part that match only. 0, negative errno. */
int changes_load(struct changes *c, const struct changeset *set, size_t part,
		 const struct changes_filter *f, struct err *e);
void changes_done(struct changes *c);
/* Fills both sides of one file; a and b hold the bytes, names are c's until the next call. 0 or negative errno. */
int changes_sides(struct changes *c, const struct shown *s, struct buf *a, struct buf *b,
		  struct patch_file *ret, struct err *e);

#endif
