/* Headers of bundles (B-01, F8): what is accepted is inside what was read, and a longer input never unsays it. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "wire/bundle.h"

#define A "0123456789abcdef0123456789abcdef01234567"
#define PACK "PACK\0\0\0\2\0\0\0\1"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct bundle b, part;
	const char *why, *text = (const char *)p;
	int r = bundle_parse(text, n, "HEAD", &b, &why);

	MUST(r == 1 || r == 0 || r == -EPROTO || r == -E2BIG);
	MUST((r < 0) == (why[0] != '\0'));
	if (r == 1) {
		size_t oid = b.sha256 ? 64 : 40;

		MUST(b.pack_at + 12 <= n && memcmp(text + b.pack_at, "PACK", 4) == 0);
		MUST(strlen(b.head) == oid && strspn(b.head, "0123456789abcdef") == oid);
		MUST(b.prereq_n <= BUNDLE_PREREQ_MAX);
		for (size_t i = 0; i < b.prereq_n; i++)
			MUST(strlen(b.prereq[i]) == oid);
		MUST(bundle_parse(text, b.pack_at + 12, "HEAD", &part, &why) == 1);
		MUST(memcmp(&b, &part, sizeof(b)) == 0);
		MUST(bundle_parse(text, b.pack_at + 11, "HEAD", &part, &why) == 0);
	} else if (r == 0) {
		MUST(n < BUNDLE_HEADER_MAX);
	}
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const struct {
		const char *text;
		size_t n;
	} seeds[] = {
#define SEED(t) {t, sizeof(t) - 1}
	    SEED("# v2 git bundle\n" A " HEAD\n\n" PACK),
	    SEED("# v2 git bundle\n-" A " subject of it\n-" A "\n" A " HEAD\n\n" PACK "rest"),
	    SEED("# v3 git bundle\n@object-format=sha1\n-" A " x\n" A " HEAD\n\n" PACK),
	    SEED("# v3 git bundle\n@object-format=sha256\n" A
		 "0123456789abcdef01234567 HEAD\n\n" PACK),
	    SEED("# v2 git bundle\n" A " HEAD\n" A " refs/tags/v9\n\n" PACK),
#undef SEED
	};

	if (i >= sizeof(seeds) / sizeof(seeds[0]))
		return false;
	MUST(buf_put(b, seeds[i].text, seeds[i].n) == 0);
	return true;
}

FUZZ_NO_REPAIR()
