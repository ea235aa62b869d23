/*
 * image.h: system images, from foreign bytes to a tree that a sandbox is started from.
 *
 * An image is a directory tree without owners, devices, set-id bits and attributes: directories, files that are
 * executable or not, symbolic links. Its digest is the SHA-256 of a canonical list of these, so the same contents have the
 * same digest whichever way they came, and anybody can compute it again from the tree (image_digest).
 *
 * airlock-image makes the tree (image_server.h), confined, because archive, compression and JSON are foreign. The
 * client's part is here: it opens the source, makes the directory, names the result.
 */
#ifndef AIRLOCK_SYNC_IMAGE_H
#define AIRLOCK_SYNC_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define IMAGE_HEX 64 /* of a digest, without "sha256:" */
#define IMAGE_TREE "tree"

struct image_facts {
	char digest[IMAGE_HEX + 1];
	char source[IMAGE_HEX + 1]; /* digest of the OCI manifest; "" if it was a plain archive */
	char arch[16];		    /* as its configuration says; "" */
	uint64_t files, dirs, links, bytes;
	uint32_t layers;
	uint64_t specials;   /* devices, FIFOs, sockets: left out */
	uint64_t privileged; /* set-uid, set-gid bits: taken away */
};

/*
 * SHA-256 over the tree at dir (borrowed): fills digest and the four counts. Fails on what no image has (special files,
 * names or depths over the limits). Follows no link.
 */
int image_digest(int dir, struct image_facts *ret, struct err *e);

struct image_source {
	int fd; /* borrowed: an archive, or a directory with an OCI layout */
	bool directory;
	const char *ref; /* of an OCI layout with several images; NULL */
	bool without_landlock;
	const volatile int *cancel; /* may be NULL */
};

/*
 * Starts airlock-image, which fills the empty directory `into` (borrowed) with IMAGE_TREE and nothing else. On failure what
 * it left there is the caller's to remove.
 */
int image_unpack(const struct image_source *s, int into, struct image_facts *ret, struct err *e);

/* True for 64 small hexadecimal digits. */
bool image_is_hex(const char *s);

#endif
