#include "base/blake2b.h"

#include <string.h>

static const uint64_t iv[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};

static const uint8_t sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t load(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 8; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

static inline uint64_t right(uint64_t v, unsigned n)
{
	return v >> n | v << (64 - n);
}

static inline void mix(uint64_t v[16], size_t a, size_t b, size_t c, size_t d, uint64_t x,
		       uint64_t y)
{
	v[a] += v[b] + x;
	v[d] = right(v[d] ^ v[a], 32);
	v[c] += v[d];
	v[b] = right(v[b] ^ v[c], 24);
	v[a] += v[b] + y;
	v[d] = right(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = right(v[b] ^ v[c], 63);
}

static void compress(struct blake2b *b, const uint8_t *p, uint64_t last)
{
	uint64_t v[16], m[16];

	for (size_t i = 0; i < 16; i++)
		m[i] = load(p + 8 * i);
	for (size_t i = 0; i < 8; i++) {
		v[i] = b->h[i];
		v[i + 8] = iv[i];
	}
	v[12] ^= b->bytes;
	v[14] ^= last;
	for (size_t round = 0; round < 12; round++) {
		const uint8_t *s = sigma[round % 10];

		for (size_t i = 0; i < 4; i++)
			mix(v, i, i + 4, i + 8, i + 12, m[s[2 * i]], m[s[2 * i + 1]]);
		for (size_t i = 0; i < 4; i++)
			mix(v, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12,
			    m[s[2 * i + 8]], m[s[2 * i + 9]]);
	}
	for (size_t i = 0; i < 8; i++)
		b->h[i] ^= v[i] ^ v[i + 8];
}

void blake2b_init(struct blake2b *b)
{
	memset(b, 0, sizeof(*b));
	memcpy(b->h, iv, sizeof(iv));
	/* Parameters: one node, no key, this many bytes of result. */
	b->h[0] ^= 0x01010000u ^ BLAKE2B_OUT;
}

void blake2b_update(struct blake2b *b, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n) {
		size_t k = BLAKE2B_BLOCK - b->fill;

		/* A full block waits: whether it is the last one is not known yet. */
		if (!k) {
			b->bytes += BLAKE2B_BLOCK;
			compress(b, b->block, 0);
			b->fill = 0;
			continue;
		}
		if (k > n)
			k = n;
		memcpy(b->block + b->fill, p, k);
		b->fill += k;
		p += k;
		n -= k;
	}
}

void blake2b_final(struct blake2b *b, uint8_t out[BLAKE2B_OUT])
{
	b->bytes += b->fill;
	memset(b->block + b->fill, 0, BLAKE2B_BLOCK - b->fill);
	compress(b, b->block, UINT64_MAX);
	for (size_t i = 0; i < BLAKE2B_OUT; i++)
		out[i] = (uint8_t)(b->h[i / 8] >> 8 * (i % 8));
}
