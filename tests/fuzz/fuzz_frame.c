/* Frames of our own programs and of a guest (B-01): whatever comes, a frame lies inside what was read. */
#include "fuzz.h"

#include <errno.h>

#include "base/limits.h"
#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	size_t off = 0;

	while (off < n) {
		_cleanup_buf_ struct buf again = BUF_INIT(FRAME_MAX + FRAME_HEADER);
		struct frame f;
		long r = frame_parse(p + off, n - off, &f);

		MUST(r >= 0 || r == -EPROTO);
		if (r <= 0)
			break;
		MUST((size_t)r <= n - off && f.payload.n <= FRAME_MAX);
		MUST((size_t)r == FRAME_HEADER + f.payload.n);
		MUST((const uint8_t *)f.payload.p >= p &&
		     (const uint8_t *)f.payload.p + f.payload.n <= p + n);
		MUST(f.nfds <= FRAME_FDS_MAX);
		/* One spelling: what was accepted is what we would have written. */
		MUST(frame_put(&again, f.type, f.nfds, f.payload.p, f.payload.n) == 0);
		MUST(again.len == (size_t)r && memcmp(again.data, p + off, again.len) == 0);
		off += (size_t)r;
	}
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char text[] = "some payload";

	if (i >= 8)
		return false;
	for (size_t k = 0; k <= i; k++)
		MUST(frame_put(b, (uint8_t)(1 + k * 9), (uint8_t)(k % 5), text, k % sizeof(text)) ==
		     0);
	return true;
}

FUZZ_NO_REPAIR()
