/* For libFuzzer: mutations with repaired checksums, and now and then a fresh built-in seed. */
#include <string.h>

#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *p, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned int seed);

size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned int seed)
{
	uint32_t s = seed | 1;

	if (n < 8 || fuzz_random(&s) % 256 == 0) {
		_cleanup_buf_ struct buf b = BUF_INIT(FUZZ_SEED_MAX);

		if (fuzz_seed(fuzz_random(&s) % 180, &b) && b.len > 0 && b.len <= max) {
			memcpy(p, b.data, b.len);
			return b.len;
		}
	}
	n = LLVMFuzzerMutate(p, n, max);
	fuzz_repair(p, n);
	return n;
}
