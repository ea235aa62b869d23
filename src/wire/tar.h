/*
 * tar.h: Airlock's own tar reader and writer. Part of door 1.
 *
 * Reader: sans-I/O, single pass, bounded memory (TAR_HEADERS_MAX and one path). Reads v7,
 * ustar, GNU (L, K, sparse) and PAX. It enforces what one header can show: format,
 * checksum, numbers, name syntax (relative, no "..", no NUL, lengths of limits.h), two end
 * blocks. Anything else is hostile: it returns -EBADMSG once and for all, with the rule's
 * name and the offset. It never decompresses, never skips garbage, never guesses. What
 * needs a view across members or of the host (links, duplicates, .git) is policy/member.h.
 *
 * Writer: deterministic PAX/ustar for the guest's packer and for tests.
 *
 * Records of our own, as PAX keys: AIRLOCK.op = "delete" (the path is gone in the sandbox),
 * "opaque" (on a directory: what the manifest has below it and the stream does not bring is
 * gone), "unreadable" (the packer could not read it: unknown, never deleted).
 */
#ifndef AIRLOCK_WIRE_TAR_H
#define AIRLOCK_WIRE_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"

enum tar_type {
	TAR_FILE,
	TAR_DIR,
	TAR_SYMLINK,
	TAR_HARDLINK,
	TAR_SPECIAL, /* device, FIFO, socket: named, never made */
};

enum tar_op {
	TAR_OP_NONE,
	TAR_OP_DELETE,
	TAR_OP_OPAQUE,
	TAR_OP_UNREADABLE,
};

struct tar_member {
	enum tar_type type;
	enum tar_op op;
	struct view path;   /* member path (base/path.h); empty for "." itself */
	struct view target; /* links only; hard links: a member path */
	uint32_t mode;	    /* as written, 07777; the consumer masks it */
	uint64_t size;	    /* logical bytes; sparse: with holes */
	int64_t
	    mtime_ns;  /* within the years 1678..2261; without a record of its own from 1970 on */
	char typeflag; /* as written */
	bool sparse;
	uint64_t header_offset; /* in the stream, for messages */
};

enum tar_event {
	TAR_NEED = 0, /* input used up: feed more, or call tar_reader_finish */
	TAR_MEMBER,   /* r->member is valid until the next call */
	TAR_DATA, /* r->data: bytes (in the caller's input), r->data_offset: where in the file */
	TAR_MEMBER_END,
	TAR_END, /* end mark seen; further input is ignored */
};

struct tar_limits {
	uint64_t members, member_size, total_size; /* logical; 0: the default of limits.h */
};

struct tar_reader; /* opaque; tar_reader_new/_free */

struct tar_out {
	struct tar_member member;
	struct view data;
	uint64_t data_offset;
	const char *rule; /* on -EBADMSG: stable rule name ("bad_checksum", "dotdot", ...) */
	uint64_t offset;  /* on -EBADMSG: stream offset */
};

/* limits may be NULL. 0 or -ENOMEM. */
int tar_reader_new(const struct tar_limits *limits, struct tar_reader **ret);
void tar_reader_free(struct tar_reader *r);
/*
 * Advances by one event. Consumes from *p / *n (both are moved on). Returns an
 * enum tar_event, or -EBADMSG (out->rule set, e filled; sticky), -ENOMEM.
 */
int tar_reader_next(struct tar_reader *r, const uint8_t **p, size_t *n, struct tar_out *out,
		    struct err *e);
/* At end of input: 0 if the end mark was seen, else -EBADMSG with rule "truncated". */
int tar_reader_finish(struct tar_reader *r, struct tar_out *out, struct err *e);

/* A rule in words. */
const char *tar_rule_text(const char *rule);

/*
 * Writer: appends the header blocks of m to out (path and target verbatim; PAX headers where
 * ustar cannot hold a value; size 0 for anything but TAR_FILE). The caller then writes exactly
 * m->size bytes and tar_put_padding(out, m->size). 0, -E2BIG, -ENOMEM.
 */
int tar_put_header(struct buf *out, const struct tar_member *m);
int tar_put_padding(struct buf *out, uint64_t size);
/* One piece of a file with holes. */
struct tar_extent {
	uint64_t off, len;
};
/*
 * The same for a file with holes (PAX sparse 1.0): the caller then writes the bytes of the pieces, which rise and
 * do not touch, and the padding of their sum.
 */
int tar_put_sparse(struct buf *out, const struct tar_member *m, const struct tar_extent *v,
		   size_t n);
/* The two end blocks. */
int tar_put_end(struct buf *out);

#endif
