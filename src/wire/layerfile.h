/*
 * layerfile.h: a layer of a base as one file, for environments to which bases are sent and where nobody mounts them.
 *
 * To create 20,000 files costs more than to read them, and the other machine has to create them anyway. So here are only the contents,
 * one behind the other, then an index, sorted, then where that begins:
 *
 *   bytes of files ...
 *   { hash[32], u64 at, u64 size } ...
 *   "airlock-layer 1\n", u64 entries, u64 where the index begins
 *
 * A file is found by the hash that the manifest (manifest.h) says of it; directories and links are in the manifest
 * alone. Contents that do not fill their place in the file (one that was given up) are in no entry. Numbers are little-endian.
 *
 * A reader maps the index, so its memory is the kernel's to take back. The file is our own, as every layer: a broken index is refused, and who
 * needs to be sure of the bytes hashes them, as with a layer that is a directory.
 */
#ifndef AIRLOCK_WIRE_LAYERFILE_H
#define AIRLOCK_WIRE_LAYERFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/manifest.h"

struct layerfile_entry {
	uint8_t hash[MANIFEST_HASH];
	uint64_t at, size;
};

/*
 * Behind `end` bytes of contents: the index and the last words. Sorts entries. The caller renames the file. 0 or negative
 * errno.
 */
int layerfile_finish(int fd, uint64_t end, struct layerfile_entry *entries, size_t n);

struct layerfile;

/* fd stays the caller's. 0; -EPROTO with text; errno. */
int layerfile_open(int fd, struct layerfile **ret, struct err *e);
void layerfile_free(struct layerfile *l);
/* 1: *ret_at is where the file's bytes begin; 0: they are not in this layer. */
int layerfile_find(const struct layerfile *l, const struct manifest_entry *m, uint64_t *ret_at);

#endif
