/*
 * pack_internal.h: what the walk (pack.c) and the members that it writes (pack_member.c) share. Nobody else includes it.
 *
 * A function that puts something returns 0, or the negative errno that ends the stream. path_len: the entry is
 * p->path[0..path_len).
 */
#ifndef AIRLOCK_GUEST_PACK_INTERNAL_H
#define AIRLOCK_GUEST_PACK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/limits.h"
#include "guest/delta.h"
#include "guest/names.h"
#include "guest/pack.h"
#include "wire/tar.h"

struct level {
	int fd;
	struct names names;
	size_t next;
	size_t path_len;
	size_t base_at; /* position in the index */
	mode_t own_mode;
	bool lent; /* own_mode is to be put back when it is closed */
};

struct pack {
	int out, work;
	bool plain; /* a copy of the workspace, not a layer */
	struct delta
	    *base; /* only what differs from it goes; NULL: the tree is an overlay's layer */
	enum delta_look look; /* the entry at hand, compared with it */
	struct buf stream;
	uint64_t sum; /* of the bytes of the file at hand */
	struct pack_result *res;
	char path[PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 2];
	struct level levels[PATH_DEPTH_MAX];
	size_t depth; /* open levels; level 0 is the top */
};

/* Writes out what is collected. */
int pack_flush(struct pack *p);

struct tar_member pack_member_of(const struct pack *p, size_t path_len, enum tar_type type,
				 const struct stat *st);
int pack_put_member(struct pack *p, const struct tar_member *m);
int pack_put_op(struct pack *p, size_t path_len, enum tar_type type, enum tar_op op);
/* After a failed open: gone is gone, everything else is unknown to the host, never deleted. */
int pack_put_unopened(struct pack *p, size_t path_len, enum tar_type type, int error);
int pack_put_file(struct pack *p, int dir, const char *name, size_t path_len,
		  const struct stat *before);
int pack_put_link(struct pack *p, int dir, const char *name, size_t path_len,
		  const struct stat *st);
int pack_put_special(struct pack *p, size_t path_len, const struct stat *st);

/* Overlay marks live in one of two name spaces, by the way it was mounted. */
bool pack_has_mark(int fd, const char *user, const char *trusted, char value);

/*
 * Sets the mode of p->path[0..path_len) through the workspace, for the layer is mounted read-only here. By
 * /proc, because chmod by name would follow a link that has just taken the place.
 */
bool pack_set_mode(struct pack *p, size_t path_len, mode_t mode);

/*
 * The command may have taken the right to read from its own files; their contents are results all the same.
 * True: the bits in `need` were added, and the caller puts st_mode back. A packer that is killed in
 * between leaves them added.
 */
bool pack_lend(struct pack *p, size_t path_len, const struct stat *st, mode_t need);

#endif
