/*
 * chlist.h: what the sandbox has at each path that differs from what was sent in.
 *
 * Filled in stream order, sealed once (sorted by manifest_path_cmp, the last of equal paths
 * wins), then read in order or by bisection. Memory does not grow with the list: sorted runs go
 * to a spool and are merged.
 */
#ifndef AIRLOCK_SYNC_CHLIST_H
#define AIRLOCK_SYNC_CHLIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "sync/merge.h"
#include "sync/spool.h"
#include "wire/manifest.h"

#define CH_OPAQUE 1u  /* directory: what the manifest has below and the list has not is gone */
#define CH_REFUSED 2u /* judged unfit: stays behind, kind is MK_UNKNOWN */
#define CH_NEW 4u     /* not in the manifest */
#define CH_HARDLINK \
	8u /* file: content is that of the member whose path is the staged link's target */
#define CH_ALONE \
	16u /* deleted directory: those below it are listed themselves, or are decided already */
#define CH_UNHASHED \
	64u /* a new tree's file: nobody is known to compare it, so hash is of no meaning (change_hash) */
#define CH_TREE \
	32u /* staged in its place of a new tree (unpack_tree.c); id: bytes of path that name the top */

struct change {
	uint8_t kind; /* enum merge_kind of the sandbox's side */
	uint8_t flags;
	uint32_t mode;
	uint64_t seq; /* position in the stream */
	uint64_t id;  /* staged content or link; 0: none (directory, deletion, same bytes as B) */
	uint64_t size;
	int64_t mtime_ns;
	uint8_t hash[MANIFEST_HASH]; /* files: of the content; links: of the target */
	uint32_t path_len;
	char path[PATH_MEMBER_MAX + 1];
};

struct chlist;

/* dir: borrowed, where temporary files go. 0 or -ENOMEM. */
int chlist_new(int dir, struct chlist **ret);
void chlist_free(struct chlist *l);
/* 0, -E2BIG (CHANGES_BYTES_MAX), -ENOMEM, errno. Not after chlist_seal. */
int chlist_add(struct chlist *l, const struct change *c);
int chlist_seal(struct chlist *l);
uint64_t chlist_count(const struct chlist *l);
/* 0 or negative errno; i < chlist_count. */
int chlist_get(const struct chlist *l, uint64_t i, struct change *ret);
/* 1 found, 0 not, negative errno. */
int chlist_find(const struct chlist *l, const char *path, size_t n, struct change *ret);
/* *ret_i: the first entry that is `path` or comes after it. 0 or negative errno. */
int chlist_seek(const struct chlist *l, const char *path, size_t n, uint64_t *ret_i);

#endif
