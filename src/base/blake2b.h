/*
 * blake2b.h: BLAKE2b-256 without a key (RFC 7693), the content hash of manifests.
 *
 * For the static programs of a sandbox, which no library of ours goes into. On the host libsodium does the same
 * (crypto_generichash, 32 bytes); a test compares the two. No secrets are hashed with this.
 */
#ifndef AIRLOCK_BASE_BLAKE2B_H
#define AIRLOCK_BASE_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE2B_BLOCK 128
#define BLAKE2B_OUT 32

struct blake2b {
	uint64_t h[8];
	uint64_t bytes; /* 2^64 are enough: a file has at most 2^63 */
	size_t fill;
	uint8_t block[BLAKE2B_BLOCK];
};

void blake2b_init(struct blake2b *b);
void blake2b_update(struct blake2b *b, const void *p, size_t n);
void blake2b_final(struct blake2b *b, uint8_t out[BLAKE2B_OUT]);

#endif
