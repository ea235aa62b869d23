/* Fuzz target: the tar reader, over whole streams. What must hold: tar_trace.h. */
#include <string.h>

#include "fuzz.h"
#include "hostile/cases.h"
#include "tar_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	trace_both(p, n);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	if (i < hostile_reader_cases_len)
		hostile_reader_cases[i].build(b);
	else if (i - hostile_reader_cases_len < hostile_member_cases_len)
		hostile_member_cases[i - hostile_reader_cases_len].build(b);
	else
		return false;
	return true;
}

/* Without this nearly every mutation would end at a checksum. One block in eight keeps its fault. */
void fuzz_repair(uint8_t *p, size_t n)
{
	for (size_t at = 0; at + 512 <= n; at += 512) {
		uint8_t *h = p + at;
		unsigned sum = 8 * ' ';
		char t[8];

		if (memcmp(h + 257, "ustar", 5) != 0 || h[511] % 8 == 7)
			continue;
		for (size_t i = 0; i < 512; i++)
			sum += i >= 148 && i < 156 ? 0 : h[i];
		(void)snprintf(t, sizeof(t), "%06o", sum);
		memcpy(h + 148, t, 7);
		h[155] = ' ';
	}
}
