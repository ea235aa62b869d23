/*
 * fuzz.h: one target per parser of foreign bytes.
 *
 * A target checks what must hold for any input and aborts where it does not; that it neither crashes nor
 * grows is the sanitizers' part. Linked with libFuzzer (./do fuzz), or with replay.c, which runs seeds, corpus
 * and a fixed number of mutations in every test run.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

#define FUZZ_SEED_MAX ((size_t)1 << 20)

/* assert that no build switches off */
#define MUST(cond)                                                                              \
	do {                                                                                    \
		if (!(cond)) {                                                                  \
			(void)fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, \
				      #cond);                                                   \
			abort();                                                                \
		}                                                                               \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
/* Appends seed number i to b; false when there is no such seed (any more). Too large: leaves b empty. */
bool fuzz_seed(struct buf *b, size_t i);

#endif
