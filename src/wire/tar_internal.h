/*
 * tar_internal.h: what the parts of the tar codec share. Not for other code.
 *
 * A part that judges foreign bytes returns NULL or the stable name of the rule that they
 * break (tar_rules.c says each in words), or tar_nomem. Nothing here keeps state of the stream.
 */
#ifndef AIRLOCK_WIRE_TAR_INTERNAL_H
#define AIRLOCK_WIRE_TAR_INTERNAL_H

#include "base/limits.h"
#include "wire/tar.h"

#define TAR_BLOCK 512
/* 2262-01-01: the last second whose nanoseconds fit an int64_t comfortably. */
#define TAR_MTIME_MAX_S INT64_C(9214646400)

/* Not a rule: memory ran out while judging. Compare by address. */
extern const char tar_nomem[];

enum tar_format {
	TAR_V7,
	TAR_USTAR, /* also PAX */
	TAR_GNU,
};

/* One header block in fields; the views point into the block. */
struct tar_head {
	enum tar_format format;
	char typeflag;
	uint32_t mode;
	uint64_t size;
	int64_t mtime_s;
	struct view name, prefix, link;
};

bool tar_block_is_zero(const uint8_t *b);
const char *tar_head_parse(const uint8_t *b, struct tar_head *ret);
/* Octal or base-256 field that may not be negative. */
const char *tar_field_u64(const uint8_t *p, size_t n, uint64_t *ret);

/* out: PATH_MEMBER_MAX + 1 bytes, receives the member path, NUL-terminated; "." gives "". */
const char *tar_name_clean(const char *p, size_t n, char *out, size_t *ret_len, bool *ret_slash);

/* Extents in rising order. `stored` is the sum of their lengths. */
struct tar_sparse {
	struct tar_extent *v; /* owned */
	size_t n, cap;
	uint64_t end, stored;
};

void tar_sparse_reset(struct tar_sparse *s);
void tar_sparse_done(struct tar_sparse *s);
const char *tar_sparse_add(struct tar_sparse *s, uint64_t off, uint64_t len);
/* The pairs of an old GNU header (4) or of an extension block (21). */
const char *tar_sparse_gnu(struct tar_sparse *s, const uint8_t *p, size_t pairs);
/* "off,len,off,len": PAX 0.1. */
const char *tar_sparse_map(struct tar_sparse *s, struct view text);

/* The decimal lines before the data of a PAX 1.0 sparse member, fed byte by byte. */
struct tar_map1 {
	uint64_t value, off, want, seen; /* want: numbers after the first line */
	unsigned digits;
	bool have_count;
};
/* 1 the last line is complete, 0 go on, -1 with *rule. */
int tar_map1_feed(struct tar_map1 *m, uint8_t c, struct tar_sparse *s, const char **rule);

/* What the extension headers before a member say. */
struct tar_ext {
	bool pax, gnu, has_path, has_link, has_size, has_mtime;
	struct buf path, link; /* path: GNU.sparse.name wins over path */
	uint64_t size;
	int64_t mtime_ns;
	enum tar_op op;
	/* PAX sparse */
	unsigned sparse_keys; /* bits of enum tar_sparse_key */
	uint64_t sparse_major, sparse_minor, sparse_size, sparse_blocks, sparse_off;
	struct buf sparse_name;
	struct tar_sparse map;
};

enum tar_sparse_key {
	SPARSE_MAJOR = 1 << 0,
	SPARSE_MINOR = 1 << 1,
	SPARSE_NAME = 1 << 2,
	SPARSE_SIZE = 1 << 3,
	SPARSE_REALSIZE = 1 << 4,
	SPARSE_BLOCKS = 1 << 5,
	SPARSE_MAP = 1 << 6,
	SPARSE_LIST = 1 << 7,
	SPARSE_OPEN = 1 << 8, /* an offset waits for its numbytes */
};

void tar_ext_init(struct tar_ext *x);
void tar_ext_reset(struct tar_ext *x);
void tar_ext_done(struct tar_ext *x);
/* Records of an `x` header, or of a `g` header (global: only what harms nobody). */
const char *tar_pax_parse(struct tar_ext *x, const char *p, size_t n, bool global);
/* Payload of a GNU `L` (path) or `K` (link target) header. */
const char *tar_gnu_long(struct tar_ext *x, const char *p, size_t n, bool link);

/* What is still to come before the data of a sparse member. */
enum tar_map_rest {
	TAR_MAP_READY,
	TAR_MAP_GNU,  /* blocks that continue an old GNU map */
	TAR_MAP_PAX1, /* decimal lines */
};

/* The current member and what its headers said. */
struct tar_cur {
	struct tar_ext ext;
	bool has_global_mtime;
	int64_t global_mtime_ns;
	struct tar_member member; /* views into path and target */
	char path[PATH_MEMBER_MAX + 1], target[PATH_MEMBER_MAX + 1];
	bool named; /* path is of this member; after a rule about its name: the name as it came */
	uint64_t stored; /* bytes in the stream */
	struct tar_sparse gnu_map;
	struct tar_sparse *map; /* NULL if it is not sparse */
	enum tar_map_rest map_rest;
};

/* b: the header block; offset: where it lies in the stream. Fills c->member, map and map_rest. */
const char *tar_member_judge(struct tar_cur *c, const struct tar_head *h, const uint8_t *b,
			     uint64_t offset);
/* One block that continues an old GNU map; map_rest becomes TAR_MAP_READY with the last. */
const char *tar_map_gnu_more(struct tar_cur *c, const uint8_t *b);
/* A complete map must lie in the file and account for all its data (c->stored). */
const char *tar_map_end(const struct tar_cur *c);

#endif
