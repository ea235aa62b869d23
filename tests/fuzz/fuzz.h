/*
 * fuzz.h: what every fuzz target offers, to libFuzzer (option `fuzz`, clang) and to replay.c, which
 * runs the same target in the normal suite: all seeds, the files of tests/fuzz/corpus/<target>, and
 * a fixed number of mutations that are the same in every run.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define FUZZ_INPUT_MAX ((size_t)1 << 20) /* bytes of a file */
#define FUZZ_SEED_MAX ((size_t)16 << 20)

/* Aborts when an invariant of the target does not hold. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
/* The i-th built-in seed; false when there are no more. */
bool fuzz_seed(size_t i, struct buf *b);
/* Makes a mutated input plausible again (checksums); may do nothing. */
void fuzz_repair(uint8_t *p, size_t n);

/* Like assert, but not switched off by NDEBUG. */
#define MUST(x)                                                                       \
	do {                                                                          \
		if (!(x)) {                                                           \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			abort();                                                      \
		}                                                                     \
	} while (0)

/* One xorshift step: the same numbers everywhere. */
static inline uint32_t fuzz_random(uint32_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 17;
	*s ^= *s << 5;
	return *s;
}

#endif
