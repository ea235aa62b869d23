/*
 * pack.h: writes what the sandbox changed as an outbound tar stream (wire/tar.h).
 *
 * Walks an overlay's upper layer (or, for delta_write in delta.h, a tree that it compares with an index)
 * from a directory descriptor, never through a symbolic link, FIFO or
 * device. Not a boundary control: it has the sandbox's authority, and the host judges every
 * member. Rules: a directory comes before its contents, names in byte order; a file has
 * the size that fstat announced, cut if it grew, padded with zeros and counted in `shrunk` if it lost bytes; one
 * that changed while it was read is sent again, and taken back (op unreadable) if it does not hold still; what cannot be read, and what lies too deep or has too long a path to be
 * named, is op unreadable, never silently absent; an entry that vanishes during the walk is skipped.
 * Of the top's .git only the names of what git would run or obey are announced (config, hooks, info/
 * attributes; .git itself when it is no directory), with no bytes: the host refuses and reports them. Where
 * the workspace is a plain copy and no overlay, nothing tells those that came in from an attempt: none is announced.
 */
#ifndef AIRLOCK_GUEST_PACK_H
#define AIRLOCK_GUEST_PACK_H

#include <stdint.h>

struct pack_result {
	uint64_t members, unreadable, shrunk, left_out;
};

/*
 * Descriptors are borrowed; out is blocking. work: the same tree, writable, or -1: through it what the owner
 * may not read gets the missing bits while it is read; the stream has the mode that it had. 0 or the
 * negative errno that ended the stream.
 */
int pack_write(int upper, int work, int out, struct pack_result *ret);

#endif
