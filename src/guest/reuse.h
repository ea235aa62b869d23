/*
 * reuse.h: what of a tree that lies here already is what a manifest asks for.
 *
 * The tree is that of an earlier run with the same workspace, or what a landing that was cut has brought. Content counts, not names of
 * runs: a file stays if the index of its landing (delta.h) says that nobody has touched it since and its hash is the asked one,
 * or if its bytes are read and have that hash. Everything else goes away, names that the manifest does not have as well, so
 * what is there afterwards is part of what was asked for and nothing more. A file whose first part may be there (REUSE_PART_MIN
 * and more of a longer one) is offered with the hash of that part: the sender goes on from there only if its own is the same.
 */
#ifndef AIRLOCK_GUEST_REUSE_H
#define AIRLOCK_GUEST_REUSE_H

#include "base/err.h"
#include "wire/manifest.h"
#include "wire/remote.h"

#define REUSE_PART_MIN (256u << 10)

struct reuse {
	struct rm_want want;
	bool
	    same; /* the tree is what the index says, and that is what is asked for: it is the new landing's index as well */
	char *part_path[RM_PARTS_MAX]; /* owned, beside want.part */
};

/* index: of the landing that the tree comes from; -1: none is known. 0 or negative errno with text: then the tree is of no use.
 * owner: of what landed, beside this account (struct rm_open). */
int reuse_tree(int tree, int index, uint32_t owner, const struct manifest *sent, struct reuse *ret,
	       struct err *e);
void reuse_done(struct reuse *r);

#endif
