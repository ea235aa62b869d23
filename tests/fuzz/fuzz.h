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
#include <stdio.h>
#include <stdlib.h>

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

/* The body of fuzz_seed for seeds that are texts in an array. */
#define FUZZ_TEXT(seeds, i, b) \
	((i) < sizeof(seeds) / sizeof((seeds)[0]) && fuzz_put_text((b), (seeds)[i]))

static inline bool fuzz_put_text(struct buf *b, const char *text)
{
	MUST(buf_puts(b, text) == 0);
	return true;
}

/* For inputs in which nothing vouches for the rest. */
#define FUZZ_NO_REPAIR()                       \
	void fuzz_repair(uint8_t *p, size_t n) \
	{                                      \
		(void)p;                       \
		(void)n;                       \
	}

/* One xorshift step: the same numbers everywhere. */
static inline uint32_t fuzz_random(uint32_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 17;
	*s ^= *s << 5;
	return *s;
}

#endif
