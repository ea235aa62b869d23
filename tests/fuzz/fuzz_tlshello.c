/* The name in a ClientHello (S2-09): bounded, NUL-ended, and more bytes never take a verdict back. */
#include "fuzz.h"

#include <string.h>

#include "wire/tlshello.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char name[TLSHELLO_NAME_MAX + 1], half[TLSHELLO_NAME_MAX + 1];
	enum tlshello all = tlshello_name(p, n, name), some = tlshello_name(p, n / 2, half);

	if (all == TLSHELLO_NAME)
		MUST(strlen(name) > 0 && memchr(name, 0, sizeof(name)));
	if (some != TLSHELLO_MORE)
		MUST(all == some && (all != TLSHELLO_NAME || strcmp(name, half) == 0));
	MUST(n < TLSHELLO_MAX || all != TLSHELLO_MORE);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char one[] = "\x16\3\1\0\x3d\1\0\0\x39\3\3"
				  "01234567890123456789012345678901"
				  "\0\0\2\x13\1\1\0\0\x0f\0\0\0\x0b\0\x09\0\0\6a.test";
	static const char none[] = "\x16\3\1\0\x2d\1\0\0\x29\3\3"
				   "01234567890123456789012345678901"
				   "\0\0\2\x13\1\1\0";

	if (i > 1)
		return false;
	MUST((i ? buf_put(b, none, sizeof(none) - 1) : buf_put(b, one, sizeof(one) - 1)) == 0);
	return true;
}

/* Lengths of the record and of the message, so that mutations get behind them. */
void fuzz_repair(uint8_t *p, size_t n)
{
	if (n < 9)
		return;
	p[0] = 22;
	p[1] = 3;
	p[3] = (uint8_t)((n - 5) >> 8);
	p[4] = (uint8_t)(n - 5);
	p[5] = 1;
	p[6] = 0;
	p[7] = (uint8_t)((n - 9) >> 8);
	p[8] = (uint8_t)(n - 9);
}
