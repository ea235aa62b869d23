/*
 * member_table.h: what policy/member.c remembers of a stream. Not for other code.
 *
 * paths: an open-addressing set of 64-bit words, 60 bits of keyed hash and 4 bits of kind. A word
 * is never removed, only its kind changes. links: text of every symlink, found by exact path.
 */
#ifndef AIRLOCK_POLICY_MEMBER_TABLE_H
#define AIRLOCK_POLICY_MEMBER_TABLE_H

#include "policy/member.h"

enum path_kind {
	PK_NONE = 0,
	PK_DIR,		 /* only implied by its children, or refused */
	PK_DIR_DECLARED, /* accepted: stands on the host in place of what was there */
	PK_FILE,
	PK_FILE_REFUSED,
	PK_HARDLINK,
	PK_SYMLINK, /* text in the link table */
	PK_SPECIAL,
	PK_DELETED,
	PK_UNREADABLE, /* a file that the packer could not read */
	PK_FOLDED,     /* case-folded form of a path; hashed apart from the others */
	PK_KIND_MAX = 15,
};

struct path_table {
	uint64_t *words; /* owned */
	size_t cap, used;
	uint8_t key[MEMBER_KEY];
};

uint64_t path_table_hash(const struct path_table *t, const char *p, size_t n);
enum path_kind path_table_get(const struct path_table *t, uint64_t hash);
/* Adds or changes. 0, -E2BIG (MEMBER_PATHS_MAX), -ENOMEM. */
int path_table_set(struct path_table *t, uint64_t hash, enum path_kind kind);
void path_table_done(struct path_table *t);

struct link {
	struct view path, target;
	bool refused;
	bool unchanged; /* nothing will be written, so it is not judged again */
};

struct link_table {
	struct buf text; /* records: u16 path length, u16 target length, u8 flags, bytes */
	uint32_t *slots; /* offset + 1 into text; 0: free */
	size_t cap, used;
};

void link_table_init(struct link_table *t);
void link_table_done(struct link_table *t);
/* The path must be new. 0, -E2BIG (MEMBER_LINK_BYTES_MAX), -ENOMEM. */
int link_table_add(struct link_table *t, uint64_t hash, const struct link *l,
		   const struct path_table *paths);
bool link_table_find(const struct link_table *t, uint64_t hash, struct view path, struct link *ret);
void link_table_refuse(struct link_table *t, uint64_t hash, struct view path);
/* Walks in the order of the stream; *pos starts as 0. */
bool link_table_next(const struct link_table *t, size_t *pos, struct link *ret);

struct members {
	struct member_opts o;
	const char *hostile; /* sticky */
	int failed; /* sticky: the machine could not tell (-ENOMEM, -EMFILE, -EIO ...); no verdict then */
	uint64_t count, steps;
	struct path_table paths;
	struct link_table links;
};

/* member_link.c: where the target of the symlink at path leads; NULL (inside) or the rule. */
const char *member_link_rule(struct members *m, struct view path, struct view target);

#endif
